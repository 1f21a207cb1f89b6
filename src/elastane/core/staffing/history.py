"""What an agent remembers of its node: which process is in which state, and what went wrong on which device.

Pure bookkeeping: each function takes what was seen and returns the node's new state.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from elastane.core.staffing.nouns import (
    DeviceHistory,
    FailureKind,
    NodeState,
    StaffingSettings,
    WorkerProcess,
)
from elastane.core.view import JobView
from elastane.model.exits import EXIT_FENCED, EXIT_NOT_STARTED
from elastane.model.ids import DeviceId, WorkerId
from elastane.model.records import Roster, WorkerPhase

_SIGTERM = 15
CODES_ASKED = (-_SIGTERM, 128 + _SIGTERM)
"""Ended by SIGTERM, by its default action or by a handler; nobody here had sent it."""


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
    history = {device: replace(past, since_progress={}) for device, past in node.history.items()}
    return replace(node, history=history, first_failures={})


def observe_exit(
    view: JobView,
    node: NodeState,
    worker: WorkerId,
    code: int | None,
    now_s: float,
    settings: StaffingSettings,
) -> tuple[NodeState, FailureKind | None]:
    """Take an ended process out of the node's state; tell also what kind of failure it was, if any."""
    process = node.processes[worker]
    remaining = {other: kept for other, kept in node.processes.items() if other != worker}
    finished = node.finished or (code == 0 and process.last_phase is WorkerPhase.FINISHED)
    node = replace(node, processes=remaining, finished=finished)
    kind = _classify(view, process, code)
    if kind is None:
        return node, None
    past = node.history.get(process.device, DeviceHistory())
    counted = {**past.since_progress, kind: past.since_progress.get(kind, 0) + 1}
    if kind is FailureKind.PREEMPTION:
        # No fault of the device, so it need not rest.
        return _with_history(node, process.device, replace(past, since_progress=counted)), kind
    settled = now_s - process.started_at_s >= settings.settled_s
    now_failed = DeviceHistory(
        failures=1 if settled else past.failures + 1, since_progress=counted, last_failure_at_s=now_s
    )
    return _with_history(node, process.device, now_failed), kind


def read_history(roster: Roster, now_s: float) -> dict[DeviceId, DeviceHistory]:
    """Return what an earlier agent of the node knew of its devices; their rests begin anew."""
    return {
        device: DeviceHistory(
            failures=past.in_a_row,
            since_progress={FailureKind(kind): count for kind, count in past.since_progress.items()},
            last_failure_at_s=now_s,
        )
        for device, past in roster.failures.items()
    }


def compute_rested_at(past: DeviceHistory | None, settings: StaffingSettings) -> float:
    """Return when a device may be tried again: at once after one failure, then after 0.5, 1, 2, ... s."""
    if past is None or past.failures < 2:
        return 0.0
    rest_s = settings.first_back_off_s * 2.0 ** min(past.failures - 2, 30)
    return past.last_failure_at_s + min(rest_s, settings.longest_back_off_s)


def find_resting(
    history: Mapping[DeviceId, DeviceHistory], now_s: float, settings: StaffingSettings
) -> dict[DeviceId, float]:
    """Return the devices that rest after failures, and until when."""
    rested = {device: compute_rested_at(past, settings) for device, past in history.items()}
    return {device: at_s for device, at_s in rested.items() if at_s > now_s}


def _with_history(node: NodeState, device: DeviceId, past: DeviceHistory) -> NodeState:
    return replace(node, history={**node.history, device: past})


def _observe(view: JobView, process: WorkerProcess, now_s: float, *, is_frozen: bool) -> WorkerProcess:
    member = view.members.get(process.worker)
    phase = member.phase if member is not None else process.last_phase
    lost_at_s = process.lost_at_s
    if member is not None or phase is None:
        lost_at_s = None
    elif lost_at_s is None:
        lost_at_s = now_s
    dismissed_at_s = process.dismissed_at_s
    order = view.dismissed.get(process.worker)
    if dismissed_at_s is None and order is not None:
        dismissed_at_s = now_s
    frozen_at_s = (now_s if process.frozen_at_s is None else process.frozen_at_s) if is_frozen else None
    return replace(
        process,
        last_phase=phase,
        lost_at_s=lost_at_s,
        frozen_at_s=frozen_at_s,
        dismissed_at_s=dismissed_at_s,
        unreachable=process.unreachable or (order is not None and order.unreachable),
    )


def _classify(view: JobView, process: WorkerProcess, code: int | None) -> FailureKind | None:
    """Return what kind of failure it is that a process has ended; None if it was right to end."""
    if process.unreachable and not view.status.phase.ended:
        # Else a machine that others cannot reach would start one worker after the other for nothing.
        return FailureKind.MACHINE
    sent_away = (process.terminated_at_s, process.dismissed_at_s) != (None, None)
    if view.status.phase.ended or sent_away:
        return None
    if code in CODES_ASKED:
        return FailureKind.PREEMPTION
    if code == 0:
        return FailureKind.SCRIPT if _ended_too_early(view, process) else None
    if code is None or code < 0 or code in (EXIT_NOT_STARTED, EXIT_FENCED):
        return FailureKind.MACHINE
    return FailureKind.SCRIPT


def _ended_too_early(view: JobView, process: WorkerProcess) -> bool:
    """Tell whether a worker that ended without an error should not have.

    That is right for one that left, was dismissed, or came to the end of its script; it is a failure of one
    that never trained, and of one that the job still counts on.
    """
    if process.last_phase is WorkerPhase.FINISHED:
        return False
    trained = process.last_phase is WorkerPhase.TRAINING
    counted_on = view.current is not None and view.current.member(process.worker) is not None
    return counted_on or not trained
