"""Which batches a worker fetches next: pure arithmetic over its virtual workers and a promised change.

Batches come step by step, within a step by vrank. Batches without samples are left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from elastane.core.data_order import DataOrder
from elastane.model.topology import VrankRange


class BatchKey(NamedTuple):
    """Name a batch. Keys order as the batches are fetched; `step` counts within the epoch."""

    epoch: int
    step: int
    vrank: int


class Promise(NamedTuple):
    """Say that from step `due` = (epoch, step) on, other virtual workers run here."""

    due: tuple[int, int]
    vranks: VrankRange


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedPlan:
    """Tell the batches from `position` on.

    Attributes:
        order: the data order of the job.
        position: the first batch that may still be fetched.
        vranks: the virtual workers that run here.
        promise: a change of `vranks` to come.
        epochs: the epochs that the job trains; None while unknown.
    """

    order: DataOrder
    position: BatchKey
    vranks: VrankRange
    promise: Promise | None = None
    epochs: int | None = None

    def vranks_at(self, epoch: int, step: int) -> VrankRange:
        """Return the virtual workers that run here in that step."""
        if self.promise is not None and (epoch, step) >= self.promise.due:
            return self.promise.vranks
        return self.vranks

    def wants(self, key: BatchKey) -> bool:
        """Tell whether the batch is still to be fetched here."""
        vranks = self.vranks_at(key.epoch, key.step)
        return (
            key >= self.position
            and vranks.start <= key.vrank < vranks.stop
            and (self.epochs is None or key.epoch < self.epochs)
        )

    def keys(self) -> Iterator[BatchKey]:
        """Iterate over the batches to fetch, without end while the number of epochs is unknown."""
        epoch, step, first_vrank = self.position
        while self.epochs is None or epoch < self.epochs:
            while step < self.order.steps_in(epoch):
                vranks = self.vranks_at(epoch, step)
                if vranks.start >= vranks.stop and (
                    self.promise is None or (epoch, step) >= self.promise.due
                ):
                    return
                for vrank in range(max(first_vrank, vranks.start), vranks.stop):
                    if self.order.positions(epoch, step, vrank):
                        yield BatchKey(epoch, step, vrank)
                step, first_vrank = step + 1, 0
            epoch, step = epoch + 1, 0

    def after(self, key: BatchKey) -> "FeedPlan":
        """Return the plan once the batch has been fetched; a promise that is due by then is fulfilled."""
        position = BatchKey(key.epoch, key.step, key.vrank + 1)
        if self.promise is not None and key[:2] >= self.promise.due:
            return replace(self, position=position, vranks=self.promise.vranks, promise=None)
        # Once a batch: dataclasses.replace would take three times as long.
        return FeedPlan(
            order=self.order,
            position=position,
            vranks=self.vranks,
            promise=self.promise,
            epochs=self.epochs,
        )
