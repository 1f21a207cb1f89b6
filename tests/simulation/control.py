"""The control activity of a simulated worker: the counterpart of `worker/control.py` and `worker/leading.py`.

It runs the real `react` and `decide`; what it does with their answers mirrors the shells step by step.
"""

from collections import deque
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from elastane.core.gate import ProposalId
from elastane.core.leader import Decision, Sight, may_lead, proposal_stage
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
)
from elastane.core.view import JobView, encode
from elastane.model.errors import LeaseLostError
from elastane.model.ids import WorkerId
from elastane.model.records import Ack, MemberRecord, Promised, Refused, WorkerPhase
from elastane.model.topology import Topology
from elastane.store.base import (
    Absent,
    CreateRevisionIs,
    Delete,
    DeleteKey,
    DeletePrefix,
    LeaseId,
    Put,
    Store,
    ValueIs,
)

from .fabric import End
from .loop import Bell, Process, Signal
from .standing import Standing
from .storage import KEYS, Client

if TYPE_CHECKING:
    from .world import World

EXIT_GRACE_S = 5.0
CONNECT_TIMEOUT_S = 30.0

Work = Callable[[Store], Any]


class Control:
    """Keep one worker's lease, follow the store, carry out what the rules say."""

    def __init__(self, world: "World", process: Process, record: MemberRecord, lag_s: float) -> None:
        self.world = world
        self.process = process
        self.me = record.worker
        self.wake = Bell()
        self.standing = Standing(record, self.wake)
        self.client = Client(lag_s, self.wake.fire)
        self.view: JobView | None = None
        self.lease: LeaseId | None = None
        self.lease_until_s = 0.0
        self.ready = Signal()
        self.over = False
        self.connects = True
        self._ending = False
        self._quit_at_s = float("inf")
        self._written: MemberRecord | None = None
        self._born_at = 0
        self._calls: deque[tuple[Work, Callable[[Any], None]]] = deque()
        self._lookout = Lookout()

    @property
    def now_s(self) -> float:
        """Return the time."""
        return self.world.loop.now_s

    # --- for the training activity ------------------------------------------------------------------

    def call(self, work: Work) -> Generator[Any, Any, Any]:
        """Have `work` done with the store; an activity that returns its result."""
        answered, answers = Signal(), []

        def answer(result: Any) -> None:
            answers.append(result)
            answered.fire()

        self._calls.append((work, answer))
        self.wake.fire()
        while not answers and not self.over:
            yield answered, 1.0
        if not answers or isinstance(answers[0], LeaseLostError):
            raise LeaseLostError("this worker has given up its place in the job")
        return answers[0]

    def holds_lease(self) -> bool:
        """Tell whether nobody can think this worker gone."""
        return self.now_s < self.lease_until_s

    def leave(self) -> Generator[Any, Any, None]:
        """Give up the lease; returns when that is done, or after a while."""
        self._ending = True
        self.wake.fire()
        until_s = self.now_s + EXIT_GRACE_S
        while not self.over and self.now_s < until_s:
            yield self.ready, 0.5
        self.standing.close()

    # --- the activity -------------------------------------------------------------------------------

    def run(self) -> Generator[Any, Any, None]:
        """Be the control activity."""
        try:
            yield from self._serve()
        except LeaseLostError as error:
            self._stop(Quit(f"the store or the lease was lost: {error}", clean=False))
            while not self._ending and self.now_s < self._quit_at_s:
                yield self.wake, 0.5
            if not self._ending:
                self.world.end_process(self.me, 75)
        finally:
            self.over = True
            self.ready.fire()

    def _request(self, work: Work) -> Generator[Any, Any, Any]:
        return self.world.storage.request(self.client, work, self.me)

    def _serve(self) -> Generator[Any, Any, None]:
        ttl_s = self.world.lease_ttl_s
        self.lease_until_s = self.now_s + ttl_s
        self.lease = yield from self._request(lambda store: store.grant(ttl_s))
        self.world.storage.expire_after(ttl_s)
        yield from self._write_record()
        self.world.storage.connect(self.process, self.client)
        self.client.seen = self.world.storage.position
        self.view = self.world.storage.view(self.client)
        self.ready.fire()
        while not self._ending:
            yield from self._turn()
            yield self.wake, max(0.0, min(self._renew_at_s, self._lookout.wake_at_s) - self.now_s)
        yield from self._answer_calls()
        yield from self._request(lambda store: store.revoke(self.lease))

    @property
    def _renew_at_s(self) -> float:
        return self.lease_until_s - self.world.lease_ttl_s * 2 / 3

    def _turn(self) -> Generator[Any, Any, None]:
        yield from self._answer_calls()
        if self.now_s >= self._renew_at_s:
            began_s = self.now_s
            yield from self._request(lambda store: store.renew(self.lease))
            self.lease_until_s = began_s + self.world.lease_ttl_s
            self.world.storage.expire_after(self.world.lease_ttl_s)
            self.standing.refresh_progress(self.world.step_s)
        if self.standing.record != self._written:
            yield from self._write_record()
        self.view = self.world.storage.view(self.client) or self.view
        yield from self._act()
        if self.now_s > self._quit_at_s and not self._ending:
            self.world.end_process(self.me, 75)

    def _act(self) -> Generator[Any, Any, None]:
        assert self.view is not None
        standing = self.standing
        actions = self.world.rules.react(self.view, standing.local, standing.gate)
        acks = [ack for action in actions for ack in self._carry_out(action)]
        for proposal, ack in acks:
            key = KEYS.ack(proposal.generation, proposal.attempt, self.me)
            put = Put(key=key, value=encode(ack), lease=self.lease)
            yield from self._request(lambda store, put=put: store.transact(puts=[put]))
            standing.acknowledged(proposal, ack)
        yield from self._lead()

    def _carry_out(self, action: Action) -> tuple[tuple[ProposalId, Ack], ...]:
        standing = self.standing
        match action:
            case Connect(topology):
                proposal = ProposalId.of(topology)
                standing.set_candidate(Candidate(proposal=proposal, phase=LinkPhase.CONNECTING))
                self._connect(topology, proposal)
            case DropCandidate():
                standing.set_candidate(None)
            case Halt(why):
                standing.halt(why)
            case OfferPromise(proposal, step):
                begun = standing.gate.offer_promise(proposal, step)
                if begun is None:
                    self.world.checker.promised(self.me, proposal)
                standing.changed.fire()
                return ((proposal, Promised(step=step) if begun is None else Refused(at=begun)),)
            case Acknowledge(proposal, ack):
                return ((proposal, ack),)
            case Accept(topology):
                standing.gate.accept(topology)
                standing.changed.fire()
            case ReportBroken(generation):
                standing.report_broken(generation)
            case Quit():
                self._stop(action)
        return ()

    def _connect(self, topology: Topology, proposal: ProposalId) -> None:
        if len(topology.peers) == 1 or not topology.members:
            self.standing.keep_link(proposal, None, "")
            return
        if not self.connects:
            return  # it hangs while it connects

        def done(end: End | None) -> None:
            self.standing.keep_link(proposal, end, "" if end is not None else "a peer closed the connection")

        def give_up() -> None:
            candidate = self.standing.local.candidate
            if candidate == Candidate(proposal=proposal, phase=LinkPhase.CONNECTING):
                self.standing.keep_link(proposal, None, "a member did not come in time")

        self.world.fabric.connect(proposal, topology.peers, self.process, done)
        self.world.loop.call_after(CONNECT_TIMEOUT_S, give_up, self.process)

    def _stop(self, order: Quit) -> None:
        if self.standing.tell_to_quit(order):
            self._quit_at_s = self.now_s + EXIT_GRACE_S
            self.world.note(self.me, f"quits: {order.reason}")

    def _write_record(self) -> Generator[Any, Any, None]:
        record = self.standing.record
        key = KEYS.member(self.me)
        guard = CreateRevisionIs(key=key, revision=self._born_at) if self._born_at else Absent(key=key)
        put = Put(key=key, value=encode(record), lease=self.lease)
        result = yield from self._request(lambda store: store.transact([guard], [put]))
        if not result.succeeded:
            raise LeaseLostError(f"the record of {self.me} is gone from the store")
        if not self._born_at:
            self._born_at = result.revision
            self.standing.registered()
        self._written = record

    def _answer_calls(self) -> Generator[Any, Any, None]:
        while self._calls:
            work, answer = self._calls.popleft()
            try:
                result = yield from self._request(work)
            except LeaseLostError as error:
                result = error
            answer(result)

    # --- leading ------------------------------------------------------------------------------------

    def _lead(self) -> Generator[Any, Any, None]:
        assert self.view is not None
        view, standing = self.view, self.standing
        self._lookout.wake_at_s = float("inf")
        if view.leader is None:
            if may_lead(view, self.me):
                put = Put(key=KEYS.leader, value=self.me.encode(), lease=self.lease)
                yield from self._request(lambda store: store.transact([Absent(key=KEYS.leader)], [put]))
            return
        if view.leader != self.me or view.revision < self._lookout.written_at:
            return
        sight = self._lookout.look(view, self.now_s, max(standing.gate.begun, 0), self.world.step_s)
        decision = self.world.rules.decide(view, sight)
        if decision.wake_at_s is not None:
            self._lookout.wake_at_s = decision.wake_at_s
        if decision.puts or decision.deletes:
            guards = self.world.rules.guards
            result = yield from self._request(
                lambda store: write_decision(store, self.me, decision, guarded=guards)
            )
            if result.succeeded:
                self._lookout.written_at = result.revision
                self.world.note(self.me, f"{decision.event or 'asks'}: {decision.reason}")


