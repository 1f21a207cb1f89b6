"""A member is lost at any moment of a job that evaluates between its steps: no bit changes.

Three members train in threads over a fake link, by the real trainer and the real gate. One is lost in one of
its exchanges, when its part has reached none, one or both of the others. These recover as `worker.elastic`
does, once with a newcomer: who is furthest sends its state and tells what was gathered.
"""

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import pytest
import torch
from fake_link import DEADLINE_S, FakeLink, FakeNetwork
from torch import nn

from elastane.core.data_order import DataOrder
from elastane.core.gate import StepGate
from elastane.core.placement import plan_even
from elastane.model.errors import LinkBrokenError
from elastane.model.ids import WorkerId
from elastane.model.topology import Member, Mode, Topology
from elastane.observe.metrics import MetricsRecord
from elastane.worker.courier import Courier
from elastane.worker.data import FeedSettings
from elastane.worker.digest import compute_digest
from elastane.worker.evaluating import evaluate_together
from elastane.worker.feeder import BatchFeeder
from elastane.worker.gap import Gap
from elastane.worker.link import Message
from elastane.worker.session import Seating, SoloSession, Training
from elastane.worker.state import JobState, copy_state
from elastane.worker.trainer import Trainer
from elastane.worker.update import Update

N = 3
EPOCHS = 3
SAMPLES = [(torch.full((3,), i / 12), torch.tensor([float(i % 2)])) for i in range(12)]
SURVIVORS, VICTIM, NEWCOMER = (0, 1), 2, 3
Position = tuple[int, int]


class Gone(Exception):
    """The victim's process has ended."""


class VictimsLink(FakeLink):
    """Breaks in its exchange `number`, when its part has reached some of the peers."""

    number = 1 << 30
    reached: Collection[int] = ()

    def exchange(self, sends: Sequence[Message], recvs: Sequence[Message]) -> None:
        if self.exchanges == self.number:
            super().exchange([one for one in sends if one[0] in self.reached], [])
            self.abort()
            raise LinkBrokenError("it is lost")
        super().exchange(sends, recvs)


class Recovery:
    """The place where those that are left meet; who comes last brings all to where the furthest is."""

    def __init__(self, awaited: Sequence[int]) -> None:
        self.positions: dict[int, Position] = {}
        self._awaited = tuple(awaited)
        self._sessions: dict[int, ThreadSession] = {}
        self._barrier = threading.Barrier(len(awaited), action=self._form, timeout=DEADLINE_S)
        self.couriers: list[Courier] = []
        self.failure: BaseException | None = None

    def meet(self, session: "ThreadSession") -> None:
        self._sessions[session.me] = session
        self._barrier.wait()

    def _form(self) -> None:
        sessions = [self._sessions[worker] for worker in self._awaited]
        self.positions = {s.me: s.position for s in sessions if s.gate.has_state}
        furthest = max(self.positions.values())
        supplier = next(s for s in sessions if self.positions.get(s.me) == furthest)
        state, told = copy_state(supplier.training.state.capture()), supplier.training.pack_gap()
        ranges = plan_even(N, len(sessions))
        members = tuple(
            Member(worker=WorkerId(str(s.me)), vranks=r) for s, r in zip(sessions, ranges, strict=True)
        )
        topology = Topology(
            generation=2, mode=Mode.RECOVERY, members=members, switch_step=furthest[0], gathered=furthest[1]
        )
        self.couriers = [Courier(link) for link in FakeNetwork(len(sessions)).links()]
        for own, session in enumerate(sessions):
            if self.positions.get(session.me) != furthest:
                session.training.state.restore(state)
                session.training.take_gap(told)
            session.gate.entered(topology)
            session.gate.halted = False
            session.broken = False
            session.seating = Seating(generation=2, ranges=ranges, own=own, courier=self.couriers[own])


class ThreadSession:
    """Be the rest of the job to one trainer in a thread."""

    joining = False

    def __init__(self, me: int, recovery: Recovery, courier: Courier | None) -> None:
        self.me = me
        self.gate = StepGate(generation=1, has_state=courier is not None, seated=True)
        self.broken = courier is None  # a newcomer waits to be taken in
        self.seating: Seating | None = None
        self._recovery = recovery
        if courier is not None:
            self.seating = Seating(generation=1, ranges=plan_even(N, N), own=me, courier=courier)

    @property
    def position(self) -> Position:
        return self.gate.committed, self.gate.gathered

    def begin(self, training: Training) -> None:
        self.training = training
        if self.seating is not None:
            training.take_seat(self.seating)
        self.pass_boundary()

    def pass_boundary(self) -> None:
        if not self.broken:
            return
        if self.me == VICTIM:
            raise Gone
        self._recovery.meet(self)
        assert self.seating is not None
        self.training.take_seat(self.seating)

    def hold_back(self, took_s: float) -> float:
        return 0.0

    def begin_commit(self) -> bool:
        return self.gate.begin_commit()

    begin_gather = begin_commit

    def end_gather(self) -> None:
        self.gate.end_gather()

    def check_lease(self) -> None: ...

    def note_checkpoint(self, step: int) -> None: ...

    def end_commit(self, record: MetricsRecord, notes: object) -> None:
        self.gate.end_commit()

    def note_compute(self, seconds: Sequence[float]) -> None: ...

    def abort_commit(self, why: str) -> None:
        self.gate.busy, self.broken = False, True
        self.gate.halt()

    def note_exchange(self, what: str, moved_bytes: int) -> None: ...

    def note_run(self, what: str) -> None: ...

    def finish(self) -> None: ...


