"""The records of a job in the coordination store, and their keys.

Everything is msgspec: no pickle crosses a process boundary. A record is written by one party only:
see `docs/protocol.md` for who writes what.
"""

from enum import StrEnum

import msgspec

from elastane.model.ids import DeviceId, JobId, NodeId, WorkerId


class JobPhase(StrEnum):
    """Say where a job is in its life."""

    STARTING = "starting"
    TRAINING = "training"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def ended(self) -> bool:
        """Tell whether the job will never train again under this run."""
        return self in (JobPhase.FINISHED, JobPhase.STOPPED, JobPhase.FAILED)


class Leave(StrEnum):
    """Say how a worker that is to leave goes."""

    NOW = "now"
    """At the next possible boundary, whether or not somebody takes its place."""
    SWAP = "swap"
    """At the boundary at which its replacement comes in."""


class Recovery(StrEnum):
    """Say what becomes of a job that has lost a worker."""

    EXACT = "exact"
    """The others go on from where they are; nothing but the step in flight is repeated."""
    CHECKPOINT = "checkpoint"
    """All begin anew from the newest checkpoint (EDL's consistent recovery)."""


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what users and schedulers want of a job. Whoever changes it compares and swaps."""

    wanted: int
    """Number of workers to run."""
    minimum: int = 1
    """Fewest workers to start with when not all that are wanted have come."""
    leaving: dict[WorkerId, Leave] = {}
    """Workers that are to go. Ids are never used again, so old entries do no harm."""
    targets: tuple[DeviceId, ...] = ()
    """Devices on which the next workers are to be started, before any other."""
    nodes: int = 1
    """Over how many nodes the workers are spread while there is a choice; the first start waits for so
    many."""
    vacating: tuple[NodeId, ...] = ()
    """Nodes that leave the job: no worker is started there. One that comes back takes its name out."""
    stop: bool = False
    """Leave together at the next boundary and save the state."""
    abort: bool = False
    """End at once; what was not saved is lost."""
    recovery: Recovery = Recovery.EXACT
    speeds: dict[WorkerId, float] = {}
    """Measured virtual workers per second, by which virtual workers are placed; {} = all are equally fast."""


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what became of a job."""

    phase: JobPhase
    message: str = ""
    worker: WorkerId | None = None
    """The worker that reported the end, if one did."""
    earlier_generations: int = 0
    """Generations of the job's earlier runs, before it was stopped and resumed."""
    step: int = 0
    """Steps committed when it ended; 0 if who wrote this does not know."""
    node: NodeId = NodeId("")
    """The node of that worker: `saved` may be a folder that only this node sees."""
    saved: str | None = None
    """Folder of the state that was saved at its end; None if none was."""
    digest: str | None = None
    """sha256 of the final state; None unless the training has finished."""


class JobInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what is fixed when a job is created."""

    job: JobId
    name: str
    script: str
    arguments: tuple[str, ...] = ()
    directory: str
    """Folder of the job's event log, metrics, worker logs and saved state."""
    created_at_s: float
    """Wall clock, seconds since the epoch; shown to people, never compared between machines."""
    node: NodeId = NodeId("")
    """The node on which the job was made and `directory` lies; "" if not known."""
    script_sha256: str = ""
    """Of the script when the job was made: what other nodes run must be the same."""


class CheckpointPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Say how often a job takes checkpoints, and where they go.

    The default is EDL's ten minutes. Its other bound, 1,000 steps, is left out: they are seconds of a small
    model and hours of a large one, and what a loss of everybody costs is time.
    """

    every_steps: int | None = None
    """After every so many steps; with `every_s` too, whichever comes first."""
    every_s: float | None = 600.0
    """So long after the one before."""
    url: str = ""
    """Where to; empty for the job's own folder."""
    keep: int = 2
    """How many good ones are kept: the newest, and one to fall back on should it be found damaged."""


class ProfilePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Say with which numbers of workers a job is measured, one after another, before it is ended."""

    allocations: tuple[int, ...]
    """The largest, with which the job starts, first: scale-ins stop nobody."""
    steps: int
    """Steps that count, with each."""
    skipped_steps: int = 3
    """First steps of a generation that do not: the switch and its after-effects lie in them."""


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """Hold how a job's workers are run: the same on every node, and again when the job is resumed."""

    virtual_workers: int | None = None
    """N when the command line overrides the script's."""
    threads: int = 1
    """Threads per operation of each worker: it decides how sums are split, and so the bits."""
    grace_s: float = 30.0
    """How long a graceful stop may take until all stand at one step; saving may take as long as it takes."""
    lease_s: float = 3.0
    """Silence that counts as a worker's death."""
    orphan_grace_s: float = 60.0
    """How long workers train on when nobody looks after them any more."""
    step_timeout_s: float = 600.0
    """How long one worker may keep all others waiting."""
    cold: bool = False
    """Start each worker anew, not from a prepared process."""
    autoscale: str = ""
    """How the number of workers is chosen while the job trains; "" = only people and schedulers change it."""
    stragglers: str = "off"
    """What is done about slow workers: off, rebalance, replace, evict or auto."""
    checkpoints: CheckpointPlan = CheckpointPlan()
    profile: ProfilePlan | None = None
    """How the job is measured, if it is there for nothing else."""
    failures: tuple[int, int, int] = (3, 10, 100)
    """Failures in a row on one device, without progress, that end the job: of the script, of the machine, and
    workers asked to leave."""


class WorkerPhase(StrEnum):
    """Say where a worker is in its life."""

    PREPARING = "preparing"
    READY = "ready"
    TRAINING = "training"
    FINISHED = "finished"


class ActivityKind(StrEnum):
    """Say what the training thread of a worker does."""

    RUNS = "runs"
    """The script, the data loading, or its own part of a step: nobody else is needed for it to go on."""
    EXCHANGES = "exchanges"
    """It waits for data of its peers."""
    STANDS = "stands"
    """It stands at a boundary until something is decided."""


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """Say what the training thread of a worker has been doing for a while."""

    kind: ActivityKind
    what: str = ""
    """In plain words, for people."""
    serial: int = 0
    """Differs between two activities of one worker, so that two alike are told apart."""


class MemberRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what a worker says of itself, under its lease: the record is gone when the worker is."""

    worker: WorkerId
    node: NodeId
    device: DeviceId
    pid: int
    phase: WorkerPhase
    virtual_workers: int = 0
    """N of its job object; 0 until the script has made one."""
    generation: int = 0
    """The generation it has entered; 0 = none."""
    committed_step: int = 0
    """Steps committed so far (refreshed with the lease, so up to a second old)."""
    step_time_s: float = 0.0
    broken: int = 0
    """The newest generation whose link it found broken; 0 = none."""
    restored_after: int = 0
    """The generation after whose loss it has loaded the newest checkpoint; 0 = none."""
    activity: Activity | None = None
    """What its training thread has been doing for a while already; None as long as it goes on and on."""


class Connected(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Say that the link of the proposed generation stands.

    `halted_at` is the number of steps the worker has committed and will not exceed in its old
    generation; None from a worker without the job's state, and from members in a planned change.
    """

    halted_at: int | None = None
    gathered: int = 0
    """Gatherings (of an evaluation's results) that it has been through since that step, final likewise."""


