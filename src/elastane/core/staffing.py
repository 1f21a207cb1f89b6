"""Decide which worker processes a node should start and which it should end.

Level-triggered: from what the job wants, who is there, and which processes this node runs, comes what is
missing and what is too much. A crash of the agent, a lost exit notice or a changed mind of the user needs no
path of its own: the next look closes the difference.

Theory of operation. *Counted* are living members that are not leaving, and own processes that have not
registered yet. Fewer than needed: start on free devices, wished ones first, then those that failed least.
More than needed: end those that are not yet part of the training, the youngest first; who leaves the
training itself is the leader's business. A device whose worker failed is left alone for a while that
grows with each failure; a job that fails again and again without progress is ended.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from elastane.core.view import JobView
from elastane.model.ids import DeviceId, NodeId, WorkerId
from elastane.model.records import JobPhase, JobStatus, Leave, MemberRecord, WorkerPhase
from elastane.model.topology import Mode


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
    failure_limit: int = 3
    """Failures in a row on one device, without progress of the job, that end the job (torchelastic: 3)."""
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
    last_phase: WorkerPhase | None = None
    """The newest phase its member record showed; None while it has not registered."""
    lost_at_s: float | None = None
    """Since when its member record is gone; None while it is there or has not come yet."""
    frozen_at_s: float | None = None
    """Since when a signal has stopped it (SIGSTOP); None while it can run."""
    dismissed_at_s: float | None = None
    """Since when the leader has dismissed it."""
    terminated_at_s: float | None = None
    """When it was sent SIGTERM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHistory:
    """Count what went wrong on one device."""

    failures: int = 0
    """Failures in a row, without a worker that settled between them."""
    since_progress: int = 0
    """Failures since the job last made progress."""
    last_failure_at_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """Hold all that an agent knows of its own node."""

    node: NodeId
    devices: tuple[DeviceId, ...]
    processes: Mapping[WorkerId, WorkerProcess] = field(default_factory=dict)
    history: Mapping[DeviceId, DeviceHistory] = field(default_factory=dict)
    other_nodes: frozenset[NodeId] = frozenset()
    """Other nodes whose agents live."""
    finished: bool = False
    """A worker of this node came to the end of its script."""
    ended_at_s: float | None = None
    """Since when the job has ended."""
    first_failure: str = ""
    """What the first failed worker left in its log, for the report."""


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
    waiting: str = ""
    """For what a missing worker waits; empty if none is missing."""
    wake_at_s: float | None = None
    """When to plan again even if nothing happens."""


def plan_staffing(view: JobView, node: NodeState, now_s: float, settings: StaffingSettings) -> StaffingPlan:
    """Compare what the job wants with what this node runs; return what to do about it."""
    ends, deadlines = _plan_ends(view, node, now_s, settings)
    if view.status.phase.ended:
        return StaffingPlan(ends=ends, wake_at_s=_earliest(deadlines, now_s))
    status = _plan_status(view, node, settings)
    if status is not None:
        return StaffingPlan(ends=ends, status=status, wake_at_s=now_s)
    ending = {end.worker for end in ends}
    starts, waiting, rested_at_s = _plan_starts(view, node, ending, now_s, settings)
    return StaffingPlan(
        starts=starts, ends=ends, waiting=waiting, wake_at_s=_earliest([*deadlines, *rested_at_s], now_s)
    )


def compute_needed(view: JobView) -> int:
    """Return how many workers the job should have: as many as wanted, but no more than N."""
    known = view.virtual_workers or max((m.virtual_workers for m in view.members.values()), default=0)
    return min(view.spec.wanted, known) if known else view.spec.wanted


def observe_processes(
    view: JobView, node: NodeState, now_s: float, frozen: Collection[WorkerId] = ()
) -> NodeState:
    """Return the node's state with what the view, and the list of frozen processes, tell written into it."""
    processes = {
        worker: _observe(view, process, now_s, is_frozen=worker in frozen)
        for worker, process in node.processes.items()
    }
    ended_at_s = None
    if view.status.phase.ended:
        ended_at_s = now_s if node.ended_at_s is None else node.ended_at_s
    return replace(node, processes=processes, ended_at_s=ended_at_s)


def observe_progress(node: NodeState) -> NodeState:
    """Return the node's state after a committed step: failures before it no longer end the job."""
    history = {device: replace(past, since_progress=0) for device, past in node.history.items()}
    return replace(node, history=history)


