"""Which virtual workers run on which worker, by the workers' speeds.

A step ends when the slowest worker ends, so the placement minimises max_i A_i / C_i, the virtual workers of
a worker by its speed (EasyScale, SC'23, Eq. 1). Ranges are contiguous, in the order of the workers. Among
equals the one is taken whose ranges need the fewest tree nodes, since every extra node is an extra partial
gradient to send. Speeds are measured elsewhere.
"""

from collections.abc import Sequence
from functools import lru_cache
from heapq import heapify, heapreplace
from math import isfinite

from elastane.core.cut_search import find_fewest_segments
from elastane.core.tree import count_segments
from elastane.model.errors import ConfigError
from elastane.model.topology import VrankRange

WORTH_MOVING = 0.03
"""Share by which a step must get shorter for a change of placement: what it costs is a fraction of one step,
but speeds are measured with some noise."""


def check_worker_count(workers: int, virtual_workers: int) -> None:
    """Raise ConfigError unless 1 <= workers <= virtual_workers."""
    if not 1 <= workers <= virtual_workers:
        raise ConfigError(
            f"{workers} workers cannot share {virtual_workers} virtual workers; "
            f"ask for 1 to {virtual_workers} workers, or start the job with more virtual workers"
        )


@lru_cache(maxsize=256)
def plan_even(virtual_workers: int, workers: int) -> tuple[VrankRange, ...]:
    """Split N virtual workers into contiguous ranges that differ by one at most.

    Args:
        virtual_workers: N.
        workers: number of ranges, 1..N.

    Returns:
        The ranges in order. Among all even splits one with the fewest canonical segments in total;
        among equals the one whose longer ranges come first.

    Raises:
        ConfigError: no such split exists.
    """
    check_worker_count(workers, virtual_workers)
    short, long_count = divmod(virtual_workers, workers)
    cost = _fewest_segments(virtual_workers, workers)
    ranges = []
    start = longs_used = 0
    for done in range(workers):
        take_long = (
            longs_used < long_count
            and _segments(start, short + 1, virtual_workers) + cost[done + 1, longs_used + 1]
            == cost[done, longs_used]
        )
        length = short + take_long
        ranges.append(VrankRange(start, start + length))
        start += length
        longs_used += take_long
    return tuple(ranges)


def plan_placement(
    virtual_workers: int,
    speeds: Sequence[float],
    present: Sequence[VrankRange | None] | None = None,
) -> tuple[VrankRange, ...]:
    """Split N virtual workers so that a step takes as short as possible on workers of these speeds.

    Args:
        virtual_workers: N.
        speeds: C_i, virtual workers per second of each worker, in order.
        present: what each worker holds now; None where it holds nothing.

    Returns:
        One range of at least one virtual worker for each worker, in order. The step time
        `compute_step_time` is the least possible. Among placements with that time the one with the fewest
        canonical segments, then the one that moves the fewest virtual workers, then the one whose longer
        ranges come first; for large jobs among those near the proportional one: see `cut_search`.
        Equal speeds give `plan_even`.

    Raises:
        ConfigError: more workers than virtual workers, or a speed that is none.
    """
    held = tuple(present) if present is not None else (None,) * len(speeds)
    return _plan(virtual_workers, tuple(speeds), held)


# A leader asks again at every look at its job, with the same answer.
@lru_cache(maxsize=64)
def _plan(
    virtual_workers: int, speeds: tuple[float, ...], held: tuple[VrankRange | None, ...]
) -> tuple[VrankRange, ...]:
    check_worker_count(len(speeds), virtual_workers)
    bad = [speed for speed in speeds if not (isfinite(speed) and speed > 0)]
    if bad:
        raise ConfigError(
            f"a worker's speed must be a number above 0, in virtual workers per second: {bad[0]}"
        )
    if len(set(speeds)) == 1:
        return plan_even(virtual_workers, len(speeds))
    counts = _share_out(virtual_workers, speeds)
    limit_s = max(count / speed for count, speed in zip(counts, speeds, strict=True))
    most = [_count_within(limit_s, speed) for speed in speeds]
    return find_fewest_segments(virtual_workers, most, counts, held)


def compute_step_time(ranges: Sequence[VrankRange], speeds: Sequence[float]) -> float:
    """Return max_i A_i / C_i, the seconds that the slowest worker computes for one step."""
    return max(vranks.width / speed for vranks, speed in zip(ranges, speeds, strict=True))


def is_worth_moving(
    present: Sequence[VrankRange],
    planned: Sequence[VrankRange],
    speeds: Sequence[float],
    gain: float = WORTH_MOVING,
) -> bool:
    """Tell whether `planned` shortens the step of `present` by more than the share `gain`."""
    return compute_step_time(planned, speeds) < (1 - gain) * compute_step_time(present, speeds)


def _share_out(virtual_workers: int, speeds: Sequence[float]) -> list[int]:
    """Return A_i >= 1 with sum N and the least max_i A_i / C_i: the next goes to who would be done first."""
    counts = [1] * len(speeds)
    ends = [(2 / speed, worker) for worker, speed in enumerate(speeds)]
    heapify(ends)
    for _ in range(virtual_workers - len(speeds)):
        worker = ends[0][1]
        counts[worker] += 1
        heapreplace(ends, ((counts[worker] + 1) / speeds[worker], worker))
    return counts


def _count_within(limit_s: float, speed: float) -> int:
    """Return the largest A >= 1 with A / C within the limit, rounded as `compute_step_time` rounds."""
    count = max(1, int(limit_s * speed))
    while (count + 1) / speed <= limit_s:
        count += 1
    while count > 1 and count / speed > limit_s:
        count -= 1
    return count


def _segments(start: int, length: int, virtual_workers: int) -> int:
    return count_segments(start, start + length, virtual_workers)


def _fewest_segments(virtual_workers: int, workers: int) -> dict[tuple[int, int], int]:
    # cost[i, j]: fewest segments of ranges i..workers-1 when j of the ranges before i were long ones.
    short, long_count = divmod(virtual_workers, workers)
    cost: dict[tuple[int, int], int] = {(workers, long_count): 0}
    for done in range(workers - 1, -1, -1):
        for longs in range(max(0, long_count - (workers - done)), min(done, long_count) + 1):
            start = done * short + longs
            options = []
            if (done + 1, longs) in cost:
                options.append(_segments(start, short, virtual_workers) + cost[done + 1, longs])
            if (done + 1, longs + 1) in cost:
                options.append(_segments(start, short + 1, virtual_workers) + cost[done + 1, longs + 1])
            cost[done, longs] = min(options)
    return cost
