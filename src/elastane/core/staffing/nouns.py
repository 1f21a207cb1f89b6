"""The nouns of staffing: what an agent knows of its node, and what it is told to do."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from elastane.model.ids import DeviceId, NodeId, WorkerId
from elastane.model.records import JobStatus, WorkerPhase


class FailureKind(StrEnum):
    """Say whose fault it is that a worker ended too early. Each kind has a budget of its own."""

    SCRIPT = "script"
    """The user's script raised, or ended without having trained."""
    MACHINE = "machine"
    """A signal killed it (out of memory, a crash in native code), it was cut off from the store, it could not
    be started, or it ended while nobody watched."""
    PREEMPTION = "preemption"
    """It was asked to leave from outside: its device was taken away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureLimits:
    """Hold how many failures of each kind in a row on one device, without progress of the job, end the job.

    A script that raises will raise again: few tries (torchelastic: 3). Machines recover, with growing pauses
    between the tries: ten of them take two minutes. Who is asked to leave did nothing wrong: only an endless
    loop is to be ended.
    """

    script: int = 3
    machine: int = 10
    preemption: int = 100

    def of(self, kind: FailureKind) -> int:
        """Return the limit of one kind."""
        limits = {
            FailureKind.SCRIPT: self.script,
            FailureKind.MACHINE: self.machine,
            FailureKind.PREEMPTION: self.preemption,
        }
        return limits[kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class StaffingSettings:
    """Hold the constants of staffing."""

    first_back_off_s: float = 0.5
    """Rest of a device after its second failure in a row (the first costs none); doubles each time. Half a
    second is about what a worker needs to start, so a broken script does not load the machine."""
    longest_back_off_s: float = 60.0
    """Longest rest of a device: it is never given up for good (Horovod's blacklist was, to users' grief)."""
    settled_s: float = 60.0
    """A worker that lived this long proves its device: the next failure counts as the first again."""
    limits: FailureLimits = FailureLimits()
    """What ends the job."""
    register_timeout_s: float = 180.0
    """How long a process may run before it registers: imports on a cold, busy network disk take minutes."""
    lost_grace_s: float = 2.0
    """How long a process whose lease is lost may take to end itself."""
    frozen_limit_s: float = 3.0
    """How long a process may be stopped by a signal: for as long as its lease lives without it."""
    dismissed_grace_s: float = 5.0
    """How long a dismissed worker may take to end itself."""
    ended_grace_s: float = 20.0
    """How long workers may go on after the job has ended well without them, for their `finally` blocks."""
    failed_grace_s: float = 1.0
    """How long workers may go on after the job has failed, or has ended before they took part."""
    kill_grace_s: float = 5.0
    """Time between SIGTERM and SIGKILL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerProcess:
    """Describe one worker process of this node, as its agent has seen it. Times are monotonic seconds."""

    worker: WorkerId
    device: DeviceId
    started_at_s: float
    pid: int = 0
    """0 while it is being made."""
    born: str = ""
    """What tells it from a later process of the same number."""
    last_phase: WorkerPhase | None = None
    """The newest phase its member record showed; None while it has not registered."""
    lost_at_s: float | None = None
    """Since when its member record is gone; None while it is there or has not come yet."""
    frozen_at_s: float | None = None
    """Since when a signal has stopped it (SIGSTOP); None while it can run."""
    dismissed_at_s: float | None = None
    """Since when the leader has dismissed it."""
    unreachable: bool = False
    """It was dismissed because the others could not reach it."""
    terminated_at_s: float | None = None
    """When it was sent SIGTERM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHistory:
    """Count what went wrong on one device."""

    failures: int = 0
    """Failures in a row, without a worker that settled between them."""
    since_progress: Mapping[FailureKind, int] = field(default_factory=dict)
    """Failures of each kind since the job last made progress."""
    last_failure_at_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """Hold all that an agent knows of its own node."""

    node: NodeId
    devices: tuple[DeviceId, ...]
    processes: Mapping[WorkerId, WorkerProcess] = field(default_factory=dict)
    history: Mapping[DeviceId, DeviceHistory] = field(default_factory=dict)
    finished: bool = False
    """A worker of this node came to the end of its script."""
    ended_at_s: float | None = None
    """Since when the job has ended."""
    first_failures: Mapping[FailureKind, str] = field(default_factory=dict)
    """What the first failed worker of each kind left in its log, for the report."""


class Force(StrEnum):
    """Say how a process is ended."""

    TERMINATE = "terminate"
    KILL = "kill"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Start a worker on `device`."""

    device: DeviceId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """End the process of `worker`."""

    worker: WorkerId
    force: Force
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StaffingPlan:
    """Say what an agent should do now."""

    starts: tuple[Start, ...] = ()
    ends: tuple[End, ...] = ()
    status: JobStatus | None = None
    """How the job ends, if it does and nobody else can say so."""
    served: tuple[DeviceId, ...] = ()
    """Wishes for devices that are fulfilled, or of no use any more."""
    waiting: str = ""
    """For what a missing worker waits; empty if none is missing."""
    wake_at_s: float | None = None
    """When to plan again even if nothing happens."""
