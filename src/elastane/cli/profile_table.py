"""Show a measured profile in a terminal. Pure: what is shown was computed before."""

from collections.abc import Callable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from elastane.cli.wording import format_bytes, format_count, format_duration
from elastane.model.profile import AllocationPoint, MeasuredProfile

EFFICIENT, WASTEFUL = 0.8, 0.5
"""From where on an efficiency is green, and below which it is red: half of what devices could do is lost."""


def render_profile(profile: MeasuredProfile, remark: str) -> RenderableType:
    """Return a row for each number of workers, what stands out, and a remark."""
    titles = ("WORKERS", "SAMPLES/S", "SPEEDUP", "EFFICIENCY", "STEP TIME", "MIDDLE HALF", "MEMORY")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    on_devices = any(point.device_bytes is not None for point in profile.points)
    for title in (*titles, *(("DEVICE MEMORY",) if on_devices else ())):
        table.add_column(title, justify="right", no_wrap=True)
    fewest = profile.points[0]
    for point in profile.points:
        held = [] if point.device_bytes is None else [format_bytes(point.device_bytes)]
        table.add_row(
            str(point.workers),
            f"{point.samples_per_s:.4g}",
            f"{point.samples_per_s / fewest.samples_per_s:.2f}",
            Text(f"{point.efficiency:.0%}", style=_style(point.efficiency)),
            format_duration(point.step_time_s),
            f"{format_duration(point.step_time_low_s)} - {format_duration(point.step_time_high_s)}",
            format_bytes(point.rss_bytes),
            *held,
        )
    return Group(Text(describe_head(profile)), table, Text(), Text(describe_best(profile)), Text(remark))


def describe_head(profile: MeasuredProfile) -> str:
    """Return what was measured, in one line."""
    how = profile.batch or format_count(profile.virtual_workers, "virtual worker")
    return f"{profile.name}: {how}, on {profile.device_type}"


def describe_best(profile: MeasuredProfile) -> str:
    """Return which numbers of workers stand out; of equals the fewest."""
    fastest = _first_best(profile, lambda point: point.samples_per_s)
    efficient = _first_best(profile, lambda point: point.efficiency)
    if fastest.workers == efficient.workers:
        return f"fastest, and most efficient, with {format_count(fastest.workers, 'worker')}"
    return (
        f"fastest with {format_count(fastest.workers, 'worker')}, "
        f"most efficient with {format_count(efficient.workers, 'worker')}"
    )


def _first_best(profile: MeasuredProfile, value: Callable[[AllocationPoint], float]) -> AllocationPoint:
    return max(profile.points, key=lambda point: (value(point), -point.workers))


def _style(efficiency: float) -> str:
    if efficiency >= EFFICIENT:
        return "green"
    return "red" if efficiency < WASTEFUL else "yellow"
