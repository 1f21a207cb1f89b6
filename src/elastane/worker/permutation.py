"""The order of the samples of an epoch: torch's DistributedSampler's, a function of (seed, epoch) alone.

Which positions of it a virtual worker takes is the arithmetic of `core.data_order`. Of data in shards the
shards are shuffled, not the samples: `core.shard_order`.
"""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import torch

from elastane.core.shard_order import ShardOrder, lay_out

_EPOCHS_KEPT = 2  # prefetching runs over an epoch's border: the present epoch's order and the next one's


class EpochOrders:
    """Give the samples at positions of the orders of epochs; make each order once, keep the newest two."""

    def __init__(self, samples: int, seed: int, *, shuffle: bool) -> None:
        self._samples = samples
        self._seed = seed
        self._shuffle = shuffle
        # As numpy arrays, whose slices become lists three times as fast as a tensor's.
        self._orders: OrderedDict[int, npt.NDArray[np.int64]] = OrderedDict()

    def indices(self, epoch: int, positions: range) -> list[int]:
        """Return the indices of the samples at `positions` of `epoch`'s order.

        Positions at or beyond the length of the data set start again at the order's beginning, as
        DistributedSampler pads.
        """
        if not self._shuffle:
            return [position % self._samples for position in positions]
        order = self._order(epoch)
        if positions.stop <= self._samples:
            within: list[int] = order[positions.start : positions.stop : positions.step].tolist()
            return within
        padded: list[int] = order[[position % self._samples for position in positions]].tolist()
        return padded

    def _order(self, epoch: int) -> npt.NDArray[np.int64]:
        order = self._orders.get(epoch)
        if order is None:
            generator = torch.Generator().manual_seed(self._seed + epoch)
            order = self._orders[epoch] = torch.randperm(self._samples, generator=generator).numpy()
            while len(self._orders) > _EPOCHS_KEPT:
                self._orders.popitem(last=False)
        self._orders.move_to_end(epoch)
        return order


class EpochShards:
    """Give the order of the shards of an epoch; make each once, keep the newest two."""

    def __init__(self, shards: int, seed: int, *, shuffle: bool) -> None:
        self._shards = shards
        self._seed = seed
        self._shuffle = shuffle
        self._orders: OrderedDict[int, list[int]] = OrderedDict()

    def order(self, epoch: int) -> list[int]:
        """Return the numbers of all shards in the order in which the epoch has them."""
        if epoch not in self._orders:
            generator = torch.Generator().manual_seed(self._seed + epoch)
            numbers = torch.randperm(self._shards, generator=generator).tolist() if self._shuffle else None
            self._orders[epoch] = numbers if numbers is not None else list(range(self._shards))
            while len(self._orders) > _EPOCHS_KEPT:
                self._orders.popitem(last=False)
        return self._orders[epoch]


class ShardOrders:
    """Give the samples at positions of the orders of epochs, as `EpochOrders` does, for data in shards."""

    def __init__(self, lengths: Sequence[int], seed: int, virtual_workers: int, *, shuffle: bool) -> None:
        self._lengths = tuple(lengths)
        self._starts = [0, *accumulate(lengths)]
        self._virtual_workers = virtual_workers
        self._shards = EpochShards(len(self._lengths), seed, shuffle=shuffle)
        self._orders: OrderedDict[int, tuple[list[int], ShardOrder]] = OrderedDict()

    def indices(self, epoch: int, positions: range) -> list[int]:
        """Return the numbers of the samples at `positions` of `epoch`'s order, which then begins anew."""
        numbers, order = self._order(epoch)
        samples = order.ends[-1]
        found = (order.locate(position % samples) for position in positions)
        return [self._starts[numbers[place]] + offset for place, offset in found]

    def _order(self, epoch: int) -> tuple[list[int], ShardOrder]:
        if epoch not in self._orders:
            numbers = self._shards.order(epoch)
            self._orders[epoch] = numbers, lay_out(self._lengths, numbers, self._virtual_workers)
            while len(self._orders) > _EPOCHS_KEPT:
                self._orders.popitem(last=False)
        return self._orders[epoch]
