"""How a job ends if no worker is left that could say so, or if it cannot get anywhere."""

from collections.abc import Iterator, Sequence

from elastane.core.staffing.nouns import FailureKind, NodeState, StaffingSettings
from elastane.core.staffing.vacancies import Vacancies
from elastane.core.view import JobView
from elastane.model.ids import DeviceId
from elastane.model.records import JobPhase, JobStatus, MemberRecord, WorkerPhase
from elastane.model.topology import Mode

_REPORTS = {
    FailureKind.SCRIPT: "the script failed {count} times in a row on {device}",
    FailureKind.MACHINE: "workers were killed, cut off or not started {count} times in a row on {device}",
    FailureKind.PREEMPTION: "workers were asked to leave {count} times in a row on {device}",
}


def plan_status(
    view: JobView, node: NodeState, vacancies: Vacancies, settings: StaffingSettings
) -> JobStatus | None:
    """Return how the job ends; None while it may go on, or while others may still say it."""
    if view.spec.abort:
        return JobStatus(
            phase=JobPhase.STOPPED, message="stopped at once, as asked; what was not saved is lost"
        )
    alive = [member for worker, member in view.members.items() if view.alive(worker)]
    if not alive and not node.processes and node.finished:
        return JobStatus(phase=JobPhase.FINISHED, message="all workers came to the end of the script")
    if view.spec.stop and not _somebody_trains(view, alive, node):
        return _stop_without_training(view)
    if _may_still_get_on(view, node, vacancies, alive):
        return None
    report = next(_report_exhausted(node, settings), None)
    return None if report is None else JobStatus(phase=JobPhase.FAILED, message=report)


def is_saving(view: JobView) -> bool:
    """Tell whether a stopping job's workers all stand at one step while one of them saves the state."""
    stopping = view.current is not None and view.current.mode is Mode.STOP and not view.status.phase.ended
    return stopping and view.settled


def _may_still_get_on(
    view: JobView, node: NodeState, vacancies: Vacancies, alive: Sequence[MemberRecord]
) -> bool:
    busy = {WorkerPhase.PREPARING, WorkerPhase.TRAINING, WorkerPhase.FINISHED}
    starting = any(
        not post.registered and worker not in view.exits
        for name, roster in view.rosters.items()
        if name in view.agents
        for worker, post in roster.posts.items()
    )
    elsewhere = any(seat.node != node.node for seat in vacancies.seats)
    return starting or elsewhere or any(member.phase in busy for member in alive)


def _report_exhausted(node: NodeState, settings: StaffingSettings) -> Iterator[str]:
    """Yield a report for each budget that is used up."""
    for device, past in node.history.items():
        for kind, count in past.since_progress.items():
            if count >= settings.limits.of(kind):
                yield _report(node, device, kind, count)


def _report(node: NodeState, device: DeviceId, kind: FailureKind, count: int) -> str:
    what = _REPORTS[kind].format(count=count, device=device)
    first = node.first_failures.get(kind) or "its log is empty"
    return f"{what} without progress of the job; the first failure: {first}"


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
