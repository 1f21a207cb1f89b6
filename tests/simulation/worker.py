"""A simulated worker: its training activity, the counterpart of `worker/elastic.py` and the trainer's loop.

What it trains is in `toy`.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from elastane.core.gate import ProposalId, Switch, Wait
from elastane.core.member import Quit
from elastane.core.view import encode
from elastane.jobs.ending import write_end
from elastane.model.errors import LeaseLostError
from elastane.model.ids import DeviceId, NodeId, WorkerId
from elastane.model.records import (
    ActivityKind,
    JobPhase,
    JobStatus,
    MemberRecord,
    ModelSignature,
    WorkerPhase,
)
from elastane.model.topology import Mode, Topology
from elastane.store.base import Absent, Put, Store

from .control import EXIT_FENCED, Control
from .fabric import End
from .loop import Process
from .storage import JOB, KEYS
from .toy import MIXTURE, Part, Sent, Share, StepRecord

if TYPE_CHECKING:
    from .world import World

LOOK_S = 0.05
GATHERINGS = 2
"""Results of an evaluation are gathered so often, one after the other."""
STATE = -1
"""Number of the exchange that moves the state, before those of the steps."""


class LeftError(Exception):
    """End a worker's training activity."""

    def __init__(self, order: Quit) -> None:
        super().__init__(order.reason)
        self.code = 0 if order.clean else EXIT_FENCED


