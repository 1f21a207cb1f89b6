"""A job's way through its data: where it stands, what comes next, and how a new generation goes on.

It joins the position, which is replicated, with the data order, which a batch policy may cut anew, and
with the feeder, which fetches ahead along it. Nothing here knows models or other workers.
"""

from typing import Any

from elastane.core.data_order import DataOrder
from elastane.model.errors import ConfigError
from elastane.model.topology import VrankRange
from elastane.worker.batching import Batching
from elastane.worker.feeder import BatchFeeder
from elastane.worker.position import Position


class Course:
    """Follow one job's way through its data.

    Args:
        batching: the batch policy's part; None for a fixed number of virtual workers.
    """

    def __init__(self, batching: Batching | None) -> None:
        self.position = Position()
        self.batching = batching
        self._data: tuple[BatchFeeder, DataOrder] | None = None

    def feed_from(self, feeder: BatchFeeder, order: DataOrder) -> None:
        """Take the training data. Raise ConfigError if there are some already."""
        if self._data is not None:
            raise ConfigError("job.loader was called twice; a job trains on one loader, made before the loop")
        self._data = (feeder, order)

    @property
    def feeder(self) -> BatchFeeder:
        """Return the source of training batches. Raise ConfigError before `Job.loader`."""
        return self._known_data()[0]

    @property
    def order(self) -> DataOrder:
        """Return which samples are trained when. Raise ConfigError before `Job.loader`."""
        return self._known_data()[1]

    def _known_data(self) -> tuple[BatchFeeder, DataOrder]:
        if self._data is None:
            raise ConfigError("call job.loader(dataset, batch_size) before the training loop")
        return self._data

    @property
    def epoch_is_over(self) -> bool:
        """Tell whether all steps of the position's epoch are trained."""
        return self.position.epoch_step >= self.order.steps_in(self.position.epoch)

    @property
    def planned_samples(self) -> int:
        """Return the samples of the step that is due."""
        return self.order.step_samples(self.position.epoch, self.position.epoch_step)

    def count_remaining(self, epochs: int) -> int:
        """Return the samples from the step that is due to the end of so many epochs."""
        position, order = self.position, self.order
        return (epochs - position.epoch) * order.samples - order.before(position.epoch, position.epoch_step)

    def lr_scale(self) -> float:
        """Return the factor on the learning rate in the step that is due; ConfigError if it is none."""
        return 1.0 if self.batching is None else self.batching.lr_scale(self.order)

    def fetch(self, vrank: int) -> tuple[Any, int]:
        """Return the batch of `vrank` in the step that is due and its samples; (None, 0) if it has none."""
        epoch, step = self.position.epoch, self.position.epoch_step
        samples = len(self.order.positions(epoch, step, vrank))
        return (self.feeder.fetch(epoch, step, vrank) if samples else None), samples

    def enter(self, virtual_workers: int) -> None:
        """Cut the rest of the epoch into the steps of a generation with so many virtual workers."""
        if self.batching is None:
            return
        feeder, order = self._known_data()
        position = self.position
        cut = self.batching.cut(order, position.epoch, position.epoch_step, virtual_workers)
        if cut is not order:
            self._data = (feeder, cut)
            feeder.recut(cut)

    def schedule(self, vranks: VrankRange) -> None:
        """Fetch ahead, from the step that is due on, what `vranks` will train."""
        epoch, epoch_step = self.position.epoch, self.position.epoch_step
        if self.epoch_is_over:
            epoch, epoch_step = epoch + 1, 0
        self.feeder.schedule(epoch, epoch_step, vranks)

    def advance(self, samples: int) -> None:
        """Take note that the step that was due is committed, with so many samples."""
        self.position.epoch_step += 1
        if self.batching is not None:
            self.batching.advance(self.order, samples)

    def begin_epoch(self) -> None:
        """Go on to the first step of the next epoch."""
        self.position.epoch += 1
        self.position.epoch_step = 0
        if self.batching is not None:
            self.batching.begin_epoch()
