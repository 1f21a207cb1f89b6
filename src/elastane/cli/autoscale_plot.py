"""Draw what an autoscaler measured, predicts and decided: throughput and money by size, sizes over time."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from elastane.observe.autoscaling import AutoscaleStory
from elastane.sim.report.style import (
    BASELINE,
    COLOURS,
    INK,
    choose_time_unit,
    clean,
    new_figure,
    save_png,
    save_svg,
    styled,
)

WIDTH, HEIGHT = 9.2, 6.4
HEADROOM = 1.18
"""The upper end of an axis over the highest point: room for the legend."""
MEASURED, PREDICTED, WORTH, COST = COLOURS[0], COLOURS[1], COLOURS[2], COLOURS[3]


def save_picture(story: AutoscaleStory, title: str, currency: str, path: Path) -> None:
    """Draw the story into a PNG or SVG file, by its ending. Raises OSError."""
    with styled():
        figure = draw_story(story, title, currency)
        if path.suffix == ".svg":
            path.write_text(save_svg(figure), encoding="utf-8")
        else:
            path.write_bytes(save_png(figure))


def draw_story(story: AutoscaleStory, title: str, currency: str) -> Figure:
    """Return the figure: three plots of one job."""
    figure = new_figure(WIDTH, HEIGHT)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, color=INK)
    grid = figure.add_gridspec(2, 2, height_ratios=(3, 2))
    _draw_throughput(figure.add_subplot(grid[0, 0]), story)
    _draw_money(figure.add_subplot(grid[0, 1]), story, currency)
    _draw_time(figure.add_subplot(grid[1, :]), story)
    return figure


def _draw_throughput(axes: Axes, story: AutoscaleStory) -> None:
    sizes = [row.workers for row in story.rows]
    tried = [row for row in story.rows if row.measured is not None]
    axes.plot(sizes, [row.predicted for row in story.rows], color=PREDICTED, linewidth=1.6, label="predicted")
    axes.plot(
        [row.workers for row in tried],
        [row.throughput for row in tried],
        "o",
        color=MEASURED,
        markersize=7,
        label="measured",
    )
    _mark_kept(axes, story)
    _finish(axes, "Throughput, samples per second", max(row.throughput for row in story.rows))


def _draw_money(axes: Axes, story: AutoscaleStory, currency: str) -> None:
    """Draw worth and cost by size; without a price the time that workers are held, in hours."""
    sizes = [row.workers for row in story.rows]
    if any(row.cost is not None for row in story.rows):
        worth, cost = [row.worth or 0.0 for row in story.rows], [row.cost or 0.0 for row in story.rows]
        axes.plot(sizes, worth, "-", color=WORTH, linewidth=1.8, label="worth to end then")
        axes.plot(sizes, cost, "-", color=COST, linewidth=1.8, label="cost until then")
        _mark_tried(axes, story, worth, WORTH)
        _mark_tried(axes, story, cost, COST)
        _mark_kept(axes, story)
        _finish(axes, f"Worth and cost, {currency}", max(*worth, *cost))
        return
    length_s, unit = choose_time_unit(max(row.worker_s or 0.0 for row in story.rows))
    held = [(row.worker_s or 0.0) / length_s for row in story.rows]
    left = [(row.ends_in_s or 0.0) / length_s for row in story.rows]
    axes.plot(sizes, held, "-", color=COST, linewidth=1.8, label="worker time until the end")
    axes.plot(sizes, left, "-", color=WORTH, linewidth=1.8, label="time until the end")
    _mark_tried(axes, story, held, COST)
    _mark_tried(axes, story, left, WORTH)
    _mark_kept(axes, story)
    _finish(axes, f"Cost in worker time and time, {unit}", max(*held, *left))


def _mark_tried(axes: Axes, story: AutoscaleStory, values: list[float], colour: str) -> None:
    """Put a dot where a value rests on a measurement; the rest of the line is predicted."""
    tried = [(row.workers, v) for row, v in zip(story.rows, values, strict=True) if row.measured is not None]
    axes.plot([size for size, _ in tried], [v for _, v in tried], "o", color=colour, markersize=6)


def _draw_time(axes: Axes, story: AutoscaleStory) -> None:
    begun_s = story.choices[0].at_s - (story.choices[0].elapsed_s or 0.0)
    ages = [choice.at_s - begun_s for choice in story.choices]
    length_s, unit = choose_time_unit(ages[-1])
    moments = [0.0, *(age / length_s for age in ages)]
    sizes = [story.choices[0].workers, *(choice.wanted for choice in story.choices)]
    last = moments[-1] * 1.08
    axes.step([*moments, last], [*sizes, sizes[-1]], where="post", color=MEASURED, linewidth=2)
    for moment, choice in zip(moments[1:], story.choices, strict=True):
        colour = WORTH if choice.settled else PREDICTED
        axes.plot(moment, choice.wanted, "o", color=colour, markersize=6)
    axes.plot([], [], "o", color=PREDICTED, label="tries another size")
    axes.plot([], [], "o", color=WORTH, label="keeps this one")
    axes.set_xlim(0, last)
    axes.set_xlabel(f"{unit} since the job was made")
    _finish(axes, "Workers wanted", max(sizes), sizes_across=False)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))


def _mark_kept(axes: Axes, story: AutoscaleStory) -> None:
    if story.settled is not None:
        axes.axvline(story.settled, color=BASELINE, linewidth=1, linestyle="--", label="kept")


def _finish(axes: Axes, title: str, highest: float, *, sizes_across: bool = True) -> None:
    axes.set_title(title, loc="left", fontsize=10, color=INK)
    axes.set_ylim(0, highest * HEADROOM)
    if sizes_across:
        axes.set_xlabel("workers")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    clean(axes)
    axes.tick_params(axis="x", pad=6)
    legend = axes.legend(fontsize=8.5, ncols=3, loc="upper left", handlelength=1.4, columnspacing=1.2)
    # What lies under it would make it hard to read.
    legend.get_frame().set(facecolor="white", edgecolor="white", alpha=1.0)
