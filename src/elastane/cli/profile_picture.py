"""Draw a measured profile: throughput against the number of workers, and how efficient each size is."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from elastane.cli.profile_table import describe_best, describe_head
from elastane.model.profile import MeasuredProfile
from elastane.sim.report.style import (
    BASELINE,
    COLOURS,
    INK,
    clean,
    mark_percent,
    new_figure,
    save_png,
    styled,
)

WIDTH, HEIGHT = 7.4, 5.6


def draw_profile(profile: MeasuredProfile) -> bytes:
    """Return the picture as a PNG."""
    with styled():
        return save_png(plot_profile(profile))


def plot_profile(profile: MeasuredProfile) -> Figure:
    """Draw the curve beside what perfect scaling would give, and the efficiency below it."""
    figure = new_figure(WIDTH, HEIGHT)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    _plot_throughput(above, profile)
    _plot_efficiency(below, profile)
    above.set_title(f"{describe_head(profile)}\n{describe_best(profile)}", loc="left", fontsize=10, color=INK)
    return figure


def _plot_throughput(axes: Axes, profile: MeasuredProfile) -> None:
    workers = [point.workers for point in profile.points]
    speeds = [point.samples_per_s for point in profile.points]
    low = [point.samples_per_step / point.step_time_high_s for point in profile.points]
    high = [point.samples_per_step / point.step_time_low_s for point in profile.points]
    most = max(workers)
    per_worker = max(speed / count for speed, count in zip(speeds, workers, strict=True))
    axes.plot([0, most], [0, per_worker * most], "--", color=BASELINE, linewidth=1, label="perfect scaling")
    axes.fill_between(
        workers, low, high, color=COLOURS[0], alpha=0.15, linewidth=0, label="middle half of the steps"
    )
    axes.plot(workers, speeds, "o-", color=COLOURS[0], linewidth=1.8, markersize=5, label="measured")
    clean(axes)
    axes.set_ylabel("samples per second")
    axes.set_ylim(0, 1.25 * max(high))
    axes.legend(frameon=False, fontsize=8.5, loc="lower right")


def _plot_efficiency(axes: Axes, profile: MeasuredProfile) -> None:
    workers = [point.workers for point in profile.points]
    axes.bar(workers, [point.efficiency for point in profile.points], color=COLOURS[2], width=0.6)
    clean(axes)
    mark_percent(axes)
    axes.set_ylabel("efficiency")
    axes.set_xlabel("workers")
    axes.set_xlim(0, max(workers) + 0.6)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