class LinkBrokenError(Exception):
    """Say that an exchange cannot be completed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """Say how a worker will start.

    Attributes:
        start_s: until its process registers.
        prepare_s: from then until it is ready.
        crash_at: the phase in which it dies: "", "preparing", "ready", "transfer".
        stall_at: the phase in which it hangs for ever: "", "preparing", "connecting".
        lag_s: how late it hears of changes in the store.
    """

    start_s: float
    prepare_s: float
    crash_at: str = ""
    stall_at: str = ""
    lag_s: float = 0.0


class Worker:
    """Be one worker's life."""

    def __init__(self, world: "World", worker: WorkerId, place: tuple[NodeId, DeviceId], fate: Fate) -> None:
        self.world = world
        self.me = worker
        self.fate = fate
        self.process = Process(world.loop, worker)
        self.node, device = place
        record = MemberRecord(
            worker=worker, node=self.node, device=device, pid=1, phase=WorkerPhase.PREPARING
        )
        self.control = Control(world, self.process, record, fate.lag_s)
        self.control.connects = fate.stall_at != "connecting"
        self.stance = self.control.stance
        self.state = world.toy.begin(world.initial_digest(worker))
        self.seat: Topology | None = None
        self.gap_over = -1
        self.evaluated = 0
        """Gatherings that the script has asked for since the last step."""
        self.told = self.passed = 0
        """Gatherings of which it knows the results, and which of them the script has been given."""
        self.came_to_end = False
        self.hangs = False

    def run(self) -> Generator[Any, Any, None]:
        """Be the training activity."""
        yield self.fate.start_s
        self.process.spawn(self.control.run())
        while self.control.view is None and not self.control.over:
            yield self.control.ready
        code = EXIT_FENCED
        try:
            if not self.control.over:
                yield from self._live()
                code = 0
        except LeftError as order:
            code = order.code
        except LeaseLostError:
            code = EXIT_FENCED
        yield from self.control.leave()
        self.world.end_process(self.me, code)

    def _live(self) -> Generator[Any, Any, None]:
        yield from self._begin()
        while self.state.step < self.world.total_steps:
            yield from self._cross_gap()
            yield from self._pass_boundary()
            # Who was a step behind may have been sent a state before whose next step all evaluate.
            if self.state.step < self.world.total_steps and not self._evaluates:
                yield from self._train()
        yield from self._finish()

    def _begin(self) -> Generator[Any, Any, None]:
        yield self.fate.prepare_s / 2
        if self.fate.crash_at == "preparing":
            yield from self._crash()
        while self.fate.stall_at == "preparing":
            yield 3600.0
        yield from self.control.call(self._sign)
        yield self.fate.prepare_s / 2
        view = self.control.view
        begins = view.current is None or view.is_lost
        if begins and self.world.saved is not None:
            self.state = self.world.saved
        restored_after = view.current.generation if begins and view.current is not None else 0
        self.stance.announce_ready(self.world.virtual_workers, self.state.step, restored_after=restored_after)
        if self.fate.crash_at == "ready":
            self.process.loop.call_after(0.3, lambda: self.world.end_process(self.me, 1), self.process)
        yield from self._pass_boundary()

    def _crash(self) -> Generator[Any, Any, None]:
        self.world.end_process(self.me, 1)
        yield 0.0  # nobody comes back from here

    def _sign(self, store: Store) -> None:
        signature = ModelSignature(
            virtual_workers=self.world.virtual_workers, batch=self.world.toy.batch, entries=()
        )
        put = Put(key=KEYS.signature, value=encode(signature))
        store.transact([Absent(key=KEYS.signature)], [put])

    def _pass_boundary(self) -> Generator[Any, Any, None]:
        while True:
            answer = self._heed(self.stance.ask(self.state.step, self.control.now_s))
            if isinstance(answer, Wait):
                yield self.control.changed, 1.0
            elif isinstance(answer, Switch):
                yield from self._enter(answer.topology)
            else:
                return

    def _heed(self, answer: Any) -> Any:
        if isinstance(answer, Quit):
            self.stance.leaving = True
            raise LeftError(answer)
        return answer

    def _check_lease(self) -> None:
        if self.world.rules.fences and not self.control.holds_lease():
            self.world.note(self.me, "fences itself")
            raise LeftError(Quit("the lease ran out", clean=False))

    def _note(self, kind: ActivityKind, what: str) -> None:
        self.stance.note(kind, what, self.control.now_s, self.world.silence_s)

    # --- between two steps --------------------------------------------------------------------------

    @property
    def _evaluates(self) -> bool:
        step, every = self.state.step, self.world.evaluate_every
        return step > 0 and every > 0 and step % every == 0 and self.gap_over != step

    def _cross_gap(self) -> Generator[Any, Any, None]:
        """Evaluate if it is time, as a script does; the counterpart of `worker/gap.py`."""
        while self._evaluates and self.state.step < self.world.total_steps:
            step = self.state.step
            if self.passed < self.told:
                self.passed += 1
                arrived = True
            else:
                arrived = yield from self._gather()
            if arrived and self.state.step == step:
                self.evaluated += 1
            if self.evaluated == GATHERINGS:
                self.gap_over = step

    def _gather(self) -> Generator[Any, Any, bool]:
        """Gather once; false if somebody was lost meanwhile."""
        seat, end = self.seat, self.stance.running
        assert seat is not None
        yield self.world.compute_s() / 2
        while self.hangs:
            yield 3600.0
        others = tuple(m.worker for m in seat.members if m.worker != self.me)
        if not others:
            return True
        assert end is not None
        share = Share(self.state.step, self.evaluated)
        number, end.exchanges = end.exchanges, end.exchanges + 1
        if self._is_torn():
            self.world.fabric.send(end, number, share, to=others[:1])
            yield from self._crash()
        self.world.fabric.send(end, number, share)
        yield self.world.rng.random() * 0.002
        begun = self._heed(self.stance.begin_commit())
        try:
            if not begun:
                raise LinkBrokenError("halted")
            self._note(ActivityKind.EXCHANGES, f"shares of an evaluation after step {self.state.step}")
            shares = yield from _collect(end, number, others)
        except LinkBrokenError as error:
            if begun:
                self.stance.commit_failed(str(error))
            yield from self._pass_boundary()
            return False
        self.world.checker.shares_fit(self.me, share, shares)
        self.stance.end_gather(self.control.now_s)
        self.told += 1
        self.passed = self.told
        return True

    def _is_torn(self) -> bool:
        world = self.world
        torn = world.torn_shares and world.loop.now_s < world.quiet_at_s
        return bool(torn) and world.rng.random() < world.torn_shares

    # --- a step -------------------------------------------------------------------------------------

    def _train(self) -> Generator[Any, Any, None]:
        world, seat, end = self.world, self.seat, self.stance.running
        assert seat is not None
        own = seat.member(self.me)
        assert own is not None
        part = world.toy.train(self.state, own.vranks, len(seat.members))
        yield world.compute_s()
        while self.hangs:
            yield 3600.0
        number = 0
        if end is not None:
            number, end.exchanges = end.exchanges, end.exchanges + 1
            world.fabric.send(end, number, part)
            yield world.rng.random() * 0.002
        if not self._heed(self.stance.begin_commit()):
            return
        self._note(ActivityKind.EXCHANGES, f"the gradients of step {self.state.step}")
        others = tuple(m.worker for m in seat.members if m.worker != self.me)
        try:
            parts = (yield from _collect(end, number, others)) if others else {}
        except LinkBrokenError as error:
            self.stance.commit_failed(str(error))
            return
        self._check_lease()
        world.checker.trains(self.me)
        yield world.rng.random() * 0.001
        self._commit(seat, {**parts, self.me: part})

    def _commit(self, seat: Topology, parts: dict[WorkerId, Part]) -> None:
        self.world.checker.parts_fit(self.me, self.state, parts)
        in_order = [parts[m.worker] for m in seat.members]
        state = self.world.toy.add_up(self.state, in_order)
        vranks = tuple(v for part in in_order for v in range(*part.vranks))
        record = StepRecord(self.state.step, seat.generation, vranks, state.digest)
        self.state = state
        self.evaluated = self.told = self.passed = 0
        self.stance.end_commit(self.world.step_s, self.control.now_s)
        self.world.checker.committed(self.me, record)
        if seat.members[0].worker == self.me:
            self.world.write_checkpoint(self.process, self.me, state)

    # --- entering a generation ----------------------------------------------------------------------

    def _enter(self, topology: Topology) -> Generator[Any, Any, None]:
        if topology.mode is Mode.STOP:
            yield from self._stop(topology)
            return
        had_state = self.stance.gate.has_state or self.me in topology.suppliers
        end = self.stance.links.get(ProposalId.of(topology))
        try:
            yield from self._move_state(topology, end, had_state=had_state)
        except LinkBrokenError as error:
            self.stance.switch_failed(topology, str(error), has_state=had_state)
            return
        seated = topology.member(self.me) is not None
        self.seat = topology if seated else None
        self.stance.entered(topology)
        self.world.checker.entered(self.me, self.state, topology)

    def _move_state(
        self, topology: Topology, end: End | None, *, had_state: bool
    ) -> Generator[Any, Any, None]:
        world, supplies = self.world, self.me in topology.suppliers
        receives = self.me in topology.receivers
        if not topology.receivers or not (supplies or receives):
            return
        if end is None:
            world.checker.fail("link", f"{self.me} enters generation {topology.generation} without a link")
            return
        self._note(ActivityKind.EXCHANGES, f"the state of step {topology.switch_step}")
        if supplies:
            told = self.told if topology.mode.repairs else 0
            sent = Sent(self.state, self.gap_over, told)
            world.fabric.send(end, STATE, sent, world.transfer_s * world.rng.random())
            yield world.transfer_s * world.rng.random()
            if end.broken or any(w in end.lost for w in topology.receivers):
                raise LinkBrokenError(end.broken or "a receiver closed the connection")
            return
        if not had_state and not topology.mode.begins:
            self.state = MIXTURE
        if self.fate.crash_at == "transfer":
            yield world.transfer_s * world.rng.random()
            yield from self._crash()
        parts = yield from _collect(end, STATE, topology.suppliers)
        world.checker.supplies_agree(self.me, topology, set(parts.values()))
        self._catch_up(parts[topology.suppliers[0]])

    def _catch_up(self, sent: Sent) -> None:
        if sent.state.step != self.state.step:
            self.evaluated = self.passed = 0
        self.state, self.gap_over, self.told = sent
        self.passed = min(self.passed, self.told)

    # --- the end ------------------------------------------------------------------------------------

    def _stop(self, topology: Topology) -> Generator[Any, Any, None]:
        self.seat = None
        self.stance.entered(topology)
        self.world.checker.entered(self.me, self.state, topology)
        self._note(ActivityKind.STANDS, "the state to be saved")
        while (due := (yield from self._await_switch())) is None:
            if self.world.rules.may_save(self.control.view, self.me, self.stance.gate):
                yield self.world.rng.random() * 0.1
                self._check_lease()
                self.world.save(self.me, self.state)
                message = f"state of step {self.state.step} saved"
                yield from self._end_job(JobPhase.STOPPED, message)
                raise LeftError(Quit("the job was stopped"))
        yield from self._enter(due)

    def _finish(self) -> Generator[Any, Any, None]:
        self.stance.announce_finished()
        while not self.world.rules.may_finish(self.control.view, self.me):
            self._note(ActivityKind.STANDS, "the others to come to the end of training")
            due = yield from self._await_switch()
            if due is not None:
                yield from self._enter(due)
                self.stance.announce_finished()
        yield from self._end_job(JobPhase.FINISHED, f"trained {self.state.step} steps")
        self.came_to_end = True
        self.world.checker.came_to_end(self.me, self.state)

    def _end_job(self, phase: JobPhase, message: str) -> Generator[Any, Any, None]:
        generations = self.stance.gate.newest_generation
        status = JobStatus(phase=phase, message=message, worker=self.me, earlier_generations=generations)
        yield from self.control.call(lambda store: write_end(store, JOB, status))

    def _await_switch(self) -> Generator[Any, Any, Topology | None]:
        due = self._heed(self.stance.ask_switch(self.state.step))
        if due is None:
            yield self.control.changed, LOOK_S
            due = self._heed(self.stance.ask_switch(self.state.step))
        return due


def _collect(
    end: End | None, number: int, senders: tuple[WorkerId, ...]
) -> Generator[Any, Any, dict[WorkerId, Any]]:
    assert end is not None
    while missing := end.missing(number, senders):
        if end.broken or any(sender in end.lost for sender in missing):
            raise LinkBrokenError(end.broken or "a peer closed the connection")
        yield end.news
    return {sender: end.inbox.pop((sender, number)) for sender in senders}
