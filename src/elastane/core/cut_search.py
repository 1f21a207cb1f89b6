"""Where to cut a job's virtual workers into ranges with bounded lengths and the fewest partial gradients.

A shortest path over positions: the i-th cut may lie wherever the workers before it can fill the space before
it and those after it the space behind it. The search is exact as long as that takes at most `BUDGET`
comparisons; otherwise each cut is looked for near its place in a given split, as far around it as the budget
allows. The lengths' bounds are kept in any case. Knows ranges and tree nodes, no speeds.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise

from elastane.core.tree import count_segments
from elastane.model.topology import VrankRange

BUDGET = 50_000
"""Comparisons in one search: some 25 ms. 64 virtual workers on 16 workers take fewer, whatever the speeds."""


class _Windows:
    """Hold for each cut 0..W the positions low[i]..high[i] that are looked at."""

    __slots__ = ("high", "low")

    def __init__(self, virtual_workers: int, most: Sequence[int]) -> None:
        workers = len(most)
        filled = [0, *accumulate(most)]
        total = filled[-1]
        self.low = [max(i, virtual_workers - (total - filled[i])) for i in range(workers + 1)]
        self.high = [min(filled[i], virtual_workers - (workers - i)) for i in range(workers + 1)]

    def work(self, most: Sequence[int], middle: Sequence[int], reach: int) -> int:
        """Return a bound on the comparisons with each cut at most `reach` away from its `middle`."""
        widths = [
            min(high, place + reach) - max(low, place - reach) + 1
            for low, high, place in zip(self.low, self.high, middle, strict=True)
        ]
        return sum(
            width * min(length, after) for width, length, after in zip(widths, most, widths[1:], strict=False)
        )

    def narrow(self, middle: Sequence[int], reach: int) -> None:
        """Keep only what is at most `reach` away from `middle`."""
        self.low = [max(low, place - reach) for low, place in zip(self.low, middle, strict=True)]
        self.high = [min(high, place + reach) for high, place in zip(self.high, middle, strict=True)]


def find_fewest_segments(
    virtual_workers: int,
    most: Sequence[int],
    counts: Sequence[int],
    present: Sequence[VrankRange | None],
    budget: int = BUDGET,
) -> tuple[VrankRange, ...]:
    """Return the ranges with the fewest canonical segments, then the fewest virtual workers moved.

    Args:
        virtual_workers: N.
        most: the largest length of each worker's range; the smallest is 1.
        counts: lengths of a split that keeps these bounds; the search goes on around it.
        present: what each worker holds now; None where it holds nothing.
        budget: comparisons that the search may take.

    Returns:
        Among equals the ranges whose longer ones come first.
    """
    middle = [0, *accumulate(counts)]
    windows = _Windows(virtual_workers, most)
    reach = _choose_reach(windows, most, middle, budget)
    windows.narrow(middle, reach)
    cuts = _search(virtual_workers, most, present, windows)
    return tuple(VrankRange(start, stop) for start, stop in pairwise(cuts))


def _choose_reach(windows: _Windows, most: Sequence[int], middle: Sequence[int], budget: int) -> int:
    """Return how far around `middle` the budget allows to look; beyond N is no difference."""
    low, high = 0, middle[-1]
    if windows.work(most, middle, high) <= budget:
        return high
    while low < high - 1:
        reach = (low + high) // 2
        low, high = (reach, high) if windows.work(most, middle, reach) <= budget else (low, reach)
    return low


def _search(
    virtual_workers: int, most: Sequence[int], present: Sequence[VrankRange | None], windows: _Windows
) -> list[int]:
    # One segment weighs more than all virtual workers that could stay where they are.
    weight = virtual_workers + 1
    impossible = weight * weight * weight
    best = [0]  # cost of everything behind each position of the window on the right
    choices: list[list[int]] = []
    for worker in range(len(most) - 1, -1, -1):
        first, last = windows.low[worker + 1], windows.high[worker + 1]
        held = present[worker] or VrankRange(0, 0)
        costs, stops = [], []
        for start in range(windows.low[worker], windows.high[worker] + 1):
            least, chosen = impossible, first
            # From the longest down, so that among equals the longer range is kept.
            for stop in range(min(start + most[worker], last), max(start, first - 1), -1):
                kept = min(stop, held.stop) - max(start, held.start)
                cost = (
                    count_segments(start, stop, virtual_workers) * weight
                    - (kept if kept > 0 else 0)
                    + best[stop - first]
                )
                if cost < least:
                    least, chosen = cost, stop
            costs.append(least)
            stops.append(chosen)
        best = costs
        choices.append(stops)
    cuts = [0]
    for worker, stops in enumerate(reversed(choices)):
        cuts.append(stops[cuts[-1] - windows.low[worker]])
    return cuts
