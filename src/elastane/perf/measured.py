"""Compute the figures of a measured profile from single steps, and hand it on as a speed profile.

Pure arithmetic; knows neither jobs nor files.
"""

from collections.abc import Iterable, Sequence
from statistics import median, quantiles

import msgspec

from elastane.model.cluster import Profile, SpeedPoint
from elastane.model.profile import AllocationPoint, MeasuredProfile


def compute_point(
    workers: int,
    samples: Sequence[int],
    step_times_s: Sequence[float],
    rss_bytes: int,
    device_bytes: int | None,
) -> AllocationPoint:
    """Return what was measured with `workers` workers; its efficiency is 1 until it is compared.

    Args:
        workers: p.
        samples: of each step that counts.
        step_times_s: of the same steps, all above 0; two or more.
        rss_bytes: most memory that any worker held.
        device_bytes: most that any of their devices held; None without devices of their own.
    """
    rates = [count / step_s for count, step_s in zip(samples, step_times_s, strict=True)]
    low_s, middle_s, high_s = quantiles(step_times_s, n=4, method="inclusive")
    return AllocationPoint(
        workers=workers,
        # The median: a pause of the machine within one step says nothing of the size.
        samples_per_s=median(rates),
        efficiency=1.0,
        steps=len(step_times_s),
        samples_per_step=median(samples),
        step_time_s=middle_s,
        step_time_low_s=low_s,
        step_time_high_s=high_s,
        rss_bytes=rss_bytes,
        device_bytes=device_bytes,
    )


def compare_points(points: Iterable[AllocationPoint]) -> tuple[AllocationPoint, ...]:
    """Return the points with their efficiency relative to the best of them, the fewest workers first.

    Of two points with equally many workers the later one counts.
    """
    by_size = {point.workers: point for point in points}
    if not by_size:
        return ()
    # EDL's ef(p), as in `perf.efficiency`; without numpy, which the command line does not wait for.
    per_worker = {workers: point.samples_per_s / workers for workers, point in by_size.items()}
    best = max(per_worker.values())
    return tuple(
        msgspec.structs.replace(by_size[workers], efficiency=per_worker[workers] / best)
        for workers in sorted(by_size)
    )


def make_speed_profile(measured: MeasuredProfile) -> Profile:
    """Return the profile as schedulers and the simulator take it: one device for each worker."""
    points = tuple(
        SpeedPoint(devices=point.workers, samples_per_s=point.samples_per_s, device_type=measured.device_type)
        for point in measured.points
    )
    source = f"elastane profile of {measured.script}, {measured.made_at}, {measured.machine}"
    return Profile(name=measured.name, points=points, source=source)
