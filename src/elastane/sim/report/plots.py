"""Draw one figure for each question a cluster owner asks. Figures out of numbers; no files.

How long do jobs take? Who gains and who loses? Does size matter? Are the devices busy, and with use? How
long is the queue? Who held what? Where does a policy pay off?
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, ListedColormap, TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from elastane.sim.compare import PolicyRun, SweepRun
from elastane.sim.report.allocation_map import IDLE, draw_allocation
from elastane.sim.report.figures import (
    CHANGE_CLASSES,
    compute_cdf,
    compute_change_shares,
    compute_edges,
    compute_size_classes,
    slice_series,
)
from elastane.sim.report.human import say_change
from elastane.sim.report.style import (
    GRID,
    INK,
    MUTED,
    break_name,
    choose_time_unit,
    clean,
    colour_of,
    mark_percent,
    new_figure,
    use_time_scale,
)
from elastane.sim.sweep import Axis

WIDTH = 9.2
SLICES = 460
"""Slices of time in a plot: two pixels each."""

MAP_COLUMNS = 920
MOST_LINES_INSIDE = 5
MOST_MAP_ROWS = 512
"""Rows of an allocation map; larger clusters show every k-th device."""

_CHANGE_COLOURS = ("#1a936f", "#8fd3b6", "#e3e8ee", "#f5c08a", "#d9480f")
_REGIMES = LinearSegmentedColormap.from_list("regimes", ("#0b6e4f", "#f6f7f9", "#d9480f"))
_JOB_COLOURS = (
    "#4c8bc9", "#e08e45", "#5fae8b", "#a678b8", "#d9b44a", "#cf6f8f",
    "#4fa3b1", "#9a7b6a", "#7f9bd1", "#b5c25c", "#de7a5b", "#8d8fb5",
)  # fmt: skip

Runs = tuple[PolicyRun, ...]


def plot_jct(runs: Runs) -> Figure:
    """Draw the share of jobs that are done within a time of their submission."""
    figure = new_figure(WIDTH, 3.9)
    axes = figure.subplots()
    values = [run.result.jobs.jct_s for run in runs]
    low, high = max(1.0, min(v.min() for v in values)), max(v.max() for v in values)
    for place, (run, jct_s) in enumerate(zip(runs, values, strict=True)):
        x, y = compute_cdf(jct_s, 500)
        width = 1.8 if place else 2.4
        axes.step(x, y, where="post", color=colour_of(place), linewidth=width, label=break_name(run.policy))
    clean(axes, "both")
    use_time_scale(axes, low, high * 1.05)
    mark_percent(axes)
    axes.set_xlabel("time from submission to completion (logarithmic)")
    axes.set_title("Share of jobs that are done by then", loc="left", fontsize=10.5, color=INK)
    _add_legend(figure, axes, len(runs))
    return figure


def plot_changes(runs: Runs) -> Figure:
    """Draw for each policy how many jobs finish sooner or later than under the baseline."""
    others = runs[1:]
    figure = new_figure(WIDTH, 0.85 + 0.42 * len(others))
    axes = figure.subplots()
    for place, run in enumerate(others):
        left = 0.0
        shares = compute_change_shares(run.result.jobs, runs[0].result.jobs)
        for share, colour, (label, _, _) in zip(shares, _CHANGE_COLOURS, CHANGE_CLASSES, strict=True):
            axes.barh(place, share, left=left, color=colour, height=0.62, label=label if not place else None)
            if share >= 0.04:
                dark = colour in (_CHANGE_COLOURS[0], _CHANGE_COLOURS[-1])
                ink = "white" if dark else INK
                axes.text(
                    left + share / 2,
                    place,
                    f"{share:.0%}".replace("%", " %"),
                    ha="center",
                    va="center",
                    color=ink,
                    fontsize=9,
                )
            left += share
    axes.set_yticks(range(len(others)), [break_name(run.policy) for run in others], color=INK)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set_xticks([])
    clean(axes, "x")
    axes.spines["bottom"].set_visible(False)
    figure.legend(
        loc="outside upper left", ncols=5, frameon=False, fontsize=8.5, handlelength=1, columnspacing=1.2
    )
    return figure


def plot_sizes(runs: Runs) -> Figure:
    """Draw the mean completion time of small and large jobs under each policy."""
    classes = [compute_size_classes(run.result.jobs) for run in runs]
    labels = [f"{entry.label}\n{entry.jobs:,} jobs" for entry in classes[0]]
    figure = new_figure(WIDTH, 0.9 + 0.5 * len(labels))
    axes = figure.subplots()
    means = np.array([[entry.jct_mean_s for entry in mine] for mine in classes])
    for row in range(len(labels)):
        axes.plot([means[:, row].min(), means[:, row].max()], [row, row], color=GRID, linewidth=5, zorder=1)
    for place, run in enumerate(runs):
        size = 75 if place == 0 else 55
        rows = np.arange(len(labels))
        axes.scatter(
            means[place],
            rows,
            s=size,
            color=colour_of(place),
            label=break_name(run.policy),
            zorder=3,
            edgecolor="white",
        )
    axes.set_yticks(range(len(labels)), labels, color=INK)
    axes.invert_yaxis()
    clean(axes, "x")
    use_time_scale(axes, means.min() / 1.6, means.max() * 1.6)
    axes.set_xlabel("mean time from submission to completion (logarithmic)")
    axes.margins(y=0.12)
    figure.legend(loc="outside upper left", ncols=5, frameon=False, fontsize=9, handletextpad=0.2)
    return figure


def plot_devices(runs: Runs) -> Figure:
    """Draw for each policy how many devices were held over time, and how many were put to full use."""
    figure = new_figure(WIDTH, 0.75 + 1.15 * len(runs))
    panels = np.atleast_1d(figure.subplots(len(runs), 1, sharex=True))
    edges, unit_s, unit = _time_axis(runs)
    for place, (run, axes) in enumerate(zip(runs, panels, strict=True)):
        result = run.result
        used = slice_series(result.series, "used", edges).value / result.capacity
        useful = slice_series(result.series, "efficiency", edges).value / result.capacity
        x = edges / unit_s
        axes.stairs(used, x, fill=True, color=colour_of(place), alpha=0.28, linewidth=0)
        axes.stairs(useful, x, fill=True, color=colour_of(place), alpha=0.85, linewidth=0)
        clean(axes)
        axes.set_ylim(0, 1.0)
        axes.set_yticks([0, 0.5, 1.0], ["0", "50", "100 %"])
        figures = result.metrics
        title = f"{run.policy}:  {figures.utilisation:.0%} held, {figures.cluster_efficiency:.0%} useful"
        axes.set_title(title, loc="left", fontsize=9.5, color=INK)
    panels[-1].set_xlim(0, edges[-1] / unit_s)
    panels[-1].set_xlabel(f"{unit} since the first submission")
    return figure


def plot_queue(runs: Runs) -> Figure:
    """Draw how many jobs wait without any device, over time."""
    figure = new_figure(WIDTH, 3.0)
    axes = figure.subplots()
    edges, unit_s, unit = _time_axis(runs)
    for place, run in enumerate(runs):
        waiting = slice_series(run.result.series, "waiting", edges).value
        axes.stairs(
            waiting,
            edges / unit_s,
            color=colour_of(place),
            linewidth=1.6,
            label=break_name(run.policy),
            baseline=None,
        )
    clean(axes)
    axes.set_xlim(0, edges[-1] / unit_s)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set_xlabel(f"{unit} since the first submission")
    axes.set_title("Jobs that wait and hold no device", loc="left", fontsize=10.5, color=INK)
    _add_legend(figure, axes, len(runs))
    return figure


def plot_allocation(runs: Runs) -> Figure | None:
    """Draw who held which device when, for the runs that kept their changes; None if none did."""
    drawn = [run for run in runs if run.changes is not None]
    if not drawn:
        return None
    figure = new_figure(WIDTH, 0.6 + 1.75 * len(drawn))
    panels = np.atleast_1d(figure.subplots(len(drawn), 1, sharex=True))
    edges, unit_s, unit = _time_axis(runs, MAP_COLUMNS)
    for run, axes in zip(drawn, panels, strict=True):
        _draw_map(axes, run, edges, unit_s)
    panels[-1].set_xlabel(f"{unit} since the first submission")
    return figure


def plot_sweep(axis: Axis, sweep: tuple[SweepRun, ...], policies: list[str]) -> Figure:
    """Draw the mean completion time of each policy along one axis."""
    figure = new_figure(WIDTH, 3.6)
    axes = figure.subplots()
    means = []
    for place, policy in enumerate(policies):
        mine = [run for run in sweep if run.policy == policy]
        x = [run.point.value(axis.name, 0.0) for run in mine]
        y = [run.metrics.jct_mean_s for run in mine]
        means += y
        axes.plot(
            x, y, color=colour_of(place), marker="o", markersize=4.5, linewidth=1.8, label=break_name(policy)
        )
    clean(axes, "both")
    use_time_scale(axes, min(means) / 1.4, max(means) * 1.4, along="y")
    axes.set_xlabel(_AXIS_NAMES[axis.name])
    axes.set_title("Mean time from submission to completion", loc="left", fontsize=10.5, color=INK)
    figure.legend(frameon=False, loc="outside right upper")
    return figure


def plot_regimes(axes_of: tuple[Axis, ...], sweep: tuple[SweepRun, ...], policies: list[str]) -> Figure:
    """Draw for each policy but the first a map of its mean completion time against the first one's."""
    across, up = axes_of
    others = policies[1:]
    figure = new_figure(WIDTH, 0.5 + (0.8 + 0.36 * len(up.values)) * len(others))
    panels = np.atleast_1d(figure.subplots(len(others), 1, sharex=True))
    means = {(run.policy, *run.point.values): run.metrics.jct_mean_s for run in sweep}
    for policy, axes in zip(others, panels, strict=True):
        ratio = np.full((len(up.values), len(across.values)), np.nan)
        for row, y in enumerate(up.values):
            for column, x in enumerate(across.values):
                new, old = means.get((policy, x, y)), means.get((policies[0], x, y))
                if new is not None and old is not None:
                    ratio[row, column] = new / old
        _draw_regime(axes, ratio, across, up)
        axes.set_title(f"{policy} against {policies[0]}", loc="left", fontsize=10, color=INK)
    panels[-1].set_xlabel(_AXIS_NAMES[across.name])
    return figure


