"""Which samples virtual worker r trains in step s of an epoch: arithmetic over the epoch's permutation.

A full step takes the next B samples of the permutation; of these, virtual worker r takes every N-th,
beginning with the r-th. For N fixed virtual workers with b samples each, B = N * b, that is the order of
torch's DistributedSampler with N replicas followed by a batch sampler. Where N and B follow the workers
(see `batching`) each generation cuts the rest of the epoch into steps anew. The permutation itself is made
by the caller (it needs torch); it is a function of (seed, epoch) alone.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from elastane.model.errors import ConfigError


class Tail(StrEnum):
    """Say what happens to the samples that do not fill the last step of an epoch."""

    EXACT = "exact"
    """Every sample once per epoch; short batches are weighted by their sample counts."""
    DROP = "drop"
    """The incomplete last step is left out."""
    PAD = "pad"
    """DistributedSampler's way: the first samples again until all virtual workers have equally many."""


class Place(NamedTuple):
    """Name a place in the data: a step of an epoch, and how many samples of that epoch come before it."""

    epoch: int
    step: int
    trained: int


BEGINNING = Place(0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataOrder:
    """Tell the positions of every batch of an epoch.

    Attributes:
        samples: length of the data set.
        virtual_workers: N.
        batch_size: samples per virtual worker and step (nominal: the largest part of a full step).
        tail: what happens at the end of the epoch.
        global_batch: B, samples of a full step; 0 = N times batch_size.
        since: the place from which on steps are cut like this. Earlier steps of its epoch are not asked for;
            later epochs are cut from their beginning.
    """

    samples: int
    virtual_workers: int
    batch_size: int
    tail: Tail = Tail.EXACT
    global_batch: int = 0
    since: Place = BEGINNING
    _positions: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.virtual_workers < 1:
            raise ConfigError(f"virtual_workers is {self.virtual_workers}; a job needs at least 1")
        if self.batch_size < 1:
            raise ConfigError(
                f"batch_size is {self.batch_size}; it is the number of samples per virtual worker and step, "
                "at least 1"
            )
        if self.global_batch == 0:
            object.__setattr__(self, "global_batch", self.batch_size * self.virtual_workers)
        needed = self.global_batch if self.tail is Tail.DROP else self.virtual_workers
        if self.samples < needed:
            raise ConfigError(
                f"the data set has {self.samples} samples, shorter than one step: "
                f"{self.virtual_workers} virtual workers x batch_size {self.batch_size} = "
                f"{self.global_batch} samples, and tail={self.tail.value!r} needs at least {needed}; "
                "use fewer virtual workers, a smaller batch_size or more data"
            )
        object.__setattr__(self, "_positions", self._count_positions())

    def _count_positions(self) -> int:
        # How many positions an epoch has, repeated samples counted.
        if self.tail is not Tail.PAD:
            return self.samples
        return -(-self.samples // self.virtual_workers) * self.virtual_workers

    @property
    def steps_per_epoch(self) -> int:
        """Return the number of steps in an epoch that is cut from its beginning."""
        return self._fill(self._positions)

    def steps_in(self, epoch: int) -> int:
        """Return the number of steps in `epoch`, those before `since` counted."""
        since = self.since
        if epoch != since.epoch:
            return self._fill(self._positions)
        return since.step + self._fill(self._positions - since.trained)

    def before(self, epoch: int, step: int) -> int:
        """Return how many positions of `epoch` come before `step`."""
        since = self.since
        if epoch != since.epoch:
            return step * self.global_batch
        return since.trained + (step - since.step) * self.global_batch

    def positions(self, epoch: int, step: int, vrank: int) -> range:
        """Return the positions, in the epoch's permutation, of the batch of `vrank` in `step` of the epoch.

        Positions at or beyond `samples` (tail "pad") repeat the permutation from its start: take them
        modulo `samples`. The range is empty where a virtual worker has no sample left in the last step.
        """
        first = self.before(epoch, step)
        stop = min(first + self.global_batch, self._positions)
        return range(first + vrank, max(first + vrank, stop), self.virtual_workers)

    def step_samples(self, epoch: int, step: int) -> int:
        """Return the number of samples that all virtual workers train together in `step` of the epoch."""
        return min(self.global_batch, self._positions - self.before(epoch, step))

    def _fill(self, positions: int) -> int:
        if self.tail is Tail.DROP:
            return positions // self.global_batch
        return -(-positions // self.global_batch)
