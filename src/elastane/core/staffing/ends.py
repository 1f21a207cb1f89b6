"""Which of its processes an agent ends: the surplus that does not train, and what cannot be of use any more.

Who leaves the training itself is the leader's business.
"""

from collections.abc import Collection
from dataclasses import dataclass

from elastane.core.staffing.nouns import End, Force, NodeState, StaffingSettings, WorkerProcess
from elastane.core.staffing.vacancies import find_present
from elastane.core.view import JobView, compute_needed
from elastane.model.ids import WorkerId
from elastane.model.records import JobPhase, JobStatus, WorkerPhase


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verdict:
    """Say that a process must go, the earliest moment at which it is told so, and why."""

    due_at_s: float
    reason: str
    force: Force = Force.TERMINATE


def plan_ends(
    view: JobView, node: NodeState, now_s: float, settings: StaffingSettings
) -> tuple[tuple[End, ...], list[float]]:
    """Return whom to end now, and when others are due."""
    surplus = {} if view.status.phase.ended else _find_surplus(view, node, now_s)
    ends: list[End] = []
    deadlines: list[float] = []
    for process in node.processes.values():
        verdict: _Verdict | None
        if view.spec.abort:
            verdict = _Verdict(due_at_s=now_s, reason="ended at once, as asked", force=Force.KILL)
        elif process.terminated_at_s is not None:
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


def find_given_up(node: NodeState) -> set[WorkerId]:
    """Return the own workers that count no more, though the records may still show them."""
    return {
        p.worker for p in node.processes.values() if p.terminated_at_s is not None or p.lost_at_s is not None
    }


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
        # It runs what the script does after its loop: a last test, a save; however long that takes.
        return None
    reason = f"the job has ended ({status.phase.value})"
    outside = process.last_phase in (None, WorkerPhase.PREPARING)
    short = outside or status.phase is JobPhase.FAILED
    grace_s = settings.failed_grace_s if short else settings.ended_grace_s
    return _Verdict(due_at_s=ended_at_s + grace_s, reason=f"{reason} {grace_s:g} s ago")


def _find_surplus(view: JobView, node: NodeState, now_s: float) -> dict[WorkerId, _Verdict]:
    """Return own processes that are not part of the training and that nobody needs.

    Of those of all nodes the youngest go first, so that all agents come to the same list.
    """
    gone = find_given_up(node)
    outside = [w for w in find_present(view) if w not in gone and _is_outside(view, w)]
    too_many = len(find_present(view).keys() - gone) - compute_needed(view)
    # Ids count up: the longer, then the larger one is the younger ("w9" before "w10").
    youngest_first = sorted(outside, key=lambda w: (len(w), w), reverse=True)
    reason = f"not needed: the job wants {compute_needed(view)} workers and has {too_many} more"
    verdicts = {
        worker: _Verdict(due_at_s=now_s, reason=reason)
        for worker in youngest_first[: max(too_many, 0)]
        if worker in node.processes
    }
    leaving = [w for w in view.spec.leaving if w in node.processes and w not in gone]
    for worker in _outside_of_generations(view, leaving):
        if node.processes[worker].last_phase in _NOT_TRAINING:
            verdicts[worker] = _Verdict(due_at_s=now_s, reason="asked to leave before it trained")
    return verdicts


_NOT_TRAINING = (None, WorkerPhase.PREPARING, WorkerPhase.READY)


def _is_outside(view: JobView, worker: WorkerId) -> bool:
    """Tell whether a worker has not come to its training loop, so that ending it harms nobody."""
    member = view.members.get(worker)
    starting = member is None or member.phase is WorkerPhase.PREPARING
    return starting and bool(_outside_of_generations(view, [worker]))


def _outside_of_generations(view: JobView, workers: Collection[WorkerId]) -> list[WorkerId]:
    """Return those of `workers` that are in no generation, current or proposed."""
    peers = {w for topology in (view.current, view.proposal) if topology for w in topology.peers}
    return [worker for worker in workers if worker not in peers]
