"""An agent's hands: carry out staffing plans with a launcher, and write down what becomes of the workers.

Holds the `NodeState`, the one thing that an agent remembers. Decides nothing: see `core/staffing.py`.
"""

import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from elastane.agent.bulletin import Bulletin
from elastane.agent.last_words import explain_exit, name_signal, read_last_words
from elastane.agent.launcher import Exited, Launcher, Notice, PoolReported, Started, StartFailed
from elastane.agent.settings import AgentPlace, AgentSettings
from elastane.core.staffing import (
    End,
    Force,
    NodeState,
    StaffingPlan,
    Start,
    WorkerProcess,
    observe_exit,
    observe_processes,
    observe_progress,
    plan_staffing,
)
from elastane.core.view import JobView
from elastane.jobs.registry import log_path
from elastane.jobs.requests import JobPicture
from elastane.model.ids import WorkerId
from elastane.model.records import JobInfo, JobPhase, JobStatus
from elastane.observe.events import EventLog
from elastane.worker.context import WorkerContext

CODE_NOT_STARTED = 127
"""Exit code noted for a worker whose process could not be made; what shells report for such."""


class Shift:
    """Serve one job on one node with one launcher."""

    def __init__(
        self,
        launcher: Launcher,
        bulletin: Bulletin,
        info: JobInfo,
        events: EventLog,
        place: AgentPlace,
        settings: AgentSettings,
    ) -> None:
        self.node = NodeState(node=place.node, devices=place.devices)
        self.bulletin = bulletin
        self._launcher = launcher
        self._info = info
        self._events = events
        self._store_url = place.store_url
        self._settings = settings
        self._staffing = replace(settings.staffing, frozen_limit_s=settings.workers.lease_ttl_s)
        self._view: JobView | None = None
        self._unposted: list[tuple[WorkerId, int]] = []
        self._posted: list[tuple[WorkerId, int]] = []
        self._progress = 0
        self._waiting = ""
        self._ended_at_once = False

    def log(self, kind: str, **fields: Any) -> None:
        """Append an event to the job's log."""
        self._events.append(kind, **fields)

    def take_notices(self) -> None:
        """Take what the launcher tells, and write exits to the store before anything else is done.

        An exit that the store does not take stays here and is written at the next look.
        """
        for notice in self._launcher.poll():
            self._take(notice)
        while self._unposted:
            worker, code = self._unposted[0]
            self.bulletin.post_exit(self._view or self.bulletin.read().view, worker, code)
            self._posted.append(self._unposted.pop(0))

    def staff(self, picture: JobPicture) -> float:
        """Compare the job with this node and act; return when to look again."""
        now_s = time.monotonic()
        view = self._view = picture.view
        others = frozenset(picture.agents) - {self.node.node}
        frozen = self._launcher.find_stopped()
        self.node = replace(observe_processes(view, self.node, now_s, frozen), other_nodes=others)
        self._count_exits(view, now_s)
        self._note_progress(view)
        plan = plan_staffing(view, self.node, now_s, self._staffing)
        self._apply(plan, view, now_s)
        acted = plan.starts or plan.ends or plan.status is not None
        later_s = now_s + self._settings.look_s
        return now_s if acted else min(plan.wake_at_s or later_s, later_s)

    def end_at_once(self, why: str) -> None:
        """Kill all workers here and write that the job was stopped."""
        if self._ended_at_once:
            return
        for worker in self.node.processes:
            self._launcher.kill(worker)
        if self.bulletin.post_status(JobStatus(phase=JobPhase.STOPPED, message=why)):
            self.log("stopped", reason=why)
        self._ended_at_once = True

    def end_frozen(self) -> None:
        """Kill workers that are frozen: one of them may hold the lock for which everybody else waits.

        A process that is stopped in the middle of a transaction keeps an embedded store locked, for the
        lease check that would find it dead as well. It would lose its lease and be ended anyway.
        """
        for worker in self._launcher.find_stopped():
            reason = "frozen while the store is locked; it may be the one that holds the lock"
            self.log("worker_ending", worker=worker, reason=reason, force=Force.KILL.value)
            self._launcher.kill(worker)

    def _take(self, notice: Notice) -> None:
        match notice:
            case Started(worker=worker, pid=pid, warm=warm):
                self.log("worker_started", worker=worker, pid=pid, start="warm" if warm else "cold")
            case Exited(worker=worker, code=code):
                self._unposted.append((worker, code))
            case StartFailed(worker=worker, why=why):
                self.log("worker_start_failed", worker=worker, reason=why)
                self._unposted.append((worker, CODE_NOT_STARTED))
            case PoolReported(kind=kind, fields=fields):
                self.log(kind, **fields)

    def _count_exits(self, view: JobView, now_s: float) -> None:
        """Take processes that have ended out of the node's state, and log what their ends mean."""
        posted, self._posted = self._posted, []
        for worker, code in posted:
            process = self.node.processes.get(worker)
            if process is None:
                continue
            self.node, failure = observe_exit(view, self.node, worker, code, now_s, self._staffing)
            if failure and not self.node.first_failure:
                self.node = replace(self.node, first_failure=self._describe_failure(worker, code))
            self.log(
                "worker_exited",
                worker=worker,
                device=process.device,
                code=code,
                signal=name_signal(code),
                meaning=explain_exit(code),
                failure=failure,
            )

    def _describe_failure(self, worker: WorkerId, code: int) -> str:
        path = log_path(Path(self._info.directory), worker)
        words = read_last_words(path)
        return f"{worker} {explain_exit(code)}, see {path}" + (f"\n{words}" if words else "")

    def _note_progress(self, view: JobView) -> None:
        step = max((member.committed_step for member in view.members.values()), default=0)
        if step > self._progress:
            self._progress = step
            self.node = replace(observe_progress(self.node), first_failure="")

    def _apply(self, plan: StaffingPlan, view: JobView, now_s: float) -> None:
        for end in plan.ends:
            self._end(end, now_s)
        for start in plan.starts:
            self._start(start, view, now_s)
        if plan.status is not None and self.bulletin.post_status(plan.status, seen=view.status):
            self.log(plan.status.phase.value, reason=plan.status.message)
        if plan.waiting != self._waiting:
            self._waiting = plan.waiting
            if plan.waiting:
                self.log("staffing_waits", reason=plan.waiting)

    def _end(self, end: End, now_s: float) -> None:
        process = self.node.processes[end.worker]
        kill = end.force is Force.KILL
        self.log("worker_ending", worker=end.worker, reason=end.reason, force=end.force.value)
        if kill:
            self._launcher.kill(end.worker)
        else:
            self._launcher.signal(end.worker, signal.SIGTERM)
        # Once more after another grace time, should even the kill not have been enough.
        noted = replace(process, terminated_at_s=now_s)
        self.node = replace(self.node, processes={**self.node.processes, end.worker: noted})

    def _start(self, start: Start, view: JobView, now_s: float) -> None:
        worker = self.bulletin.claim_worker()
        wishes = view.spec.targets
        process = WorkerProcess(worker=worker, device=start.device, started_at_s=now_s)
        self.node = replace(self.node, processes={**self.node.processes, worker: process})
        self.log("worker_starting", worker=worker, device=start.device, reason=start.reason)
        settings = self._settings.workers
        self._launcher.start(
            WorkerContext(
                job=self._info.job,
                worker=worker,
                node=self.node.node,
                device=start.device,
                store_url=self._store_url,
                directory=self._info.directory,
                script=self._info.script,
                arguments=self._info.arguments,
                virtual_workers=settings.virtual_workers,
                resume=settings.resume,
                lease_ttl_s=settings.lease_ttl_s,
                intra_op_threads=settings.intra_op_threads,
                requested_at_s=now_s,
                environment=dict(settings.environment),
            )
        )
        if any(wish.rpartition("/")[2] == start.device for wish in wishes):
            self.bulletin.drop_target(start.device)
