"""Which virtual workers run on which worker when all workers are equally fast.

Ranges are contiguous and as even as possible; among the even splits the one is taken whose ranges
need the fewest tree nodes, since every extra node is an extra partial gradient to send.
"""

from functools import lru_cache

from elastane.core.tree import canonical_segments
from elastane.model.errors import ConfigError
from elastane.model.topology import VrankRange


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


def _segments(start: int, length: int, virtual_workers: int) -> int:
    return len(canonical_segments(VrankRange(start, start + length), virtual_workers))


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
