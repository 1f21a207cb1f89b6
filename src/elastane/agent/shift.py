"""An agent's hands: carry out staffing plans with a launcher, and write down what becomes of the workers.

Holds the `NodeState`, the one thing that an agent remembers; its `Roster` in the store lets the next agent
of the node go on from it. Decides nothing: see `core/staffing`.
"""

import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from elastane.agent.bulletin import Bulletin
from elastane.agent.identity import is_alive, read_birth
from elastane.agent.last_words import explain_exit, name_signal, read_last_words
from elastane.agent.launcher import Exited, Launcher, Notice, PoolReported, Started, StartFailed
from elastane.agent.settings import AgentPlace, AgentSettings
from elastane.core.staffing import (
    End,
    FailureKind,
    Force,
    NodeState,
    StaffingPlan,
    Start,
    WorkerProcess,
    make_roster,
    observe_exit,
    observe_processes,
    observe_progress,
    plan_staffing,
    read_history,
)
from elastane.core.view import JobView
from elastane.jobs.registry import log_path
from elastane.jobs.requests import JobPicture
from elastane.model.exits import EXIT_NOT_STARTED
from elastane.model.ids import WorkerId
from elastane.model.records import JobInfo, JobPhase, JobStatus, Post, Roster, WorkerPhase
from elastane.observe.events import EventLog
from elastane.worker.context import WorkerContext


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
        self._place = place
        self._directory = place.directory or info.directory
        self._settings = settings
        self._staffing = replace(settings.staffing, frozen_limit_s=settings.workers.lease_ttl_s)
        self._view: JobView | None = None
        self._unposted: list[tuple[WorkerId, int | None]] = []
        self._posted: list[tuple[WorkerId, int | None]] = []
        self._roster = Roster(node=place.node)
        self._progress = 0
        self._waiting = ""
        self._ended_at_once = False
        self._killed: set[WorkerId] = set()
        self._verdict: JobStatus | None = None
        """How this agent would end the job, while it is not known whether that was written."""

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
        # What the store has, not what was sent: of a request that failed nobody knows whether it was done.
        self._roster = view.rosters.get(self.node.node, Roster(node=self.node.node))
        self._adopt_strangers(view, now_s)
        self.node = observe_processes(view, self.node, now_s, self._launcher.find_stopped())
        self._count_exits(view, now_s)
        self._note_progress(view)
        plan = plan_staffing(view, self.node, now_s, self._staffing)
        self._apply(plan, picture, now_s)
        self._tell_roster(now_s)
        acted = plan.starts or plan.ends or plan.status is not None
        later_s = now_s + self._settings.look_s
        return now_s if acted else min(plan.wake_at_s or later_s, later_s)

    def take_over(self, picture: JobPicture) -> None:
        """Go on where an earlier agent of this node was ended: adopt its workers, tell the exits it
        missed."""
        now_s = time.monotonic()
        roster = picture.view.rosters.get(self.node.node)
        if roster is None:
            return
        self.node = replace(self.node, history=read_history(roster, now_s))
        for worker, post in roster.posts.items():
            member = picture.view.members.get(worker)
            if post.pid or member is None:
                self._take_over_worker(picture.view, worker, post, now_s)

    def end_at_once(self, why: str) -> None:
        """Kill all workers here and write that the job was stopped."""
        if self._ended_at_once:
            return
        self.kill_all(why)
        if self.bulletin.post_status(JobStatus(phase=JobPhase.STOPPED, message=why)):
            self.log("stopped", reason=why)
        self._ended_at_once = True

    def kill_all(self, why: str) -> None:
        """Kill all workers here, each of them once."""
        for worker in self.node.processes.keys() - self._killed:
            self._killed.add(worker)
            self.log("worker_ending", worker=worker, reason=why, force=Force.KILL.value)
            self._launcher.kill(worker)

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
                if worker in self.node.processes:
                    process = replace(self.node.processes[worker], pid=pid, born=read_birth(pid))
                    self._keep(process)
                self.log("worker_started", worker=worker, pid=pid, start="warm" if warm else "cold")
            case Exited(worker=worker, code=code):
                self._unposted.append((worker, code))
            case StartFailed(worker=worker, why=why):
                self.log("worker_start_failed", worker=worker, reason=why)
                self._unposted.append((worker, EXIT_NOT_STARTED))
            case PoolReported(kind=kind, fields=fields):
                self.log(kind, **fields)

    def _count_exits(self, view: JobView, now_s: float) -> None:
        """Take processes that have ended out of the node's state, and log what their ends mean."""
        posted, self._posted = self._posted, []
        for worker, code in posted:
            process = self.node.processes.get(worker)
            if process is None:
                continue
            self.node, kind = observe_exit(view, self.node, worker, code, now_s, self._staffing)
            if kind is not None and kind not in self.node.first_failures:
                told = {**self.node.first_failures, kind: self._describe_failure(worker, code)}
                self.node = replace(self.node, first_failures=told)
            self.log(
                "worker_exited",
                worker=worker,
                device=process.device,
                code=code,
                signal=name_signal(code),
                meaning=explain_exit(code),
                failure=kind not in (None, FailureKind.PREEMPTION),
                fault=kind.value if kind is not None else "",
            )

    def _describe_failure(self, worker: WorkerId, code: int | None) -> str:
        path = log_path(Path(self._directory), worker)
        words = read_last_words(path)
        return f"{worker} {explain_exit(code)}, see {path}" + (f"\n{words}" if words else "")

    def _note_progress(self, view: JobView) -> None:
        step = max((member.committed_step for member in view.members.values()), default=0)
        if step > self._progress:
            self._progress = step
            self.node = observe_progress(self.node)

    def _apply(self, plan: StaffingPlan, picture: JobPicture, now_s: float) -> None:
        for end in plan.ends:
            self._end(end, now_s)
        if plan.starts:
            self._start_all(plan.starts, picture, now_s)
        if plan.served:
            self.bulletin.drop_targets(plan.served)
        self._post_verdict(plan, picture.view.status)
        if plan.waiting != self._waiting:
            self._waiting = plan.waiting
            if plan.waiting:
                self.log("staffing_waits", reason=plan.waiting)

    def _post_verdict(self, plan: StaffingPlan, seen: JobStatus) -> None:
        """Write how the job ended, if the plan says so; or tell of an attempt that was not answered."""
        verdict = self._verdict if seen.phase.ended else plan.status
        self._verdict = verdict
        if verdict is not None and self.bulletin.post_status(verdict, seen=seen):
            self.log(verdict.phase.value, reason=verdict.message)
        self._verdict = None

    def _end(self, end: End, now_s: float) -> None:
        process = self.node.processes[end.worker]
        kill = end.force is Force.KILL
        self.log("worker_ending", worker=end.worker, reason=end.reason, force=end.force.value)
        if kill:
            self._launcher.kill(end.worker)
        else:
            self._launcher.signal(end.worker, signal.SIGTERM)
        # Once more after another grace time, should even the kill not have been enough.
        self._keep(replace(process, terminated_at_s=now_s))

    def _start_all(self, starts: Sequence[Start], picture: JobPicture, now_s: float) -> None:
        """Start workers under new ids; nobody, if another agent has taken ids since this one looked."""
        processes = [
            WorkerProcess(worker=WorkerId(f"w{number}"), device=start.device, started_at_s=now_s)
            for number, start in enumerate(starts, start=picture.claimed + 1)
        ]
        before = self.node
        for process in processes:
            self._keep(process)
        roster = make_roster(self.node, now_s, self._staffing)
        claimed = False
        try:
            claimed = self.bulletin.claim(picture, len(starts), roster)
        finally:
            if not claimed:
                self.node = before
        if not claimed:
            return
        self._roster = roster
        for process, start in zip(processes, starts, strict=True):
            self.log("worker_starting", worker=process.worker, device=start.device, reason=start.reason)
            self._launcher.start(self._make_context(process))

    def _make_context(self, process: WorkerProcess) -> WorkerContext:
        settings = self._settings.workers
        return WorkerContext(
            job=self._info.job,
            worker=process.worker,
            node=self.node.node,
            device=process.device,
            address=self._place.address,
            store_url=self._place.store_url,
            directory=self._directory,
            script=self._info.script,
            arguments=self._info.arguments,
            virtual_workers=settings.virtual_workers,
            checkpoints=settings.checkpoints,
            lease_ttl_s=settings.lease_ttl_s,
            orphan_grace_s=settings.orphan_grace_s,
            step_timeout_s=settings.step_timeout_s,
            intra_op_threads=settings.intra_op_threads,
            autoscale=settings.autoscale,
            stragglers=settings.stragglers,
            profile=settings.profile,
            requested_at_s=process.started_at_s,
            environment=dict(settings.environment),
        )

    def _tell_roster(self, now_s: float) -> None:
        roster = make_roster(self.node, now_s, self._staffing)
        if roster != self._roster:
            self.bulletin.post_roster(roster)
            self._roster = roster

    def _adopt_strangers(self, view: JobView, now_s: float) -> None:
        """Adopt members on this node that nobody here knows: an agent began to start them and was ended."""
        told = {worker for worker, _ in (*self._posted, *self._unposted)}
        for worker, member in view.members.items():
            known = worker in self.node.processes or worker in view.exits or worker in told
            if member.node == self.node.node and not known:
                # Its lease lives, so its number is still its own.
                post = Post(device=member.device, pid=member.pid, born=read_birth(member.pid))
                self._take_over_worker(view, worker, post, now_s)

    def _take_over_worker(self, view: JobView, worker: WorkerId, post: Post, now_s: float) -> None:
        member = view.members.get(worker)
        # One that had registered and has no record any more has lost its lease.
        last_phase = WorkerPhase.TRAINING if post.registered else None
        process = WorkerProcess(
            worker=worker,
            device=post.device,
            started_at_s=now_s,
            pid=post.pid,
            born=post.born,
            last_phase=member.phase if member is not None else last_phase,
        )
        self._keep(process)
        if is_alive(post.pid, post.born):
            self._launcher.adopt(worker, post.pid)
            self.log("worker_adopted", worker=worker, device=post.device, pid=post.pid)
        else:
            self._unposted.append((worker, None))

    def _keep(self, process: WorkerProcess) -> None:
        self.node = replace(self.node, processes={**self.node.processes, process.worker: process})
