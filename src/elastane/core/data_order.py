"""Which samples virtual worker r trains in step s of an epoch: arithmetic, no cursor.

The order is that of torch's DistributedSampler with N replicas followed by a batch sampler: position
i of virtual worker r is position r + i * N of the epoch's permutation. The permutation itself is made
by the caller (it needs torch); it is a function of (seed, epoch) alone.
"""

from dataclasses import dataclass
from enum import StrEnum

from elastane.model.errors import ConfigError


class Tail(StrEnum):
    """Say what happens to the samples that do not fill the last step of an epoch."""

    EXACT = "exact"
    """Every sample once per epoch; short batches are weighted by their sample counts."""
    DROP = "drop"
    """The incomplete last step is left out."""
    PAD = "pad"
    """DistributedSampler's way: the first samples again until all virtual workers have equally many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataOrder:
    """Tell the positions of every batch of an epoch.

    Attributes:
        samples: length of the data set.
        virtual_workers: N.
        batch_size: samples per virtual worker and step (nominal).
        tail: what happens at the end of the epoch.
    """

    samples: int
    virtual_workers: int
    batch_size: int
    tail: Tail = Tail.EXACT

    def __post_init__(self) -> None:
        if self.virtual_workers < 1:
            raise ConfigError(f"virtual_workers is {self.virtual_workers}; a job needs at least 1")
        if self.batch_size < 1:
            raise ConfigError(
                f"batch_size is {self.batch_size}; it is the number of samples per virtual worker and step, "
                "at least 1"
            )
        step_samples = self.batch_size * self.virtual_workers
        needed = step_samples if self.tail is Tail.DROP else self.virtual_workers
        if self.samples < needed:
            raise ConfigError(
                f"the data set has {self.samples} samples, shorter than one step: "
                f"{self.virtual_workers} virtual workers x batch_size {self.batch_size} = {step_samples} "
                f"samples, and tail={self.tail.value!r} needs at least {needed}; "
                "use fewer virtual workers, a smaller batch_size or more data"
            )

    @property
    def padded_samples(self) -> int:
        """Return how many positions an epoch has, repeated samples counted."""
        if self.tail is not Tail.PAD:
            return self.samples
        return -(-self.samples // self.virtual_workers) * self.virtual_workers

    @property
    def steps_per_epoch(self) -> int:
        """Return the number of steps in an epoch."""
        per_step = self.virtual_workers * self.batch_size
        if self.tail is Tail.DROP:
            return self.samples // per_step
        return -(-self.padded_samples // per_step)

    def positions(self, step: int, vrank: int) -> range:
        """Return the positions, in the epoch's permutation, of the batch of `vrank` in `step` of the epoch.

        Positions at or beyond `samples` (tail "pad") repeat the permutation from its start: take them
        modulo `samples`. The range is empty where a virtual worker has no sample left in the last step.
        """
        first = vrank + step * self.batch_size * self.virtual_workers
        stop = min(first + self.batch_size * self.virtual_workers, self.padded_samples)
        return range(first, max(first, stop), self.virtual_workers)

    def step_samples(self, step: int) -> int:
        """Return the number of samples that all virtual workers train together in `step` of the epoch."""
        per_step = self.virtual_workers * self.batch_size
        return min(per_step, self.padded_samples - step * per_step)