def observe_exit(
    view: JobView, node: NodeState, worker: WorkerId, code: int, now_s: float, settings: StaffingSettings
) -> tuple[NodeState, bool]:
    """Take a process that has ended out of the node's state; tell also whether that was a failure."""
    process = node.processes[worker]
    remaining = {other: kept for other, kept in node.processes.items() if other != worker}
    finished = node.finished or (code == 0 and process.last_phase is WorkerPhase.FINISHED)
    node = replace(node, processes=remaining, finished=finished)
    if not _is_failure(view, process, code):
        return node, False
    past = node.history.get(process.device, DeviceHistory())
    settled = now_s - process.started_at_s >= settings.settled_s
    now_failed = DeviceHistory(
        failures=1 if settled else past.failures + 1,
        since_progress=past.since_progress + 1,
        last_failure_at_s=now_s,
    )
    return replace(node, history={**node.history, process.device: now_failed}), True


def _observe(view: JobView, process: WorkerProcess, now_s: float, *, is_frozen: bool) -> WorkerProcess:
    member = view.members.get(process.worker)
    phase = member.phase if member is not None else process.last_phase
    lost_at_s = process.lost_at_s
    if member is not None or phase is None:
        lost_at_s = None
    elif lost_at_s is None:
        lost_at_s = now_s
    dismissed_at_s = process.dismissed_at_s
    if dismissed_at_s is None and process.worker in view.dismissed:
        dismissed_at_s = now_s
    frozen_at_s = (now_s if process.frozen_at_s is None else process.frozen_at_s) if is_frozen else None
    return replace(
        process,
        last_phase=phase,
        lost_at_s=lost_at_s,
        frozen_at_s=frozen_at_s,
        dismissed_at_s=dismissed_at_s,
    )


def _is_failure(view: JobView, process: WorkerProcess, code: int) -> bool:
    """Tell whether a worker ended that should not have.

    Code 0 is right for a worker that left, was dismissed, or came to the end of its script; it is a failure
    of one that never trained, and of one that the job still counts on.
    """
    asked = (process.terminated_at_s, process.dismissed_at_s) != (None, None)
    if view.status.phase.ended or asked:
        return False
    if code != 0:
        return True
    if process.last_phase is WorkerPhase.FINISHED:
        return False
    trained = process.last_phase is WorkerPhase.TRAINING
    counted_on = view.current is not None and view.current.member(process.worker) is not None
    return counted_on or not trained


# --- ends ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verdict:
    """Say that a process must go, the earliest moment at which it is told so, and why."""

    due_at_s: float
    reason: str
    force: Force = Force.TERMINATE


def _plan_ends(
    view: JobView, node: NodeState, now_s: float, settings: StaffingSettings
) -> tuple[tuple[End, ...], list[float]]:
    surplus = {} if view.status.phase.ended else _find_surplus(view, node, now_s)
    ends: list[End] = []
    deadlines: list[float] = []
    for process in node.processes.values():
        verdict: _Verdict | None
        if process.terminated_at_s is not None:
            verdict = _judge_survivor(process.terminated_at_s, settings)
        else:
            verdict = surplus.get(process.worker) or _judge(view, node, process, settings)
        if verdict is None:
            continue
        if verdict.due_at_s <= now_s:
            ends.append(End(worker=process.worker, force=verdict.force, reason=verdict.reason))
        else:
            deadlines.append(verdict.due_at_s)
    return tuple(ends), deadlines


def _judge_survivor(terminated_at_s: float, settings: StaffingSettings) -> _Verdict:
    return _Verdict(
        due_at_s=terminated_at_s + settings.kill_grace_s,
        reason=f"still there {settings.kill_grace_s:g} s after SIGTERM",
        force=Force.KILL,
    )


def _judge(
    view: JobView, node: NodeState, process: WorkerProcess, settings: StaffingSettings
) -> _Verdict | None:
    """Say whether a process must go for what it is itself; None if it may stay."""
    if node.ended_at_s is not None:
        return _judge_after_end(view.status, process, node.ended_at_s, settings)
    if process.frozen_at_s is not None:
        # It may hold the lock of an embedded store, so its lease's end may never be seen by anybody.
        return _Verdict(
            due_at_s=process.frozen_at_s + settings.frozen_limit_s,
            reason=f"frozen for {settings.frozen_limit_s:g} s, so its lease is lost",
            force=Force.KILL,
        )
    if process.dismissed_at_s is not None:
        return _Verdict(
            due_at_s=process.dismissed_at_s + settings.dismissed_grace_s,
            reason=f"dismissed, and still there after {settings.dismissed_grace_s:g} s",
        )
    if process.lost_at_s is not None:
        return _Verdict(
            due_at_s=process.lost_at_s + settings.lost_grace_s,
            reason=f"its lease was lost {settings.lost_grace_s:g} s ago: the job goes on without it",
        )
    if process.last_phase is None:
        return _Verdict(
            due_at_s=process.started_at_s + settings.register_timeout_s,
            reason=f"did not register within {settings.register_timeout_s:g} s",
        )
    return None


