"""The one fixed binary tree along which the N virtual workers' gradients are added.

The tree's nodes are the aligned ranges of 2**level virtual workers, cut at N: a node whose right half
lies beyond N is its left half. Floating-point addition is not associative, so the bits of a sum depend
on the order of additions; here the order depends on N alone, never on which worker holds what.
This module knows ranges and merges, not tensors.
"""

from collections.abc import Sequence
from typing import NamedTuple

from elastane.model.topology import VrankRange


class TreeNode(NamedTuple):
    """Name the node that covers virtual workers [place * 2**level, (place + 1) * 2**level), cut at N."""

    level: int
    place: int

    def covers(self, virtual_workers: int) -> VrankRange:
        """Return the range of virtual workers below this node in a tree of N = `virtual_workers` leaves."""
        width = 1 << self.level
        return VrankRange(self.place * width, min((self.place + 1) * width, virtual_workers))


def _lifted(node: TreeNode, virtual_workers: int) -> TreeNode:
    # A left child whose sibling lies wholly beyond N has the same value as its parent: climb without adding.
    level, place = node
    while place % 2 == 0 and (place + 1) << level >= virtual_workers and place > 0:
        level, place = level + 1, place // 2
    return TreeNode(level, place)


class TreeFold:
    """Fold partial sums that arrive from left to right, like a binary counter.

    The caller keeps a stack of values beside this object: on `push` it pushes the new value and then
    merges its two topmost values as many times as `push` returns (left + right, in this order).
    At most ceil(log2 V) + 1 values are pending for V leaves that start at an aligned range.
    """

    __slots__ = ("_nodes", "_virtual_workers")

    def __init__(self, virtual_workers: int) -> None:
        self._virtual_workers = virtual_workers
        self._nodes: list[TreeNode] = []

    @property
    def pending(self) -> tuple[TreeNode, ...]:
        """Return the nodes whose values are on the caller's stack, from left to right."""
        return tuple(self._nodes)

    def push(self, node: TreeNode) -> int:
        """Add the value of `node`; return how many merges of the two topmost values are due now."""
        node = _lifted(node, self._virtual_workers)
        merges = 0
        while self._nodes and node.place % 2 == 1 and self._nodes[-1] == (node.level, node.place - 1):
            self._nodes.pop()
            node = _lifted(TreeNode(node.level + 1, node.place // 2), self._virtual_workers)
            merges += 1
        self._nodes.append(node)
        return merges


def canonical_segments(vranks: VrankRange, virtual_workers: int) -> tuple[TreeNode, ...]:
    """Return the fewest tree nodes that cover `vranks` exactly, from left to right.

    They are what `TreeFold` leaves pending after the leaves of the range: one node if the range is
    aligned, at most 2 * log2(N) otherwise.
    """
    segments = []
    position = vranks.start
    while position < vranks.stop:
        level = _largest_level(position, vranks.stop, virtual_workers)
        node = _lifted(TreeNode(level, position >> level), virtual_workers)
        segments.append(node)
        position = node.covers(virtual_workers).stop
    return tuple(segments)


def count_segments(start: int, stop: int, virtual_workers: int) -> int:
    """Return how many canonical segments the range start..stop - 1 has, without making them."""
    if stop == virtual_workers:
        # The tree's last nodes are cut at N: from `start` ever larger nodes until one reaches the end.
        count = 0
        while start < stop:
            start += start & -start or stop
            count += 1
        return count
    # Both ends meet at the most aligned position between them: up to it nodes grow, after it they shrink.
    level = (start ^ stop).bit_length() - 1
    middle = stop >> level << level
    return (middle - start).bit_count() + (stop - middle).bit_count()


def _largest_level(position: int, stop: int, virtual_workers: int) -> int:
    # The largest node that starts at `position` and ends, after the cut at N, within `stop`.
    level = 0
    while position % (2 << level) == 0 and 1 << level < virtual_workers:
        if min(position + (2 << level), virtual_workers) > stop:
            break
        level += 1
    return level


def merge_schedule(segments: Sequence[TreeNode], virtual_workers: int) -> tuple[tuple[int, int], ...]:
    """Return the additions (left, right) that finish the tree over all workers' segments, in order.

    Args:
        segments: canonical segments of all workers, from left to right; together they cover 0..N-1.
        virtual_workers: N.

    Returns:
        Pairs of positions in `segments`: value[left] += value[right]. The total ends at position 0.

    Raises:
        ValueError: the segments do not cover 0..N-1.
    """
    fold = TreeFold(virtual_workers)
    positions: list[int] = []
    schedule: list[tuple[int, int]] = []
    for position, node in enumerate(segments):
        positions.append(position)
        for _ in range(fold.push(node)):
            right = positions.pop()
            schedule.append((positions[-1], right))
    if len(positions) != 1 or fold.pending[0].covers(virtual_workers) != VrankRange(0, virtual_workers):
        raise ValueError(
            f"segments {list(segments)} do not cover the virtual workers 0..{virtual_workers - 1}"
        )
    return tuple(schedule)
