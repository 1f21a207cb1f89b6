"""Which sample of which shard stands at a position of an epoch whose data lie in shards: arithmetic.

The shards of an epoch, in that epoch's order, are laid end to end and cut into N runs of equal length, one
for each virtual worker, that read them from front to back. So a virtual worker reads whole shards, one
after another, and at most N - 1 shards are shared by neighbours. Position r + i * N, the i-th sample of
virtual worker r in `data_order`, is the i-th of its run: what holds for positions holds for shards.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple


class ShardSample(NamedTuple):
    """Name a sample: the place of its shard in the epoch's order, and its number in the shard."""

    place: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardOrder:
    """Find the samples of one epoch.

    Attributes:
        ends: how many samples the shards up to and including each one have, in the epoch's order.
        virtual_workers: N.
    """

    ends: tuple[int, ...]
    virtual_workers: int

    def locate(self, position: int) -> ShardSample:
        """Return the sample at a position, 0 <= position < number of samples."""
        ends = self.ends
        vrank, number = position % self.virtual_workers, position // self.virtual_workers
        run, longer = divmod(ends[-1], self.virtual_workers)
        in_line = vrank * run + min(vrank, longer) + number
        place = bisect_right(ends, in_line)
        return ShardSample(place, in_line - (ends[place - 1] if place else 0))


def lay_out(lengths: Sequence[int], order: Sequence[int], virtual_workers: int) -> ShardOrder:
    """Return the order of an epoch that reads the shards as `order` says.

    Args:
        lengths: samples of each shard.
        order: the numbers of all shards, in the epoch's order.
        virtual_workers: N.
    """
    return ShardOrder(
        ends=tuple(accumulate(lengths[number] for number in order)), virtual_workers=virtual_workers
    )
