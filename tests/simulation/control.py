"""The control activity of a simulated worker: a shell around the real `Duty`, as `worker/control.py` is one.

It has the clock, the store behind its delays, and the links; it decides nothing.
"""

from collections import deque
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from elastane.core.duty import RETRY_S, Duty, Errand, Outcome, RenewLease, WriteDecision
from elastane.core.gate import ProposalId
from elastane.core.member import Acknowledge, Candidate, Connect, DropCandidate, LinkPhase, Quit
from elastane.core.stance import EXIT_GRACE_S, GaveUp, Outward, Stance
from elastane.core.view import JobView
from elastane.model.errors import LeaseLostError, StoreUnreachableError
from elastane.model.records import MemberRecord, Promised
from elastane.model.topology import Topology
from elastane.store.base import Store
from elastane.worker.errands import Errands

from .fabric import End
from .loop import Bell, Process, Signal
from .storage import JOB, Client

if TYPE_CHECKING:
    from .world import World

CONNECT_TIMEOUT_S = 30.0
EXIT_FENCED = 75

Work = Callable[[Store], Any]


class Control:
    """Keep one worker's lease, follow the store, carry out what the rules say."""

    def __init__(self, world: "World", process: Process, record: MemberRecord, lag_s: float) -> None:
        self.world = world
        self.process = process
        self.me = record.worker
        self.wake = Bell()
        self.changed = Signal()
        self.stance: Stance[End] = Stance(record, self.wake.fire, self.changed.fire)
        self.duty = Duty(JOB, self.stance, world.lease_ttl_s, world.rules.settings, world.rules)
        self.client = Client(lag_s, self.wake.fire)
        self.ready = Signal()
        self.over = False
        self.connects = True
        self._errands: Errands | None = None
        self._ending = False
        self._calls: deque[tuple[Work, Callable[[Any], None]]] = deque()

    @property
    def now_s(self) -> float:
        """Return the time."""
        return self.world.loop.now_s

    @property
    def view(self) -> JobView | None:
        """Return the newest picture of the job."""
        return self.duty.view

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
        return self.now_s < self.duty.lease_until_s

    def leave(self) -> Generator[Any, Any, None]:
        """Give up the lease; returns when that is done, or after a while."""
        self._ending = True
        self.wake.fire()
        until_s = self.now_s + EXIT_GRACE_S
        while not self.over and self.now_s < until_s:
            yield self.ready, 0.5
        self.stance.close()

    # --- the activity -------------------------------------------------------------------------------

    def run(self) -> Generator[Any, Any, None]:
        """Be the control activity."""
        try:
            yield from self._serve()
        except LeaseLostError as error:
            order = Quit(f"the store or the lease was lost: {error}", clean=False)
            if self.stance.tell_to_quit(order, self.now_s):
                self.world.note(self.me, f"quits: {order.reason}")
            while not self._ending and not self.duty.is_overdue(self.now_s):
                yield self.wake, 0.5
            if not self._ending:
                self.world.end_process(self.me, EXIT_FENCED)
        except StoreUnreachableError:
            pass  # it was leaving: its lease runs out
        finally:
            self.over = True
            self.ready.fire()

    def _request(self, work: Work) -> Generator[Any, Any, Any]:
        return self.world.storage.request(self.client, work, self.me)

    def _serve(self) -> Generator[Any, Any, None]:
        errands = yield from self._register()
        self.world.storage.connect(self.process, self.client)
        self.client.seen = self.world.storage.position
        self.duty.view = self.world.storage.view(self.client)
        self.ready.fire()
        while not self._ending:
            yield from self._try_turn(errands)
            yield self.wake, self._pause_s()
        yield from self._answer_calls()
        yield from self._request(lambda store: store.revoke(errands.lease))

    def _pause_s(self) -> float:
        if self.duty.trouble:
            return RETRY_S
        due_s = min(self.duty.renew_at_s, self.duty.lookout.wake_at_s)
        return min(1.0, max(0.0, due_s - self.now_s))

    def _register(self) -> Generator[Any, Any, Errands]:
        ttl_s = self.world.lease_ttl_s
        errands: Errands | None = None
        while True:
            try:
                if errands is None:
                    self.duty.begin(self.now_s)
                    lease = yield from self._request(lambda store: store.grant(ttl_s))
                    self.world.storage.expire_after(ttl_s)
                    errands = Errands(JOB, self.me, lease)
                yield from self._run_errands(errands, self.duty.next_upkeep)
            except StoreUnreachableError:
                yield RETRY_S
            except LeaseLostError:
                errands = None
                yield RETRY_S
            else:
                return errands

    def _try_turn(self, errands: Errands) -> Generator[Any, Any, None]:
        try:
            yield from self._turn(errands)
        except StoreUnreachableError as error:
            if self.duty.failed(str(error), self.now_s):
                self.world.note(self.me, "cannot reach the store")
        else:
            self.duty.reached(self.now_s)
        order = self.duty.fence(self.now_s)
        if order is not None and self.world.rules.fences:
            raise LeaseLostError(order.reason)
        if self.duty.is_overdue(self.now_s) and not self._ending:
            self.world.end_process(self.me, EXIT_FENCED)

    def _turn(self, errands: Errands) -> Generator[Any, Any, None]:
        yield from self._run_errands(errands, self.duty.next_upkeep)
        view = self.world.storage.view(self.client)
        if view is not None:
            for outward in self.duty.follow(view, self.now_s):
                self._act(outward)
        yield from self._run_errands(errands, self.duty.next_deed)
        yield from self._answer_calls()

    def _run_errands(
        self, errands: Errands, ask: Callable[[float], Errand | None]
    ) -> Generator[Any, Any, None]:
        while (errand := ask(self.now_s)) is not None:
            asked_at_s = self.now_s
            done = self.world.rules.tamper(errand)
            outcome: Outcome = yield from self._request(lambda store, e=done: errands.run(store, e))
            if isinstance(errand, RenewLease):
                self.world.storage.expire_after(self.world.lease_ttl_s)
            news = self.duty.done(errand, outcome, asked_at_s, self.now_s)
            if news is not None or (isinstance(errand, WriteDecision) and outcome.succeeded):
                told = news if news is not None else errand.decision
                self.world.note(self.me, f"{told.event or 'asks'}: {told.reason}")

    def _act(self, outward: Outward) -> None:
        match outward:
            case Connect(topology):
                self._connect(topology, ProposalId.of(topology))
            case Acknowledge(proposal, Promised()):
                self.world.checker.promised(self.me, proposal)
            case Quit(reason):
                self.world.note(self.me, f"quits: {reason}")
            case GaveUp(_, why):
                self.world.note(self.me, why)
            case DropCandidate() | Acknowledge():
                return

    def _connect(self, topology: Topology, proposal: ProposalId) -> None:
        if len(topology.peers) == 1 or not topology.members:
            self.stance.keep_link(proposal, None, "")
            return
        if not self.connects:
            return  # it hangs while it connects

        def done(end: End | None) -> None:
            self.stance.keep_link(proposal, end, "" if end is not None else "a peer closed the connection")

        def give_up() -> None:
            candidate = self.stance.local.candidate
            if candidate == Candidate(proposal=proposal, phase=LinkPhase.CONNECTING):
                self.stance.keep_link(proposal, None, "a member did not come in time")

        self.world.fabric.connect(proposal, topology.peers, self.process, done)
        self.world.loop.call_after(CONNECT_TIMEOUT_S, give_up, self.process)

    def _answer_calls(self) -> Generator[Any, Any, None]:
        while self._calls:
            work, answer = self._calls[0]
            try:
                result = yield from self._request(work)
            except LeaseLostError as error:
                result = error
            self._calls.popleft()
            answer(result)
