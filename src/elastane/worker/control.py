"""The control thread of a worker: keeps its lease, follows the store, carries out what the rules say.

It decides nothing itself. What has to be done next comes from `core.duty`, what the worker does from
`core.member.react`, what the leader writes from `core.leader.decide`. It meets the training thread in
`Standing` and nowhere else.

Rules
- Only the control thread touches its store handle; others hand it work through `call`.
- Nothing here waits for a peer: links are built in threads of their own and left behind if they hang.
- While the store is out of reach the thread goes on trying, and the training thread goes on training, until
  the lease may have run out. A worker whose lease may have run out stops by itself before anybody else can
  think it gone.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import TypeVar

import msgspec

from elastane.core.duty import RETRY_S, Duty, Errand
from elastane.core.gate import ProposalId
from elastane.core.leader import LeaderSettings
from elastane.core.member import Acknowledge, Connect, DropCandidate, Quit, may_finish, may_save
from elastane.core.stance import EXIT_GRACE_S, GaveUp, Outward
from elastane.core.view import JobView, encode
from elastane.jobs.ending import write_end
from elastane.jobs.requests import request_stop
from elastane.model.errors import ElastaneError, JobNotFoundError, JobStateError, LeaseLostError
from elastane.model.exits import EXIT_FENCED
from elastane.model.records import (
    JobKeys,
    JobPhase,
    JobStatus,
    MemberRecord,
    ModelSignature,
    WorkerPhase,
)
from elastane.observe.events import EventLog
from elastane.observe.joins import JoinPhase
from elastane.store.base import Absent, Put, Store
from elastane.store.open import open_store
from elastane.worker.calls import OUTAGE, Calls
from elastane.worker.connector import Connector
from elastane.worker.context import WorkerContext
from elastane.worker.courier import Courier
from elastane.worker.errands import Errands
from elastane.worker.following import JobFollower
from elastane.worker.milestones import Milestones
from elastane.worker.standing import LOOK_AGAIN_S, Left, Standing

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

BUSY_PACE_S = 0.002
"""Pause between two looks at the store while a change is under way."""
QUIET_PACE_S = 0.015
"""Pause otherwise: a request is noticed after 8 ms on average, for some 0.2 % of a core."""
START_PATIENCE_S = 30.0
"""How long a worker that starts tries to register at a store that is out of reach."""


class Control:
    """Run the control thread of one worker.

    Attributes:
        standing: what the training thread and this one share.
        milestones: when this worker came past what on its way into the job.
        at_leave: called before the worker gives up its place.
    """

    def __init__(
        self, context: WorkerContext, events: EventLog, settings: LeaderSettings | None = None
    ) -> None:
        self.context = context
        self.events = events
        self._wake = threading.Event()
        record = MemberRecord(
            worker=context.worker,
            node=context.node,
            device=context.device,
            pid=os.getpid(),
            phase=WorkerPhase.PREPARING,
        )
        self.standing = Standing(record, self._wake.set)
        self._duty = Duty(
            context.job,
            self.standing.stance,
            context.lease_ttl_s,
            settings or LeaderSettings(step_timeout_s=context.step_timeout_s),
        )
        self.milestones = Milestones(context.requested_at_s)
        if context.began_at_s:
            self.milestones.reach(JoinPhase.SPAWN, context.began_at_s)
        self._connector = Connector(context, self._keep_link)
        self._calls = Calls()
        self._agent_seen_s = time.monotonic()
        self.at_leave: list[Callable[[], None]] = []
        self._ending = False
        self._started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="elastane-control", daemon=True)

    # --- for the training thread --------------------------------------------------------------------

    def start(self) -> None:
        """Register this worker and follow the job. Raises StoreError, JobNotFoundError."""
        self._thread.start()
        self._started.result()

    @property
    def view(self) -> JobView:
        """Return the newest picture of the job."""
        view = self._duty.view
        assert view is not None, "the control thread has read the job before anybody asks"
        return view

    def call(self, work: Callable[[Store], _T]) -> _T:
        """Run `work` with the store in the control thread; return its result or raise its error.

        While the store is out of reach this waits: the work may then be done twice.
        """
        future = self._calls.submit(work)
        self._wake.set()
        while not future.done():
            # The control thread may end at any moment: then nobody but this one can answer.
            if not self._thread.is_alive():
                self._calls.refuse()
            wait([future], LOOK_AGAIN_S)
        try:
            return future.result()  # type: ignore[return-value]
        except LeaseLostError as error:
            order = self.standing.stance.ordered
            if order is None:
                raise
            raise Left(order.reason, EXIT_FENCED) from error

    def post(self, work: Callable[[Store], object]) -> None:
        """Have `work` run with the store in the control thread, soon; usable in a signal handler.

        The thread is not woken: the handler may have interrupted `Event.set`, whose lock is not reentrant.
        """
        self._calls.post(work)

    def check_lease(self) -> None:
        """Raise Left if the lease may have run out: nobody trains without a live lease."""
        if time.monotonic() >= self._duty.lease_until_s:
            self.events.append("fenced", worker=self.context.worker, reason="the lease ran out")
            raise Left("the lease ran out", EXIT_FENCED)

    def end_job(
        self, phase: JobPhase, message: str, *, saved: str | None = None, digest: str | None = None
    ) -> bool:
        """Write down how the job ended; tell whether this worker was the first to say so.

        Args:
            phase: finished, stopped or failed.
            message: why, for people.
            saved: the folder of the state that was saved, if one was.
            digest: of the final state, if the training is finished.
        """
        status = JobStatus(
            phase=phase,
            message=message,
            worker=self.context.worker,
            earlier_generations=self.standing.gate.newest_generation,
            step=self.standing.gate.committed,
            node=self.context.node,
            saved=saved,
            digest=digest,
        )
        return self.call(lambda store: write_end(store, self.context.job, status))

    def agree_on_signature(self, own: ModelSignature) -> ModelSignature:
        """Return the signature that the first worker of the job wrote; this one's if it is the first."""

        def agree(store: Store) -> ModelSignature:
            key = JobKeys(self.context.job).signature
            if store.transact([Absent(key=key)], [Put(key=key, value=encode(own))]).succeeded:
                return own
            entry = store.get(key)
            return msgspec.json.decode(entry.value, type=ModelSignature) if entry else own

        return self.call(agree)

    def may_save(self) -> bool:
        """Tell whether this worker is the one that saves the state of a job that stops."""
        with self.standing.changed:
            return may_save(self.view, self.context.worker, self.standing.gate)

    def may_finish(self) -> bool:
        """Tell whether this worker, which has come to the end of training, may go."""
        return may_finish(self.view, self.context.worker)

    def leave(self) -> None:
        """Give up the lease, and with it the record and the leadership; the thread ends."""
        for close in self.at_leave:
            try:
                close()
            except OSError as error:
                _log.error("not everything could be written down before leaving: %s", error)
        self._ending = True
        self._wake.set()
        self._thread.join(EXIT_GRACE_S)
        self._connector.cancel()
        self.standing.close()

    # --- the control thread -------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            # A call that waits for longer could hide the end of the lease.
            patience_s = self.context.lease_ttl_s / 3
            with open_store(self.context.store_url, create=False, patience_s=patience_s) as store:
                self._serve(store)
        except Exception as error:  # noqa: BLE001 - whatever ends this thread, the worker must not go on without
            if not self._started.done():
                self._started.set_exception(error)
            elif not self._ending:
                self._stop(Quit(_explain_end(error), clean=False))
                self._wait_for_exit()
        finally:
            self._calls.refuse()

    def _serve(self, store: Store) -> None:
        errands = self._register(store)
        with JobFollower(store, self.context.job) as follower:
            view = follower.view()
            if view is None:
                raise JobNotFoundError(f"job {self.context.job} is not in {self.context.store_url}")
            self._duty.view = view
            self._started.set_result(None)
            while not self._ending:
                self._try_turn(store, errands, follower)
                self._wake.wait(self._pace())
                self._wake.clear()
            self._calls.answer(store)
        store.revoke(errands.lease)

    def _register(self, store: Store) -> Errands:
        """Take a lease and write the record under it, as soon as the store lets it.

        A record whose writing was done though its answer was lost is known by its lease: so another lease is
        taken only if that one has run out.
        """
        give_up_at_s = time.monotonic() + START_PATIENCE_S
        errands: Errands | None = None
        while True:
            try:
                if errands is None:
                    errands = self._take_lease(store)
                self._upkeep(store, errands)
            except (*OUTAGE, LeaseLostError) as error:
                if time.monotonic() > give_up_at_s:
                    raise
                if isinstance(error, LeaseLostError):
                    errands = None
                self._wake.wait(RETRY_S)
            else:
                return errands

    def _take_lease(self, store: Store) -> Errands:
        self._duty.begin(time.monotonic())
        return Errands(self.context.job, self.context.worker, store.grant(self.context.lease_ttl_s))

    def _try_turn(self, store: Store, errands: Errands, follower: JobFollower) -> None:
        """Look and act once; a store that is out of reach is borne with until the lease may have run out."""
        trouble, since_s = self._duty.trouble, self._duty.reached_at_s
        try:
            self._turn(store, errands, follower)
        except OUTAGE as error:
            if self._duty.failed(str(error), time.monotonic()):
                self._tell("store_trouble", reason=str(error))
        else:
            self._duty.reached(time.monotonic())
            if trouble:
                self._tell("store_back", away_s=time.monotonic() - since_s)
        order = self._duty.fence(time.monotonic())
        if order is not None:
            self._tell("fenced", reason=order.reason)
            _log.error("%s", order.reason)  # the last words in this worker's log
            raise LeaseLostError(order.reason)
        if self._duty.is_overdue(time.monotonic()):
            self._exit_now()

    def _turn(self, store: Store, errands: Errands, follower: JobFollower) -> None:
        self._upkeep(store, errands)
        view = follower.view()
        if view is not None:
            self._follow(view)
        while (deed := self._next(self._duty.next_deed)) is not None:
            self._do(store, errands, deed)
        self._calls.answer(store)
        self._explain_long_wait()
        self._stop_if_orphaned(store)

    def _upkeep(self, store: Store, errands: Errands) -> None:
        while (errand := self._next(self._duty.next_upkeep)) is not None:
            self._do(store, errands, errand)

    def _next(self, ask: Callable[[float], Errand | None]) -> Errand | None:
        with self.standing.changed:
            return ask(time.monotonic())

    def _do(self, store: Store, errands: Errands, errand: Errand) -> None:
        asked_at_s = time.monotonic()
        outcome = errands.run(store, errand)
        with self.standing.changed:
            news = self._duty.done(errand, outcome, asked_at_s, time.monotonic())
        if news is not None:
            self.events.append(news.event, reason=news.reason, **news.fields)

    def _follow(self, view: JobView) -> None:
        with self.standing.changed:
            for outward in self._duty.follow(view, time.monotonic()):
                self._act(outward)

    def _act(self, outward: Outward) -> None:
        match outward:
            case Connect(topology):
                self._connector.connect(topology)
            case DropCandidate():
                self._connector.cancel()
            case Quit(reason):
                self._tell("told_to_quit", reason=reason)
            case GaveUp(generation, why):
                self._tell("link_broken", generation=generation, reason=why)
            case Acknowledge():
                return  # one of the deeds to come

    # --- the threads that build links ----------------------------------------------------------------

    def _keep_link(self, proposal: ProposalId, courier: Courier | None, why: str) -> None:
        if not why:
            self.milestones.reach(JoinPhase.CONNECT)
        self.standing.keep_link(proposal, courier, why)

    # --- time and trouble ---------------------------------------------------------------------------

    def _pace(self) -> float:
        if self._duty.trouble:
            return RETRY_S
        gate = self.standing.gate
        unsettled = gate.generation == 0 or gate.halted or gate.pending is not None
        if unsettled or self.view.proposal is not None:
            return BUSY_PACE_S
        return min(QUIET_PACE_S, max(0.0, self._duty.lookout.wake_at_s - time.monotonic()))

    def _explain_long_wait(self) -> None:
        now_s = time.monotonic()
        waiting = self._duty.explain_wait(now_s)
        if waiting is not None:
            until_s = waiting.until_s - now_s if waiting.until_s is not None else None
            self._tell(
                "waiting",
                reason=waiting.why,
                waits_for=list(waiting.late),
                since_s=now_s - waiting.since_s,
                until_s=until_s,
            )

    def _stop_if_orphaned(self, store: Store) -> None:
        """Stop the job, and save its state, if no agent has come back on any node: nobody looks after it.

        While one lives elsewhere, workers whose own agent is gone train on; at the job's end they end by
        themselves.
        """
        now_s = time.monotonic()
        if self.view.agents or self.view.status.phase.ended or self.view.spec.stop:
            self._agent_seen_s = now_s
        elif now_s - self._agent_seen_s > self.context.orphan_grace_s:
            self._tell("orphaned", reason=f"no agent on any node for {self.context.orphan_grace_s:g} s")
            with suppress(JobStateError):  # it ended at this moment
                request_stop(store, self.context.job)
            self._agent_seen_s = now_s

    def _tell(self, kind: str, **fields: object) -> None:
        self.events.append(kind, worker=self.context.worker, **fields)

    # --- the end ------------------------------------------------------------------------------------

    def _stop(self, order: Quit) -> None:
        with self.standing.changed:
            news = self.standing.stance.tell_to_quit(order, time.monotonic())
        if news:
            self._tell("told_to_quit", reason=order.reason)

    def _wait_for_exit(self) -> None:
        # The store is gone, so nobody can be told any more: the training thread gets its grace, then ends.
        # One that leaves already runs `finally` blocks: it may take its time.
        while not self._ending and not self._duty.is_overdue(time.monotonic()):
            self._calls.refuse()
            self._wake.wait(RETRY_S)
            self._wake.clear()
        if not self._ending:
            self._exit_now()

    def _exit_now(self) -> None:
        _log.error("this worker has to stop and did not reach a step boundary in %g s", EXIT_GRACE_S)
        os._exit(EXIT_FENCED)


def _explain_end(error: Exception) -> str:
    if isinstance(error, ElastaneError):
        return f"the store or the lease was lost: {error}"
    _log.exception("the control thread failed")
    return f"the control thread failed ({type(error).__name__}: {error}); the worker's log shows where"
