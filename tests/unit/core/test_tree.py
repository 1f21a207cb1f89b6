"""One tree of additions for every placement, checked with values that remember how they were added."""

from itertools import pairwise
from math import ceil, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastane.core.tree import TreeFold, TreeNode, canonical_segments, count_segments, merge_schedule
from elastane.model.topology import VrankRange

many = st.integers(1, 70)


def tree_text(virtual_workers: int) -> str:
    """Write the tree over 0..N-1 down from its definition: halves of the covering power of two, cut at N."""

    def written(level: int, start: int) -> str:
        if level == 0:
            return str(start)
        half = 1 << (level - 1)
        left = written(level - 1, start)
        if start + half >= virtual_workers:
            return left
        return f"({left}+{written(level - 1, start + half)})"

    return written((virtual_workers - 1).bit_length(), 0)


def fold_texts(vranks: VrankRange, virtual_workers: int) -> tuple[tuple[TreeNode, ...], list[str], int]:
    """Fold the leaves of a range; return the pending nodes, their values and the most values ever held."""
    fold = TreeFold(virtual_workers)
    values: list[str] = []
    most = 0
    for vrank in range(vranks.start, vranks.stop):
        values.append(str(vrank))
        most = max(most, len(values))
        for _ in range(fold.push(TreeNode(0, vrank))):
            right = values.pop()
            values[-1] = f"({values[-1]}+{right})"
    return fold.pending, values, most


@st.composite
def placements(draw: st.DrawFn) -> tuple[int, list[VrankRange]]:
    """N and contiguous ranges, none empty, that cover 0..N-1."""
    virtual_workers = draw(many)
    borders = draw(st.sets(st.integers(1, virtual_workers - 1))) if virtual_workers > 1 else set()
    cuts = [0, *sorted(borders), virtual_workers]
    return virtual_workers, [VrankRange(start, stop) for start, stop in pairwise(cuts)]


@st.composite
def ranges(draw: st.DrawFn) -> tuple[int, VrankRange]:
    virtual_workers = draw(many)
    start = draw(st.integers(0, virtual_workers - 1))
    return virtual_workers, VrankRange(start, draw(st.integers(start + 1, virtual_workers)))


@pytest.mark.parametrize(
    ("virtual_workers", "text"),
    [
        (1, "0"),
        (2, "(0+1)"),
        (3, "((0+1)+2)"),
        (5, "(((0+1)+(2+3))+4)"),
        (6, "(((0+1)+(2+3))+(4+5))"),
        (8, "(((0+1)+(2+3))+((4+5)+(6+7)))"),
    ],
)
def test_one_worker_folds_the_whole_tree(virtual_workers: int, text: str) -> None:
    pending, values, _ = fold_texts(VrankRange(0, virtual_workers), virtual_workers)
    assert values == [text]
    assert [node.covers(virtual_workers) for node in pending] == [VrankRange(0, virtual_workers)]


@given(placements())
def test_every_placement_adds_along_the_same_tree(placement: tuple[int, list[VrankRange]]) -> None:
    virtual_workers, parts = placement
    values: list[str] = []
    segments: list[TreeNode] = []
    for part in parts:
        pending, texts, _ = fold_texts(part, virtual_workers)
        segments += pending
        values += texts
    for left, right in merge_schedule(segments, virtual_workers):
        values[left] = f"({values[left]}+{values[right]})"
    assert values[0] == tree_text(virtual_workers)


@given(ranges())
def test_folding_a_range_leaves_its_canonical_segments(case: tuple[int, VrankRange]) -> None:
    virtual_workers, vranks = case
    assert fold_texts(vranks, virtual_workers)[0] == canonical_segments(vranks, virtual_workers)


@given(ranges())
def test_canonical_segments_cover_their_range_and_are_few(case: tuple[int, VrankRange]) -> None:
    virtual_workers, vranks = case
    segments = canonical_segments(vranks, virtual_workers)
    covered = [vrank for node in segments for vrank in range(*node.covers(virtual_workers))]
    assert covered == list(range(*vranks))
    assert len(segments) <= max(1, 2 * ceil(log2(virtual_workers)))


@given(ranges())
def test_no_smaller_number_of_nodes_covers_a_range(case: tuple[int, VrankRange]) -> None:
    virtual_workers, vranks = case
    levels = range((virtual_workers - 1).bit_length() + 1)
    nodes = {
        TreeNode(level, index).covers(virtual_workers)
        for level in levels
        for index in range(-(-virtual_workers >> level))
    }
    fewest = {vranks.start: 0}
    for position in range(vranks.start, vranks.stop):
        for start, stop in nodes:
            if start == position and stop <= vranks.stop and position in fewest:
                fewest[stop] = min(fewest.get(stop, 1 << 30), fewest[position] + 1)
    assert len(canonical_segments(vranks, virtual_workers)) == fewest[vranks.stop]


@given(st.integers(0, 6), st.integers(0, 7), many)
def test_an_aligned_range_needs_one_segment_and_few_copies(
    level: int, index: int, virtual_workers: int
) -> None:
    vranks = TreeNode(level, index).covers(virtual_workers)
    if vranks.start >= virtual_workers:
        return
    pending, _, most = fold_texts(vranks, virtual_workers)
    assert len(pending) == 1
    assert most <= ceil(log2(vranks.stop - vranks.start)) + 1


@given(ranges())
def test_a_range_that_is_not_aligned_holds_a_few_copies_more(case: tuple[int, VrankRange]) -> None:
    virtual_workers, vranks = case
    _, _, most = fold_texts(vranks, virtual_workers)
    assert most <= 2 * ceil(log2(vranks.stop - vranks.start + 1)) + 1


@given(placements())
def test_a_missing_or_doubled_segment_is_refused(placement: tuple[int, list[VrankRange]]) -> None:
    virtual_workers, parts = placement
    segments = [node for part in parts for node in canonical_segments(part, virtual_workers)]
    with pytest.raises(ValueError, match="do not cover the virtual workers 0"):
        merge_schedule(segments[:-1], virtual_workers)
    with pytest.raises(ValueError, match="do not cover"):
        merge_schedule([*segments, segments[-1]], virtual_workers)


def test_segments_of_three_uneven_workers_merge_in_this_order() -> None:
    segments = [
        node
        for vranks in (VrankRange(0, 3), VrankRange(3, 5), VrankRange(5, 8))
        for node in canonical_segments(vranks, 8)
    ]
    assert segments == [(1, 0), (0, 2), (0, 3), (0, 4), (0, 5), (1, 3)]
    assert merge_schedule(segments, 8) == ((1, 2), (0, 1), (3, 4), (3, 5), (0, 3))


def test_segments_are_counted_as_they_are_made_for_every_range_of_every_small_tree() -> None:
    for virtual_workers in range(1, 35):
        for start in range(virtual_workers):
            for stop in range(start + 1, virtual_workers + 1):
                made = canonical_segments(VrankRange(start, stop), virtual_workers)
                assert count_segments(start, stop, virtual_workers) == len(made)