class Promised(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Say that the worker will not begin `step` before it has seen the proposal committed or gone."""

    step: int


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Say that the worker had already begun step `at` when it was asked to stop before it."""

    at: int


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Say that the link of the proposed generation could not be built."""

    why: str


Ack = Connected | Promised | Refused | Failed


class ExitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Hold how a worker process ended; written by the agent of its node: the fastest death notice."""

    worker: WorkerId
    code: int | None
    """Exit code; -N if signal N ended the process, as in `subprocess`; None if nobody was there to see it."""


class Dismissal(msgspec.Struct, frozen=True, kw_only=True):
    """Tell a worker that the job goes on without it."""

    reason: str
    unreachable: bool = False
    """It could not be connected to the others: a fault of its machine or cable, so that its device rests."""


class Slowdown(msgspec.Struct, frozen=True, kw_only=True):
    """Ask a worker to be slow for a while, as a drill: written under the lease of whoever holds the drill.

    The record is gone when that one is, and the worker heeds it no longer than `for_s` in any case.
    """

    factor: float
    """How many times as long its computing takes; above 1."""
    for_s: float
    """How long, from when the worker sees it first."""
    drill: str
    """Differs between two drills, so that the second is not taken for the rest of the first."""


class ModelSignature(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what all workers' models and optimizers must have in common."""

    virtual_workers: int
    """N; under a batch policy, where N is the number of workers, the largest that it can be."""
    batch: str = ""
    """The batch policy in words; "" for a fixed number of virtual workers."""
    entries: tuple[tuple[str, str], ...]
    """(name, description), for example ("conv.weight", "float32 [16, 1, 3, 3]")."""


class AgentRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what an agent says of itself, under its lease."""

    node: NodeId
    pid: int
    devices: tuple[DeviceId, ...]
    born: str = ""
    """What tells its process from a later one of the same number; "" if not known."""
    address: str = ""
    """Under which the workers of other nodes reach those of this one."""
    directory: str = ""
    """Where the workers of this node leave their events, metrics and logs."""


class Post(msgspec.Struct, frozen=True, kw_only=True):
    """Hold where a node's agent runs one worker."""

    device: DeviceId
    pid: int = 0
    """0 while the process is being made."""
    born: str = ""
    """What tells its process from a later one of the same number."""
    registered: bool = False
    """Its member record has been seen: from then on that record tells whether it takes part."""


class DeviceFailures(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what went wrong on one device, for the next agent of its node."""

    in_a_row: int
    since_progress: dict[str, int] = {}
    """Kind of failure -> how many of it since the job last made progress."""


class Roster(msgspec.Struct, frozen=True, kw_only=True):
    """Hold which workers a node's agent runs and what it knows of its devices.

    The agents of a job see in it which vacancies are being filled; the next agent of the node takes over
    from it.
    It counts only while an agent lives there.
    """

    node: NodeId
    posts: dict[WorkerId, Post] = {}
    resting: tuple[DeviceId, ...] = ()
    """Devices that are left alone for a while after failures."""
    failures: dict[DeviceId, DeviceFailures] = {}


class JobKeys:
    """Spell the keys of one job."""

    __slots__ = ("prefix",)

    def __init__(self, job: JobId) -> None:
        self.prefix = f"jobs/{job}/"

    @property
    def info(self) -> str:
        """Key of the `JobInfo`; written once, by whoever creates the job."""
        return self.prefix + "info"

    @property
    def launch(self) -> str:
        """Key of the `Launch`."""
        return self.prefix + "launch"

    @property
    def spec(self) -> str:
        """Key of the `Spec`."""
        return self.prefix + "spec"

    @property
    def status(self) -> str:
        """Key of the `JobStatus`."""
        return self.prefix + "status"

    @property
    def signature(self) -> str:
        """Key of the `ModelSignature`; the first worker that is ready writes it, the others compare."""
        return self.prefix + "signature"

    @property
    def leader(self) -> str:
        """Key of the leader's worker id, under its lease."""
        return self.prefix + "leader"

    @property
    def current(self) -> str:
        """Key of the committed `Topology`; guarded by the leader key."""
        return self.prefix + "topology/current"

    @property
    def proposal(self) -> str:
        """Key of the proposed `Topology`; guarded by the leader key."""
        return self.prefix + "topology/next"

    @property
    def acks(self) -> str:
        """Prefix of all acknowledgements."""
        return self.prefix + "acks/"

    def ack(self, generation: int, attempt: int, worker: WorkerId) -> str:
        """Key of the newest `Ack` of a worker to a proposal."""
        return f"{self.acks}{generation}.{attempt}/{worker}"

    def member(self, worker: WorkerId) -> str:
        """Key of a `MemberRecord`."""
        return f"{self.prefix}members/{worker}"

    def exit(self, worker: WorkerId) -> str:
        """Key of an `ExitRecord`."""
        return f"{self.prefix}exits/{worker}"

    def dismissal(self, worker: WorkerId) -> str:
        """Key of a `Dismissal`; guarded by the leader key."""
        return f"{self.prefix}dismissed/{worker}"

    def slowdown(self, worker: WorkerId) -> str:
        """Key of a `Slowdown`; under the lease of whoever holds the drill."""
        return f"{self.prefix}slowdowns/{worker}"

    def agent(self, node: NodeId) -> str:
        """Key of an `AgentRecord`: a job's agents are seen, watched and deleted with it."""
        return f"{self.prefix}agents/{node}"

    def roster(self, node: NodeId) -> str:
        """Key of a `Roster`."""
        return f"{self.prefix}rosters/{node}"

    @property
    def claims(self) -> str:
        """Key of the number of worker ids given out so far; who gives out some compares and swaps it."""
        return self.prefix + "workers_so_far"

    def rendezvous(self, generation: int, attempt: int) -> str:
        """Prefix under which the peers of a proposed generation exchange addresses."""
        return f"{self.prefix}rendezvous/{generation}.{attempt}/"

    @property
    def all_rendezvous(self) -> str:
        """Prefix of all exchanged addresses."""
        return self.prefix + "rendezvous/"


JOBS_PREFIX = "jobs/"