@dataclass
class Script:
    """A script that does something to the state at every place between two epochs."""

    session: ThreadSession | SoloSession
    results: list[list[float]] = field(default_factory=list)
    digest: str = ""
    error: Exception | None = None

    def __post_init__(self) -> None:
        # Not in a thread: torch's random numbers belong to the whole process.
        torch.manual_seed(0)
        self._model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

    def run(self) -> None:
        try:
            self._train()
        except Exception as error:  # noqa: BLE001 - looked at by the test
            self.error = error

    def _train(self) -> None:
        model = self._model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        trainer = Trainer(7, N, self.session, torch.device("cpu"))  # type: ignore[arg-type]
        state = JobState(device=torch.device("cpu"), models=[model], optimizers=[optimizer])
        trainer.equip(model, state, Update(model, [optimizer], []), overlap=False)
        order = DataOrder(samples=len(SAMPLES), virtual_workers=N, batch_size=2)
        trainer.course.feed_from(BatchFeeder(SAMPLES, order, 7, settings=FeedSettings(shuffle=True)), order)

        def evaluate(shift: float) -> float:
            def judge(batch: list[torch.Tensor]) -> torch.Tensor:
                with torch.no_grad():
                    return model(batch[0]).flatten() + shift

            joined = evaluate_together(trainer, judge, SAMPLES, 2, FeedSettings())
            return float(joined.double().mean())

        def scale(factor: float) -> None:
            for group in optimizer.param_groups:
                group["lr"] *= factor

        for _ in trainer.epochs(EPOCHS):
            for x, y in trainer.batches():
                ((model(x) - y) ** 2).mean().backward()
                optimizer.step()
            scale(0.97)
            first = evaluate(0.0)
            scale(1 - 0.01 * abs(first))
            second = evaluate(first)
            scale(1 - 0.02 * abs(second))
            self.results.append([first, second])
        self.digest = compute_digest(trainer.state.capture())


@dataclass
class World:
    """A job of three members, of which one is lost."""

    newcomer: bool

    def run(self, number: int, reached: Collection[int]) -> tuple[dict[int, Script], Recovery, VictimsLink]:
        awaited = (*SURVIVORS, NEWCOMER) if self.newcomer else SURVIVORS
        recovery = Recovery(awaited)
        network = FakeNetwork(N)
        links = network.links()
        links[VICTIM] = lost = VictimsLink(network, VICTIM)
        lost.number, lost.reached = number, reached
        couriers = [Courier(link) for link in links]
        scripts = {me: Script(ThreadSession(me, recovery, couriers[me])) for me in (*SURVIVORS, VICTIM)}
        if self.newcomer:
            scripts[NEWCOMER] = Script(ThreadSession(NEWCOMER, recovery, None))
        threads = [threading.Thread(target=script.run, daemon=True) for script in scripts.values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S * 2)
        for courier in (*couriers, *recovery.couriers):
            courier.close()
        return scripts, recovery, lost


@pytest.fixture(scope="module")
def alone() -> Script:
    script = Script(SoloSession(N, None))
    script.run()
    assert script.error is None
    return script


@pytest.fixture(scope="module")
def exchanges() -> int:
    """How many exchanges each member takes part in if nobody is lost."""
    scripts, _, link = World(newcomer=False).run(number=1 << 30, reached=())
    assert [script.error for script in scripts.values()] == [None] * N
    return link.exchanges


@pytest.mark.parametrize("newcomer", [False, True])
@pytest.mark.parametrize("reached", [(), (0,), (1,), (0, 1)])
def test_whenever_a_member_is_lost_the_others_come_to_the_result_of_a_lone_run(
    alone: Script, exchanges: int, reached: tuple[int, ...], newcomer: bool
) -> None:
    per_epoch = exchanges // EPOCHS
    positions: set[tuple[Position, Position]] = set()
    for number in range(per_epoch - 1, exchanges - per_epoch // 2):
        scripts, recovery, _ = World(newcomer=newcomer).run(number, reached)
        left = {me: script for me, script in scripts.items() if me != VICTIM}
        where = f"lost in exchange {number} of {exchanges}"
        assert {me: script.error for me, script in left.items()} == dict.fromkeys(left), where
        assert {script.digest for script in left.values()} == {alone.digest}, where
        assert [script.results for me, script in left.items() if me != NEWCOMER] == [alone.results] * 2, where
        first, second = (recovery.positions[me] for me in SURVIVORS)
        positions.add((first, second))
    if len(reached) == 1:  # one of the two had all shares of an evaluation, and then of the second one
        ahead = {(a, b) if reached == (0,) else (b, a) for a, b in positions}
        assert {(a[1], b[1]) for a, b in ahead if a[0] == b[0]} >= {(1, 0), (2, 1)}


class StillSession(SoloSession):
    """Has nobody to talk to."""


def test_a_gap_tells_what_was_gathered_and_gives_it_once_each() -> None:
    ahead, behind = Gap(StillSession(N, None)), Gap(StillSession(N, None))
    assert not behind.catch_up(ahead.pack())
    assert behind.recall() is None
    ahead._gatherings = [[b"a", b"b"], [b"c"]]
    assert behind.catch_up(ahead.pack())
    assert [behind.recall(), behind.recall(), behind.recall()] == [[b"a", b"b"], [b"c"], None]
    assert behind.catch_up(ahead.pack())
    assert behind.recall() is None
    behind.end()
    assert not Gap(StillSession(N, None)).catch_up(behind.pack())


def test_what_was_gathered_and_arrives_damaged_counts_as_a_broken_link() -> None:
    with pytest.raises(LinkBrokenError, match="arrived damaged"):
        Gap(StillSession(N, None)).catch_up(b"\xc1")