def _judge_after_end(
    status: JobStatus, process: WorkerProcess, ended_at_s: float, settings: StaffingSettings
) -> _Verdict | None:
    if status.phase is JobPhase.FINISHED and process.last_phase is WorkerPhase.FINISHED:
        return (
            None  # it runs what the script does after its loop: a last test, a save; however long that takes
        )
    reason = f"the job has ended ({status.phase.value})"
    outside = process.last_phase in (None, WorkerPhase.PREPARING)
    short = outside or status.phase is JobPhase.FAILED
    grace_s = settings.failed_grace_s if short else settings.ended_grace_s
    return _Verdict(due_at_s=ended_at_s + grace_s, reason=f"{reason} {grace_s:g} s ago")


def _find_surplus(view: JobView, node: NodeState, now_s: float) -> dict[WorkerId, _Verdict]:
    """Return own processes that are not part of the training and that nobody needs."""
    verdicts: dict[WorkerId, _Verdict] = {}
    idle = [p for p in _youngest_first(node) if _can_be_spared(view, p)]
    for process in idle:
        if process.worker in view.spec.leaving:
            verdicts[process.worker] = _Verdict(due_at_s=now_s, reason="asked to leave before it trained")
    too_many = _count_present(view, node, set(verdicts)) - compute_needed(view)
    for process in idle:
        if too_many <= 0:
            break
        if process.worker in verdicts or process.last_phase is WorkerPhase.READY:
            continue
        reason = f"not needed: the job wants {compute_needed(view)} workers and has {too_many} more"
        verdicts[process.worker] = _Verdict(due_at_s=now_s, reason=reason)
        too_many -= 1
    return verdicts


def _can_be_spared(view: JobView, process: WorkerProcess) -> bool:
    """Tell whether a process is in no generation, current or proposed, and has not been told to go."""
    told = (process.terminated_at_s, process.dismissed_at_s, process.lost_at_s) != (None, None, None)
    if told or process.last_phase not in (None, WorkerPhase.PREPARING, WorkerPhase.READY):
        return False
    generations = (view.current, view.proposal)
    return not any(topology and process.worker in topology.peers for topology in generations)


def _youngest_first(node: NodeState) -> list[WorkerProcess]:
    # Those of one moment in the order of their ids: "w9" before "w10".
    order = sorted(node.processes.values(), key=lambda p: (p.started_at_s, len(p.worker), p.worker))
    return order[::-1]


# --- starts ----------------------------------------------------------------------------------------


def _count_present(view: JobView, node: NodeState, ending: Iterable[WorkerId]) -> int:
    """Count the workers that the job has or will have, without those that go."""
    gone = set(ending) | {
        p.worker for p in node.processes.values() if p.terminated_at_s is not None or p.lost_at_s is not None
    }
    members = {worker for worker in view.members if view.alive(worker)}
    unregistered = {p.worker for p in node.processes.values() if p.last_phase is None}
    return len((members | unregistered) - gone - set(view.spec.leaving))


def _plan_starts(
    view: JobView, node: NodeState, ending: set[WorkerId], now_s: float, settings: StaffingSettings
) -> tuple[tuple[Start, ...], str, list[float]]:
    """Return the starts, for what the rest waits, and when devices have rested."""
    missing = compute_needed(view) - _count_present(view, node, ending)
    if missing <= 0 or _is_closing(view, node):
        return (), "", []
    free = _order_free_devices(view, node)
    rests = {device: _compute_rested_at(node.history.get(device), settings) for device in free}
    elsewhere = _count_foreign_targets(view, node)
    fit = [device for device in free if rests[device] <= now_s]
    chosen = fit[: max(missing - elsewhere, 0)]
    starts = tuple(Start(device=device, reason=_explain_start(view, node, device)) for device in chosen)
    left = missing - elsewhere - len(chosen)
    resting = [rests[device] for device in free if rests[device] > now_s]
    if left <= 0:
        return starts, "", []
    if resting:
        waiting = f"{left} workers wait for devices that rest after failures"
    else:
        waiting = f"{left} workers wait for a free device: all {len(node.devices)} of {node.node} are in use"
    return starts, waiting, resting


def _is_closing(view: JobView, node: NodeState) -> bool:
    """Tell whether the job is coming to its end, so that nobody new is needed."""
    stops = [t for t in (view.current, view.proposal) if t is not None and t.mode is Mode.STOP]
    # A stop whose workers were all lost will never be completed: the job needs somebody who says so.
    stopping = view.spec.stop or any(view.alive(worker) for stop in stops for worker in stop.peers)
    return stopping or node.finished or any(m.phase is WorkerPhase.FINISHED for m in view.members.values())


