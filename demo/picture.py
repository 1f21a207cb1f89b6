"""Draw the run: who trained which virtual worker when, above the loss curves of both runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from elastane.observe.events import Event
from elastane.observe.metrics import MetricsRecord

COLOURS = ("#4c78a8", "#e8963a", "#4aa37a", "#b9598a", "#8273c4", "#52a8bd")
"""Of neighbouring numbers clearly apart, also to most people who see fewer colours."""
INK, SOFT, BAND, GRID, SEVERE = "#24292f", "#6e7781", "#f6c48c", "#e8ebee", "#c0392b"
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": "#afb8c1",
    "axes.labelcolor": SOFT,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "axes.titlelocation": "left",
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
}
BLANK = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
SIZE_INCHES = (9.2, 5.8)
DPI = 110
NARROW = 0.04
"""Share of the width below which a stretch has no room for a name."""
HEADROOM = 0.12
"""Share of the (logarithmic) height of the curves that is left free above them for the lens."""
LENS_STEPS = 24
"""Steps shown one by one in the lens."""
LENS_BOX = (0.49, 0.58, 0.5, 0.33)
"""Left, bottom, width, height in the lower panel: a falling loss leaves its upper right corner free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Say that one worker ran virtual workers `first`..`stop` - 1 from one step until another."""

    worker: str
    first: int
    stop: int
    begin_step: int
    end_step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Name what happened before a step; a lens is put on the one that is `severe`."""

    step: int
    text: str
    severe: bool = False


def choose_colour(worker: str) -> str:
    """Return the colour of a worker, by the number in its id."""
    digits = "".join(filter(str.isdigit, worker))
    return COLOURS[(int(digits or 0) - 1) % len(COLOURS)]


def compute_stretches(events: Sequence[Event], total_steps: int) -> list[Stretch]:
    """Return which worker ran which virtual workers when, from the committed generations."""
    commits = [event.fields for event in events if event.kind == "committed" and event.fields.get("members")]
    ends = [int(fields["switch_step"]) for fields in commits[1:]] + [total_steps]
    return [
        Stretch(
            worker=worker, first=first, stop=stop, begin_step=int(fields["switch_step"]), end_step=end_step
        )
        for fields, end_step in zip(commits, ends, strict=True)
        for worker, (first, stop) in fields["members"].items()
        if end_step > int(fields["switch_step"])
    ]


def compute_epoch_means(records: Sequence[MetricsRecord]) -> tuple[list[float], list[float]]:
    """Return the middle step and the mean loss of each epoch."""
    epochs = [list(group) for _, group in groupby(records, key=lambda record: record.epoch)]
    steps = [(group[0].step + group[-1].step) / 2 for group in epochs]
    return steps, [sum(r.values["loss"] for r in group) / len(group) for group in epochs]


def draw_picture(
    path: Path,
    stretches: Sequence[Stretch],
    marks: Sequence[Mark],
    elastic: Sequence[MetricsRecord],
    plain: Sequence[MetricsRecord],
) -> None:
    """Write the picture of both runs to `path` as PNG.

    Args:
        path: the file.
        stretches: who ran what.
        marks: what was done to the job.
        elastic: all steps of the elastic run, at least one.
        plain: those of the undisturbed run.
    """
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=SIZE_INCHES, dpi=DPI, layout="constrained")
        FigureCanvasAgg(figure)
        figure.get_layout_engine().set(h_pad=0.06, hspace=0.06)  # type: ignore[union-attr, call-arg]
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1, 2))
        _draw_allocation(above, stretches)
        _draw_seconds(above, elastic)
        _draw_losses(below, elastic, plain)
        for mark in marks:
            _draw_mark(above, below, mark)
            if mark.severe:
                _draw_lens(below, mark, elastic, plain)
        below.set_xlim(0, len(elastic))
        figure.savefig(path)