class Lookout:
    """Remember when a leader saw what first."""

    def __init__(self) -> None:
        self.written_at = 0
        self.wake_at_s = float("inf")
        self._ready_since_s: dict[WorkerId, float] = {}
        self._stage: tuple[ProposalId, bool] | None = None
        self._stage_since_s = 0.0

    def look(self, view: JobView, now_s: float, newest_step: int, step_time_s: float) -> Sight:
        """Return what the leader knows beside the store."""
        ready = [w for w, m in view.members.items() if m.phase is WorkerPhase.READY]
        self._ready_since_s = {w: self._ready_since_s.get(w, now_s) for w in ready}
        stage = proposal_stage(view)
        if stage != self._stage:
            self._stage, self._stage_since_s = stage, now_s
        return Sight(
            now_s=now_s,
            newest_step=newest_step,
            step_time_s=step_time_s,
            ready_since_s=self._ready_since_s,
            proposed_at_s=self._stage_since_s,
        )


def write_decision(store: Store, leader: WorkerId, decision: Decision, *, guarded: bool) -> Any:
    """Write what a leader has decided, if it still leads."""
    puts = [Put(key=key, value=value) for key, value in decision.puts.items()]
    deletes: list[Delete] = [
        DeletePrefix(prefix=key) if key.endswith("/") else DeleteKey(key=key) for key in decision.deletes
    ]
    expected = {KEYS.leader: leader.encode(), **decision.unchanged} if guarded else {}
    return store.transact([ValueIs(key=k, value=v) for k, v in expected.items()], puts, deletes)
