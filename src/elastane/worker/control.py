"""The control thread of a worker: keeps its lease, follows the store, carries out what the rules say.

It decides nothing itself. What the worker does comes from `core.member.react`, what the leader writes
from `core.leader.decide`. It meets the training thread in `Standing` and nowhere else.

Rules
- Only the control thread touches its store handle; others hand it work through `call`.
- Nothing here waits for a peer: links are built in threads of their own and left behind if they hang.
- A worker whose lease may have run out stops by itself before anybody else can think it gone.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TypeVar

import msgspec

from elastane.core.gate import ProposalId
from elastane.core.leader import LeaderSettings
from elastane.core.member import (
    Accept,
    Acknowledge,
    Action,
    Candidate,
    Connect,
    DropCandidate,
    Halt,
    LinkPhase,
    OfferPromise,
    Quit,
    ReportBroken,
    may_finish,
    may_save,
    react,
)
from elastane.core.view import JobView, encode
from elastane.jobs.ending import write_end
from elastane.jobs.requests import request_stop
from elastane.model.errors import ElastaneError, JobNotFoundError, JobStateError, LeaseLostError
from elastane.model.records import (
    Ack,
    JobKeys,
    JobPhase,
    JobStatus,
    MemberRecord,
    ModelSignature,
    Promised,
    Refused,
    WorkerPhase,
)
from elastane.observe.events import EventLog
from elastane.store.base import Absent, CreateRevisionIs, LeaseId, Put, Store
from elastane.store.open import open_store
from elastane.worker.connector import Connector
from elastane.worker.context import WorkerContext
from elastane.worker.following import JobFollower
from elastane.worker.leading import Leading
from elastane.worker.standing import EXIT_FENCED, LOOK_AGAIN_S, Left, Standing

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

BUSY_PACE_S = 0.002
"""Pause between two looks at the store while a change is under way."""
QUIET_PACE_S = 0.015
"""Pause otherwise: a request is noticed after 8 ms on average, for some 0.2 % of a core."""
EXIT_GRACE_S = 5.0
"""How long a worker that must stop may take to reach a step boundary before it is ended on the spot."""
WAIT_NOTICE_S = 2.0
"""A wait of the training thread that lasts longer is explained in the event log."""


class Control:
    """Run the control thread of one worker.

    Attributes:
        standing: what the training thread and this one share.
    """

    def __init__(
        self, context: WorkerContext, events: EventLog, settings: LeaderSettings | None = None
    ) -> None:
        self.context = context
        self.events = events
        self._keys = JobKeys(context.job)
        self._wake = threading.Event()
        record = MemberRecord(
            worker=context.worker,
            node=context.node,
            device=context.device,
            pid=os.getpid(),
            phase=WorkerPhase.PREPARING,
        )
        self.standing = Standing(record, self._wake.set)
        self._connector = Connector(context, self.standing.keep_link)
        self._leading = Leading(context, events, settings or LeaderSettings())
        self._view: JobView | None = None
        self._written: MemberRecord | None = None
        self._born_at = 0
        self._lease_until_s = 0.0
        self._quit_at_s = float("inf")
        self._agent_seen_s = time.monotonic()
        self._explained: tuple[str, float] | None = None
        self._calls: SimpleQueue[tuple[Callable[[Store], object], Future[object]]] = SimpleQueue()
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
        assert self._view is not None, "the control thread has read the job before anybody asks"
        return self._view

    def call(self, work: Callable[[Store], _T]) -> _T:
        """Run `work` with the store in the control thread; return its result or raise its error."""
        future: Future[object] = Future()
        self._calls.put((work, future))
        self._wake.set()
        while not future.done():
            # The control thread may end at any moment: then nobody but this one can answer.
            if not self._thread.is_alive():
                self._refuse_calls()
            wait([future], LOOK_AGAIN_S)
        return future.result()  # type: ignore[return-value]

    def post(self, work: Callable[[Store], object]) -> None:
        """Have `work` run with the store in the control thread, soon; usable in a signal handler.

        The thread is not woken: the handler may have interrupted `Event.set`, whose lock is not reentrant.
        """
        future: Future[object] = Future()
        future.add_done_callback(_tell_failure)
        self._calls.put((work, future))

    def check_lease(self) -> None:
        """Raise Left if the lease may have run out: nobody trains without a live lease."""
        if time.monotonic() >= self._lease_until_s:
            self.events.append("fenced", worker=self.context.worker, reason="the lease ran out")
            raise Left("the lease ran out", EXIT_FENCED)

    def end_job(self, phase: JobPhase, message: str) -> bool:
        """Write down how the job ended; tell whether this worker was the first to say so."""
        status = JobStatus(
            phase=phase,
            message=message,
            worker=self.context.worker,
            earlier_generations=self.standing.gate.newest_generation,
        )
        return self.call(lambda store: write_end(store, self.context.job, status))

    def agree_on_signature(self, own: ModelSignature) -> ModelSignature:
        """Return the signature that the first worker of the job wrote; this one's if it is the first."""

        def agree(store: Store) -> ModelSignature:
            key = self._keys.signature
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
            with open_store(self.context.store_url, create=False) as store:
                self._serve(store)
        except Exception as error:  # noqa: BLE001 - whatever ends this thread, the worker must not go on without
            if not self._started.done():
                self._started.set_exception(error)
            elif not self._ending:
                self._stop(Quit(_explain_end(error), clean=False))
                self._wait_for_exit()
        finally:
            self._refuse_calls()

    def _serve(self, store: Store) -> None:
        self._lease_until_s = time.monotonic() + self.context.lease_ttl_s  # from before it was asked for
        lease = store.grant(self.context.lease_ttl_s)
        self._write_record(store, lease)
        with JobFollower(store, self.context.job) as follower:
            self._view = follower.view()
            if self._view is None:
                raise JobNotFoundError(f"job {self.context.job} is not in {self.context.store_url}")
            self._started.set_result(None)
            while not self._ending:
                self._turn(store, lease, follower)
                self._wake.wait(self._pace())
                self._wake.clear()
            self._answer_calls(store)
        store.revoke(lease)

    def _turn(self, store: Store, lease: LeaseId, follower: JobFollower) -> None:
        self._answer_calls(store)
        self._renew_in_time(store, lease)
        if self.standing.record != self._written:
            self._write_record(store, lease)
        self._view = follower.view() or self._view
        self._act(store, lease)
        self._explain_long_wait()
        self._stop_if_orphaned(store)
        if time.monotonic() > self._quit_at_s and not self.standing.leaving:
            self._exit_now()

    def _pace(self) -> float:
        gate = self.standing.gate
        unsettled = gate.generation == 0 or gate.halted or gate.pending is not None
        if unsettled or self.view.proposal is not None:
            return BUSY_PACE_S
        return min(QUIET_PACE_S, max(0.0, self._leading.wake_at_s - time.monotonic()))

    def _act(self, store: Store, lease: LeaseId) -> None:
        standing = self.standing
        with standing.changed:
            actions = react(self.view, standing.local, standing.gate)
            acks = [ack for action in actions for ack in self._carry_out(action)]
            newest_step, step_time_s = max(standing.gate.begun, 0), standing.step_time_s
        for proposal, ack in acks:
            self._write_ack(store, lease, proposal, ack)
        self._leading.act(store, lease, self.view, newest_step, step_time_s)

    def _carry_out(self, action: Action) -> tuple[tuple[ProposalId, Ack], ...]:
        """Do what the rules say, under the lock; return the acknowledgements to write."""
        standing = self.standing
        match action:
            case Connect(topology):
                proposal = ProposalId.of(topology)
                standing.set_candidate(Candidate(proposal=proposal, phase=LinkPhase.CONNECTING))
                self._connector.connect(topology)
            case DropCandidate():
                self._connector.cancel()
                standing.set_candidate(None)
            case Halt(why):
                standing.halt(why)
            case OfferPromise(proposal, step):
                begun = standing.gate.offer_promise(proposal, step)
                # A later step than the one promised before frees a training thread that waits for that one.
                standing.changed.notify_all()
                return ((proposal, Promised(step=step) if begun is None else Refused(at=begun)),)
            case Acknowledge(proposal, ack):
                return ((proposal, ack),)
            case Accept(topology):
                standing.gate.accept(topology)
                standing.changed.notify_all()
            case ReportBroken(generation):
                standing.report_broken(generation)
            case Quit():
                self._stop(action)
        return ()

    def _write_ack(self, store: Store, lease: LeaseId, proposal: ProposalId, ack: Ack) -> None:
        key = self._keys.ack(proposal.generation, proposal.attempt, self.context.worker)
        store.transact(puts=[Put(key=key, value=encode(ack), lease=lease)])
        with self.standing.changed:
            self.standing.acknowledged(proposal, ack)

    def _stop(self, order: Quit) -> None:
        if self.standing.tell_to_quit(order):
            self._quit_at_s = time.monotonic() + EXIT_GRACE_S
            self.events.append("told_to_quit", worker=self.context.worker, reason=order.reason)

    def _wait_for_exit(self) -> None:
        # The store is gone, so nobody can be told any more: the training thread gets its grace, then ends.
        # One that leaves already runs `finally` blocks: it may take its time.
        while not self._ending and (self.standing.leaving or time.monotonic() < self._quit_at_s):
            self._refuse_calls()
            self._wake.wait(0.1)
            self._wake.clear()
        if not self._ending:
            self._exit_now()

    def _exit_now(self) -> None:
        _log.error("this worker has to stop and did not reach a step boundary in %g s", EXIT_GRACE_S)
        os._exit(EXIT_FENCED)

    # --- records ------------------------------------------------------------------------------------

    def _write_record(self, store: Store, lease: LeaseId) -> None:
        with self.standing.changed:
            record = self.standing.record
        key = self._keys.member(self.context.worker)
        # Only over this life's own record: whom the others have given up stays given up.
        guard = CreateRevisionIs(key=key, revision=self._born_at) if self._born_at else Absent(key=key)
        result = store.transact([guard], [Put(key=key, value=encode(record), lease=lease)])
        if not result.succeeded:
            raise LeaseLostError(f"the record of {self.context.worker} is gone from the store")
        if not self._born_at:
            self._born_at = result.revision
            with self.standing.changed:
                self.standing.registered()
        self._written = record

    def _renew_in_time(self, store: Store, lease: LeaseId) -> None:
        # Every third of the lease, so that two renewals may be late before it is lost.
        now_s = time.monotonic()
        if now_s < self._lease_until_s - self.context.lease_ttl_s * 2 / 3:
            return
        store.renew(lease)
        self._lease_until_s = now_s + self.context.lease_ttl_s
        with self.standing.changed:
            self.standing.refresh_progress()

    def _explain_long_wait(self) -> None:
        waiting = self.standing.waiting
        if waiting is None or waiting == self._explained:
            return
        waited_s = time.monotonic() - waiting[1]
        if waited_s > WAIT_NOTICE_S:
            self._explained = waiting
            self.events.append("waiting", worker=self.context.worker, reason=waiting[0], since_s=waited_s)

    def _stop_if_orphaned(self, store: Store) -> None:
        """Stop the job, and save its state, if no agent has come back: nobody would ever end its workers."""
        now_s = time.monotonic()
        if self.context.node in self.view.agents or self.view.status.phase.ended or self.view.spec.stop:
            self._agent_seen_s = now_s
        elif now_s - self._agent_seen_s > self.context.orphan_grace_s:
            reason = f"no agent on {self.context.node} for {self.context.orphan_grace_s:g} s"
            self.events.append("orphaned", worker=self.context.worker, reason=reason)
            with suppress(JobStateError):  # it ended at this moment
                request_stop(store, self.context.job)
            self._agent_seen_s = now_s

    def _answer_calls(self, store: Store) -> None:
        while True:
            try:
                work, future = self._calls.get_nowait()
            except Empty:
                return
            try:
                future.set_result(work(store))
            except Exception as error:  # noqa: BLE001 - raised where the result is awaited
                future.set_exception(error)

    def _refuse_calls(self) -> None:
        while True:
            try:
                _, future = self._calls.get_nowait()
            except Empty:
                return
            future.set_exception(LeaseLostError("this worker has given up its place in the job"))


def _tell_failure(future: Future[object]) -> None:
    error = future.exception()
    if error is not None:
        _log.warning("a request of this worker was not carried out: %s", error)


def _explain_end(error: Exception) -> str:
    if isinstance(error, ElastaneError):
        return f"the store or the lease was lost: {error}"
    _log.exception("the control thread failed")
    return f"the control thread failed ({type(error).__name__}: {error}); the worker's log shows where"