def _draw_allocation(axes: Axes, stretches: Sequence[Stretch]) -> None:
    named: set[tuple[str, int, int]] = set()
    for one in stretches:
        width, height = one.end_step - one.begin_step, one.stop - one.first
        axes.add_patch(
            Rectangle(
                (one.begin_step, one.first - 0.5), width, height,
                facecolor=choose_colour(one.worker), edgecolor="white", linewidth=2,
            )
        )  # fmt: skip
        seat = (one.worker, one.first, one.stop)
        if width > NARROW * stretches[-1].end_step and seat not in named:
            named.add(seat)
            axes.text(
                one.begin_step + width / 2, (one.first + one.stop - 1) / 2, one.worker,
                ha="center", va="center", color="white", fontweight="bold", fontsize=10,
            )  # fmt: skip
    count = max(one.stop for one in stretches)
    for line in range(1, count):
        axes.axhline(line - 0.5, color="white", linewidth=0.7, alpha=0.7)
    axes.set_ylim(count - 0.5, -0.5)
    axes.set_yticks(range(count))
    axes.set_title("Which worker ran which virtual worker", pad=20)
    axes.set_ylabel("virtual worker")
    axes.tick_params(length=0, labelbottom=False)
    axes.spines[:].set_visible(False)


def _draw_seconds(axes: Axes, records: Sequence[MetricsRecord]) -> None:
    """Mark seconds of the elastic run along the upper edge: steps are not equally long."""
    begin_s = records[0].at_s
    last_s = int(records[-1].at_s - begin_s)
    every_s = next(every for every in (1, 2, 5, 10, 20, 50, 100, 10**6) if last_s <= 10 * every)
    seconds = range(0, last_s + 1, every_s)
    steps = [next(i for i, r in enumerate(records) if r.at_s - begin_s >= second) for second in seconds]
    upper = axes.secondary_xaxis("top")
    upper.set_xticks(steps, [f"{second} s" for second in seconds])
    upper.tick_params(length=3, pad=1, labelsize=8)
    upper.spines[:].set_visible(False)


def _draw_losses(axes: Axes, elastic: Sequence[MetricsRecord], plain: Sequence[MetricsRecord]) -> None:
    # A wide pale line under a thin dark one: both can be seen although they are the same.
    axes.plot(
        *compute_epoch_means(plain), color=BAND, linewidth=5.5, solid_capstyle="round",
        label="undisturbed: python examples/digits.py",
    )  # fmt: skip
    axes.plot(*compute_epoch_means(elastic), color=INK, linewidth=1, label="elastic: the job above")
    axes.set_yscale("log")
    axes.set_xlabel("step")
    axes.set_title("Training loss, mean of each epoch")
    axes.grid(color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(which="minor", length=0)
    equal = [record.values for record in elastic] == [record.values for record in plain]
    title = f"equal in every bit of all {len(elastic):,} steps" if equal else "the runs differ"
    legend = axes.legend(
        loc="lower left", title=title, alignment="left", facecolor="white", framealpha=1, edgecolor="white"
    )
    legend.get_title().set_fontweight("bold")
    bottom, top = axes.get_ylim()
    axes.set_ylim(bottom, top * (top / bottom) ** HEADROOM)


def _draw_mark(above: Axes, below: Axes, mark: Mark) -> None:
    for axes in (above, below):
        axes.axvline(mark.step, color=INK, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1.5)
    above.annotate(
        mark.text, (mark.step, 0), xycoords=("data", "axes fraction"), xytext=(0, -11),
        textcoords="offset points", ha="center", va="center", fontsize=8.5, annotation_clip=False,
        color=SEVERE if mark.severe else INK, fontweight="bold" if mark.severe else "normal",
        bbox=BLANK,
    )  # fmt: skip


def _draw_lens(
    axes: Axes, mark: Mark, elastic: Sequence[MetricsRecord], plain: Sequence[MetricsRecord]
) -> None:
    """Show the steps around a mark one by one."""
    begin = max(0, min(mark.step - LENS_STEPS // 2, len(elastic) - LENS_STEPS))
    lens = axes.inset_axes(LENS_BOX)
    for records, look in (
        (plain, {"color": BAND, "linewidth": 3, "marker": "o", "markersize": 7}),
        (elastic, {"color": INK, "linewidth": 0.8, "marker": "o", "markersize": 2.2}),
    ):
        shown = records[begin : begin + LENS_STEPS]
        lens.plot([r.step for r in shown], [r.values["loss"] for r in shown], **look)  # type: ignore[arg-type]
    lens.axvline(mark.step - 0.5, color=SEVERE, linewidth=1, linestyle=(0, (2, 2)))
    lens.set_yscale("log")
    lens.set_title(
        f"step by step around {mark.text}", fontsize=8.5, fontweight="normal", color=SEVERE, bbox=BLANK
    )
    lens.tick_params(labelsize=7.5, length=2)
    lens.tick_params(which="minor", length=0, labelsize=0)
    lens.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    lens.spines[["top", "right"]].set_visible(False)
