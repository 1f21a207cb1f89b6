"""The look of all plots: colours, fonts, and axes that count time in units people use.

Colours come in an order that stays apart for colour-blind eyes and in grey print (after Okabe and Ito); the
baseline is grey, since it is what the others are held against.
"""

from __future__ import annotations

import io
from contextlib import AbstractContextManager
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

INK = "#1b2733"
MUTED = "#66788a"
GRID = "#e3e8ee"
BASELINE = "#7d8b99"
COLOURS = (
    "#0b6bcb", "#d9480f", "#1a936f", "#8e44ad", "#c79100", "#c2255c",
    "#0b7285", "#5c4033", "#7c9a00", "#e58fb0", "#3d3a9e", "#5ec4d4",
)  # fmt: skip

_RC: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "axes.edgecolor": GRID,
    "svg.fonttype": "none",
    "svg.hashsalt": "elastane",
    # A policy may be called "$cost$"; that is no formula.
    "text.parse_math": False,
}
_TIME_TICKS = {
    1: "1 s", 10: "10 s", 60: "1 min", 600: "10 min", 3_600: "1 h", 36_000: "10 h",
    86_400: "1 d", 864_000: "10 d", 8_640_000: "100 d",
}  # fmt: skip
_FINE_TICKS = {
    2: "2 s", 5: "5 s", 30: "30 s", 120: "2 min", 300: "5 min", 1_800: "30 min", 7_200: "2 h", 18_000: "5 h",
    172_800: "2 d", 432_000: "5 d", 1_728_000: "20 d", 4_320_000: "50 d",
}  # fmt: skip
_LONG_NAME = 24
_NARROW = 300.0
"""Axes that span less than this factor get the fine ticks too."""


def colour_of(place: int) -> str:
    """Return the colour of the policy at a place in the comparison; place 0 is the baseline."""
    return BASELINE if place == 0 else COLOURS[(place - 1) % len(COLOURS)]


def break_name(name: str) -> str:
    """Return a policy's name with its options on lines of their own, for the side of a plot."""
    return name if len(name) <= _LONG_NAME else name.replace(":", ":\n").replace(",", ",\n")


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of a size in inches."""
    return Figure(figsize=(width, height), dpi=110, layout="constrained")


def clean(axes: Axes, grid: Literal["x", "y", "both"] = "y") -> None:
    """Take away what carries no information: frames, ticks, all but one direction of grid lines."""
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=0)
    axes.grid(axis=grid, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)


def use_time_scale(axes: Axes, low_s: float, high_s: float, along: str = "x") -> None:
    """Make an axis logarithmic in time with ticks at seconds, minutes, hours and days."""
    axis = axes.xaxis if along == "x" else axes.yaxis
    (axes.set_xscale if along == "x" else axes.set_yscale)("log")
    names = _TIME_TICKS | _FINE_TICKS if high_s < low_s * _NARROW else _TIME_TICKS
    axis.set_major_locator(FixedLocator(sorted(names)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: names.get(round(value), "")))
    axis.set_minor_locator(NullLocator())
    (axes.set_xlim if along == "x" else axes.set_ylim)(low_s, high_s)


def choose_time_unit(span_s: float) -> tuple[float, str]:
    """Return length and name of the unit in which a span makes a handful of ticks."""
    for length, name in ((86_400.0, "days"), (3_600.0, "hours"), (60.0, "minutes")):
        if span_s >= 3 * length:
            return length, name
    return 1.0, "seconds"


def save_png(figure: Figure) -> bytes:
    """Return the figure as a PNG, the same bytes for the same figure."""
    buffer = io.BytesIO()
    figure.savefig(buffer, facecolor="white", format="png", dpi=150, metadata={"Software": None})
    return buffer.getvalue()


def save_svg(figure: Figure) -> str:
    """Return the figure as an SVG element to stand in a page; text stays text."""
    buffer = io.StringIO()
    figure.savefig(buffer, facecolor="white", format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def styled() -> AbstractContextManager[None]:
    """Return the context in which figures must be made and saved."""
    return matplotlib.rc_context(_RC)


def mark_percent(axes: Axes) -> None:
    """Count the vertical axis from 0 to 100 %."""
    axes.set_ylim(0, 1.0)
    axes.set_yticks(np.linspace(0, 1, 5), ["0", "25", "50", "75", "100 %"])