def _order_free_devices(view: JobView, node: NodeState) -> list[DeviceId]:
    """Return the node's free devices: those wished for first, then those that failed least."""
    used = {p.device for p in node.processes.values()} | {
        m.device for m in view.members.values() if m.node == node.node and m.worker not in view.exits
    }
    wishes = _own_targets(view, node)
    free = [device for device in node.devices if device not in used]

    def order(device: DeviceId) -> tuple[int, int, int]:
        wished = wishes.index(device) if device in wishes else len(wishes)
        return wished, node.history.get(device, DeviceHistory()).failures, node.devices.index(device)

    return sorted(free, key=order)


def _own_targets(view: JobView, node: NodeState) -> list[str]:
    """Return the wished devices of this node; a target is "DEVICE" or "NODE/DEVICE"."""
    own = node.node + "/"
    return [t.removeprefix(own) for t in view.spec.targets if "/" not in t or t.startswith(own)]


def _count_foreign_targets(view: JobView, node: NodeState) -> int:
    """Count the wished devices that another living node has to serve."""
    named = [t.rpartition("/")[0] for t in view.spec.targets if "/" in t]
    return sum(1 for name in named if NodeId(name) in node.other_nodes)


def _compute_rested_at(past: DeviceHistory | None, settings: StaffingSettings) -> float:
    """Return when a device may be tried again: at once after one failure, then after 0.5, 1, 2, ... s."""
    if past is None or past.failures < 2:
        return 0.0
    rest_s = settings.first_back_off_s * 2.0 ** min(past.failures - 2, 30)
    return past.last_failure_at_s + min(rest_s, settings.longest_back_off_s)


def _explain_start(view: JobView, node: NodeState, device: DeviceId) -> str:
    swapped = sorted(w for w, how in view.spec.leaving.items() if how is Leave.SWAP and view.alive(w))
    if swapped:
        return f"to take the place of {', '.join(swapped)}"
    if device in _own_targets(view, node):
        return f"the job wants {compute_needed(view)} workers, one of them on this device"
    if node.history.get(device, DeviceHistory()).failures:
        return f"the job wants {compute_needed(view)} workers and one was lost"
    return f"the job wants {compute_needed(view)} workers"


# --- the end of the job ----------------------------------------------------------------------------


def _plan_status(view: JobView, node: NodeState, settings: StaffingSettings) -> JobStatus | None:
    """Return how the job ends if no worker is left that could say it, or if it cannot get anywhere."""
    alive = [member for worker, member in view.members.items() if view.alive(worker)]
    busy = {WorkerPhase.PREPARING, WorkerPhase.TRAINING, WorkerPhase.FINISHED}
    if not alive and not node.processes and node.finished:
        return JobStatus(phase=JobPhase.FINISHED, message="all workers came to the end of the script")
    if view.spec.stop and not _somebody_trains(view, alive, node):
        return _stop_without_training(view)
    hopeless = [
        (device, past)
        for device, past in node.history.items()
        if past.since_progress >= settings.failure_limit
    ]
    starting = any(p.last_phase is None for p in node.processes.values())
    if not hopeless or starting or any(member.phase in busy for member in alive):
        return None
    device, past = hopeless[0]
    return JobStatus(
        phase=JobPhase.FAILED,
        message=(
            f"workers failed {past.since_progress} times in a row on {device} without progress of the job; "
            f"the first failure: {node.first_failure or 'its log is empty'}"
        ),
    )


def _somebody_trains(view: JobView, alive: Sequence[MemberRecord], node: NodeState) -> bool:
    """Tell whether a worker holds the training state, or held it when last seen and may be saving it."""
    if view.current is not None and any(view.alive(worker) for worker in view.current.peers):
        return True  # it may be about to enter its first generation
    holders = {WorkerPhase.TRAINING, WorkerPhase.FINISHED}
    own = [p.last_phase for p in node.processes.values()]
    return any(phase in holders for phase in (*own, *(member.phase for member in alive)))


def _stop_without_training(view: JobView) -> JobStatus:
    if view.current is None:
        return JobStatus(phase=JobPhase.STOPPED, message="stopped before the first step")
    return JobStatus(
        phase=JobPhase.FAILED,
        message="asked to stop, but no worker was left to save the state; an earlier one is kept",
    )


def _earliest(times: Sequence[float], now_s: float) -> float | None:
    return max(min(times), now_s) if times else None
