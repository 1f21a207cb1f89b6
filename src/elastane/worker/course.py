"""A job's way through its data: where it stands, what comes next, and how a new generation goes on.

It joins the position, which is replicated, with the data order, which a batch policy may cut anew, with
the hand-out of shards, and with the feeder, which fetches ahead along them. Nothing here knows models or
other workers.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from elastane.core.batching import check_policy_samples
from elastane.core.data_order import DataOrder
from elastane.core.handout import Counts, Goal
from elastane.model.errors import ConfigError
from elastane.model.topology import VrankRange
from elastane.worker.batching import Batching
from elastane.worker.feeder import BatchFeeder
from elastane.worker.handing import UNKNOWN_SAMPLES, Handing
from elastane.worker.position import Position
from elastane.worker.scouts import Scouts


class Course:
    """Follow one job's way through its data.

    Args:
        batching: the batch policy's part; None for a fixed number of virtual workers.
    """

    def __init__(self, batching: Batching | None) -> None:
        self.position = Position()
        self.batching = batching
        self._data: tuple[BatchFeeder, DataOrder] | None = None
        self._handing: Handing | None = None
        self._scouts: Scouts | None = None

    def feed_from(self, feeder: BatchFeeder, order: DataOrder) -> None:
        """Take the training data. Raise ConfigError if there are some already."""
        if self._data is not None:
            raise ConfigError("job.loader was called twice; a job trains on one loader, made before the loop")
        self._data = (feeder, order)

    def hand_out(self, handing: Handing, scouts: Scouts) -> None:
        """Take what says who reads which shard, where they are handed out, and who looks ahead in them."""
        self._handing, self._scouts = handing, scouts
        handing.enter(self.order, 0, 0)

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
        samples = order.samples
        if self._handing is not None and samples == UNKNOWN_SAMPLES:
            samples = self._handing.estimate_samples()
        return (epochs - position.epoch) * samples - order.before(position.epoch, position.epoch_step)

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
        epoch, step = self.position.epoch, self.position.epoch_step
        if self._handing is None:
            cut = self.batching.cut(order, epoch, step, virtual_workers)
        else:
            # Whatever was fetched ahead, and found, was so by what this worker did before it came here.
            self._handing.forget()
            sized = replace(order, samples=self._handing.samples)
            cut = self.batching.cut(sized, epoch, step, virtual_workers)
            self._handing.enter(cut, epoch, step)
        if cut is not order:
            self._data = (feeder, cut)
            feeder.recut(cut)

    # --- where shards are handed out ------------------------------------------------------------------

    def find_goals(self, vranks: VrankRange) -> tuple[Goal, ...] | None:
        """Return where `vranks` must look ahead before the step that is due can begin; None: nobody must."""
        goals = self._handing.find_goals() if self._handing is not None else None
        if goals is None:
            return None
        return tuple(goal for own in goals[vranks.start : vranks.stop] for goal in own)

    def look_ahead(self, goals: Sequence[Goal]) -> list[tuple[int, int, bool]]:
        """Return (shard, samples, whether that is all of it) for as many goals as are needed now."""
        assert self._scouts is not None
        assert self._handing is not None
        return self._scouts.look(goals, self._handing.wanted)

    def learn(self, found: Sequence[tuple[int, int, bool]]) -> None:
        """Take note of what all workers found.

        Raises:
            ShardError: two of them read different data.
            ConfigError: by now it is known that the data set is shorter than a step.
        """
        assert self._handing is not None
        assert self.batching is not None
        self._handing.learn(found)
        feeder, order = self._known_data()
        if self._handing.samples != order.samples:
            check_policy_samples(self.batching.policy, self._handing.samples)
            order = replace(order, samples=self._handing.samples)
            self._data = (feeder, order)
            self._handing.resize(order)
            feeder.resize(order)

    def count_shards(self) -> Counts | None:
        """Count the shards as they are after the step that is due; None if none are handed out."""
        return self._handing.count_after() if self._handing is not None else None

    def fetch_rehearsal(self) -> Any:
        """Return the batch with which a worker that joins rehearses a step, by what it finds for itself."""
        feeder, order = self._known_data()
        if self._handing is None:
            return feeder.fetch(0, 0, 0)
        # As if it were alone and its part the whole step: it need not know where the others would read.
        part = len(order.positions(0, 0, 0))
        self._recut(replace(order, virtual_workers=1, batch_size=part, global_batch=part))
        while (goals := self.find_goals(VrankRange(0, 1))) is not None:
            self.learn(self.look_ahead(goals))
        batch = feeder.fetch(0, 0, 0)
        self._handing.forget()
        self._recut(order)
        return batch

    def _recut(self, order: DataOrder) -> None:
        """Cut the data in another way from the first step on."""
        feeder, _ = self._known_data()
        self._data = (feeder, order)
        feeder.recut(order)
        if self._handing is not None:
            self._handing.enter(order, 0, 0)

    def close(self) -> None:
        """End the data-loading processes, close what is open."""
        self.feeder.close()
        if self._scouts is not None:
            self._scouts.close()

    # --- from step to step ----------------------------------------------------------------------------

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
        if self._handing is not None:
            self._handing.advance()

    def begin_epoch(self) -> None:
        """Go on to the first step of the next epoch."""
        self.position.epoch += 1
        self.position.epoch_step = 0
        if self.batching is not None:
            self.batching.begin_epoch()
        if self._handing is not None:
            self._handing.begin_epoch()