_AXIS_NAMES = {
    "load": "load (1 = the trace as it is, 2 = the same jobs in half the time)",
    "nodes": "nodes of the cluster",
    "seed": "seed",
    "elastic": "share of jobs that can change their size",
}


def _add_legend(figure: Figure, axes: Axes, lines: int) -> None:
    """Put a short legend into the empty corner of the plot, a long one beside it."""
    if lines <= MOST_LINES_INSIDE:
        axes.legend(frameon=False, loc="upper left")
    else:
        figure.legend(frameon=False, loc="outside right upper")


def _time_axis(runs: Runs, slices: int = SLICES) -> tuple[npt.NDArray[np.float64], float, str]:
    """Return the edges of the slices, and the unit for the axis."""
    end_s = max(float(run.result.jobs.finish_s.max()) for run in runs)
    unit_s, unit = choose_time_unit(end_s)
    return compute_edges(0.0, end_s, slices), unit_s, unit


def _draw_map(axes: Axes, run: PolicyRun, edges: npt.NDArray[np.float64], unit_s: float) -> None:
    assert run.changes is not None, "the caller chose runs with changes"
    result = run.result
    middles = (edges[:-1] + edges[1:]) / 2
    pixels = draw_allocation(run.changes, result.jobs.finish_s, result.capacity, middles)
    every = -(-result.capacity // MOST_MAP_ROWS)
    pixels = pixels[::every]
    # Neighbours in time get different colours: job numbers follow the order of submission.
    shades = np.where(pixels == IDLE, len(_JOB_COLOURS), pixels % len(_JOB_COLOURS))
    palette = ListedColormap([*_JOB_COLOURS, "#f4f6f8"])
    extent = (0.0, float(edges[-1] / unit_s), 0.0, float(result.capacity))
    axes.imshow(
        shades,
        cmap=palette,
        vmin=-0.5,
        vmax=len(_JOB_COLOURS) + 0.5,
        aspect="auto",
        origin="lower",
        interpolation="nearest",
        extent=extent,
    )
    clean(axes)
    axes.grid(visible=False)
    axes.set_title(run.policy, loc="left", fontsize=9.5, color=INK)
    axes.set_ylabel("device", color=MUTED)


def _draw_regime(axes: Axes, ratio: npt.NDArray[np.float64], across: Axis, up: Axis) -> None:
    norm = TwoSlopeNorm(vmin=0.0, vcenter=1.0, vmax=max(2.0, float(np.nanmax(ratio, initial=2.0))))
    axes.imshow(ratio, cmap=_REGIMES, norm=norm, aspect="auto", origin="lower")
    for row in range(ratio.shape[0]):
        for column in range(ratio.shape[1]):
            value = ratio[row, column]
            if np.isfinite(value):
                strong = value < 0.45 or value > 1.7
                ink = "white" if strong else INK
                text = say_change(float(value), 1.0)
                axes.text(column, row, text, ha="center", va="center", fontsize=8.5, color=ink)
    axes.set_xticks(range(len(across.values)), [f"{value:g}" for value in across.values])
    axes.set_yticks(range(len(up.values)), [f"{value:g}" for value in up.values])
    axes.set_ylabel(up.name)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.tick_params(length=0)
