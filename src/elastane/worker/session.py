"""How a training loop meets the rest of its job: alone, or as a worker of an elastic job.

`Trainer` calls a session at step boundaries and around commits; `SoloSession` answers at once, an
`ElasticSession` may switch generations, move state, send the worker away or ask to repeat a step.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from elastane.core.checkpoints import ShareNote
from elastane.model.topology import VrankRange
from elastane.observe.metrics import MetricsLog, MetricsRecord
from elastane.worker.courier import Courier
from elastane.worker.state import JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class Seating:
    """Tell a trainer its part in a generation.

    Attributes:
        generation: number of the generation; 0 when alone.
        ranges: virtual workers of all members, in topology order.
        own: this worker's position in `ranges`.
        courier: over which members exchange tensors; None for a lone member.
    """

    generation: int
    ranges: tuple[VrankRange, ...]
    own: int
    courier: Courier | None

    @property
    def vranks(self) -> VrankRange:
        """Return this worker's virtual workers."""
        return self.ranges[self.own]

    @property
    def virtual_workers(self) -> int:
        """Return N of the generation."""
        return self.ranges[-1].stop

    @property
    def is_main(self) -> bool:
        """Tell whether this worker owns virtual worker 0."""
        return self.vranks.start == 0


class Training(Protocol):
    """Be what a session needs of a trainer."""

    @property
    def virtual_workers(self) -> int:
        """Return N; under a batch policy, where N is the number of workers, the largest that it can be."""
        ...

    @property
    def batch(self) -> str:
        """Return the batch policy in words; "" if N is fixed."""
        ...

    @property
    def state(self) -> JobState:
        """Return the replicated state."""
        ...

    @property
    def remaining_samples(self) -> int:
        """Return how many samples are still to be trained."""
        ...

    def check_workers(self, workers: int) -> None:
        """Raise ConfigError unless so many workers can share a step."""
        ...

    def take_seat(self, seating: Seating) -> None:
        """Train from now on as `seating` says, from the state as it is now."""
        ...

    def pack_gap(self) -> bytes:
        """Return what must be told, with the state, of what was gathered since the last step."""
        ...

    def take_gap(self, packed: bytes) -> None:
        """Take what another worker's `pack_gap` told; the state is that worker's already."""
        ...

    def warm_up(self) -> str:
        """Run a batch whose results are thrown away; return why it could not be done, or ""."""
        ...


class Session(Protocol):
    """Be the rest of the job to one training loop."""

    @property
    def joining(self) -> bool:
        """Tell whether this worker joins a job that trains already."""
        ...

    def begin(self, training: Training) -> None:
        """Take part; returns when the first step may begin. Raises Left."""
        ...

    def pass_boundary(self) -> None:
        """Return when the step after `state.step` steps may begin, in whatever generation. Raises Left."""
        ...

    def hold_back(self, took_s: float) -> float:
        """Wait as a drill asks of this worker after it computed for `took_s`; return for how long."""
        ...

    def begin_commit(self) -> bool:
        """Tell whether the step in flight may be committed; if not it is dropped and repeated."""
        ...

    def begin_gather(self) -> bool:
        """Tell whether a gathering between two steps may begin; if not, pass the boundary first."""
        ...

    def end_gather(self) -> None:
        """Take note that this worker has what all members gave to the gathering."""
        ...

    def check_lease(self) -> None:
        """Raise Left if others may think this worker gone."""
        ...

    def note_checkpoint(self, step: int) -> ShareNote | None:
        """Return what to tell the others about checkpoints with the step that leads to `step`."""
        ...

    def end_commit(self, record: MetricsRecord, notes: Sequence[ShareNote | None]) -> None:
        """Take note of a committed step, and of what all members told about checkpoints, in their order."""
        ...

    def note_compute(self, seconds: Sequence[float]) -> None:
        """Take note of each member's own compute time per virtual worker in the committed step.

        In topology order; empty if the step's times say nothing of the workers.
        """
        ...

    def abort_commit(self, why: str) -> None:
        """Take note that a peer was lost before the step could be committed."""
        ...

    def note_exchange(self, what: str, moved_bytes: int) -> None:
        """Take note of the data of its peers for which the training thread is going to wait."""
        ...

    def note_run(self, what: str) -> None:
        """Take note that the training thread goes on by itself."""
        ...

    def finish(self) -> None:
        """Take note that training has come to its end."""
        ...


class SoloSession:
    """Run all virtual workers in this process: the reference that every placement must equal."""

    joining = False

    def __init__(self, virtual_workers: int, metrics_directory: Path | None) -> None:
        self._virtual_workers = virtual_workers
        self._metrics: MetricsLog | None = None
        if metrics_directory is not None:
            metrics_directory.mkdir(parents=True, exist_ok=True)
            self._metrics = MetricsLog(metrics_directory)

    def begin(self, training: Training) -> None:
        """Seat all virtual workers here."""
        whole = VrankRange(0, self._virtual_workers)
        training.take_seat(Seating(generation=0, ranges=(whole,), own=0, courier=None))

    def pass_boundary(self) -> None:
        """Go on: there is nobody to wait for."""

    def hold_back(self, took_s: float) -> float:
        """Go on: nobody holds drills on a lone script."""
        return 0.0

    def begin_commit(self) -> bool:
        """Agree: there is nobody to lose."""
        return True

    def begin_gather(self) -> bool:
        """Agree: there is nobody to lose."""
        return True

    def end_gather(self) -> None:
        """Go on."""

    def check_lease(self) -> None:
        """Go on: there is no lease."""

    def note_checkpoint(self, step: int) -> None:
        """Say nothing: a lone script saves what it wants itself."""

    def end_commit(self, record: MetricsRecord, notes: Sequence[ShareNote | None]) -> None:
        """Write the step down."""
        if self._metrics is not None:
            self._metrics.append(record)

    def note_compute(self, seconds: Sequence[float]) -> None:
        """Go on: nobody is slower than a lone worker."""

    def abort_commit(self, why: str) -> None:
        """Never be called: a lone worker has no peers."""
        raise AssertionError(why)

    def note_exchange(self, what: str, moved_bytes: int) -> None:
        """Go on: nobody keeps anybody waiting."""

    def note_run(self, what: str) -> None:
        """Go on."""

    def finish(self) -> None:
        """Close the metrics."""
        if self._metrics is not None:
            self._metrics.close()
