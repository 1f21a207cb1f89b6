"""Even placements with the fewest partial sums, compared with all even placements there are."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastane.core.placement import check_worker_count, plan_even
from elastane.core.tree import canonical_segments
from elastane.model.errors import ConfigError
from elastane.model.topology import VrankRange


@st.composite
def counts(draw: st.DrawFn, most: int = 64) -> tuple[int, int]:
    """(virtual_workers, workers)"""
    virtual_workers = draw(st.integers(1, most))
    return virtual_workers, draw(st.integers(1, virtual_workers))


def even_splits(virtual_workers: int, workers: int) -> list[tuple[VrankRange, ...]]:
    short, longs = divmod(virtual_workers, workers)
    splits = []
    for chosen in combinations(range(workers), longs):
        borders = [0]
        for worker in range(workers):
            borders.append(borders[-1] + short + (worker in chosen))
        splits.append(tuple(VrankRange(start, stop) for start, stop in pairwise(borders)))
    return splits


def segment_count(split: tuple[VrankRange, ...], virtual_workers: int) -> int:
    return sum(len(canonical_segments(vranks, virtual_workers)) for vranks in split)


@given(counts())
def test_ranges_follow_each_other_and_differ_by_one_at_most(count: tuple[int, int]) -> None:
    virtual_workers, workers = count
    split = plan_even(virtual_workers, workers)
    assert [vrank for vranks in split for vrank in range(*vranks)] == list(range(virtual_workers))
    lengths = [stop - start for start, stop in split]
    assert len(split) == workers
    assert max(lengths) - min(lengths) <= 1


@given(counts(most=14))
def test_no_even_split_needs_fewer_segments_and_longer_ranges_come_first(count: tuple[int, int]) -> None:
    virtual_workers, workers = count
    splits = even_splits(virtual_workers, workers)
    fewest = min(segment_count(split, virtual_workers) for split in splits)
    best = [split for split in splits if segment_count(split, virtual_workers) == fewest]
    assert plan_even(virtual_workers, workers) == max(
        best, key=lambda split: [stop - start for start, stop in split]
    )


@pytest.mark.parametrize(
    ("virtual_workers", "workers", "lengths"),
    [
        (8, 1, [8]),
        (8, 2, [4, 4]),
        (8, 4, [2, 2, 2, 2]),
        (8, 3, [3, 3, 2]),
        (6, 4, [2, 2, 1, 1]),
        (5, 5, [1] * 5),
    ],
)
def test_common_counts_are_split_like_this(virtual_workers: int, workers: int, lengths: list[int]) -> None:
    assert [stop - start for start, stop in plan_even(virtual_workers, workers)] == lengths


@pytest.mark.parametrize("workers", [-1, 0, 9])
def test_more_workers_than_virtual_workers_or_none_are_refused(workers: int) -> None:
    with pytest.raises(ConfigError, match=rf"{workers} workers cannot share 8 .* ask for 1 to 8 workers"):
        plan_even(8, workers)


@given(counts())
def test_every_count_from_one_to_the_virtual_workers_is_allowed(count: tuple[int, int]) -> None:
    virtual_workers, workers = count
    check_worker_count(workers, virtual_workers)
