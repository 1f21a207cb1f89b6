"""The main worker's eye on slow workers, over a real store; posted work runs at once."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from faulty_store import FaultyStore, Outage

from elastane.core.relief import Answer, ReliefSettings
from elastane.core.view import encode
from elastane.jobs.requests import read_picture
from elastane.model.ids import DeviceId, JobId, NodeId, WorkerId
from elastane.model.records import (
    AgentRecord,
    JobKeys,
    JobPhase,
    JobStatus,
    Leave,
    MemberRecord,
    ModelSignature,
    Spec,
    WorkerPhase,
)
from elastane.model.topology import Member, Mode, Topology, VrankRange
from elastane.store.base import Put, Store, TransactionResult
from elastane.store.open import open_store
from elastane.worker import straggling
from elastane.worker.calls import OUTAGE, Calls
from elastane.worker.straggling import StragglerCare, is_quiet, make_care

JOB = JobId("j")
KEYS = JobKeys(JOB)
W1, W2 = WorkerId("w1"), WorkerId("w2")
TOPOLOGY = Topology(
    generation=3,
    mode=Mode.PLANNED,
    members=(Member(worker=W1, vranks=VrankRange(0, 4)), Member(worker=W2, vranks=VrankRange(4, 8))),
    switch_step=0,
)
ALONE = Topology(
    generation=4, mode=Mode.PLANNED, members=(Member(worker=W1, vranks=VrankRange(0, 8)),), switch_step=9
)
STEPS = 20


class Desk:
    """Stand in for the control thread: run what is posted, after an outage again, and keep what is logged."""

    def __init__(self, store: Store, answer: str) -> None:
        self.store = store
        self.logged: list[dict[str, Any]] = []
        self.context, self.events = self, self
        self.job, self.stragglers = JOB, answer

    def post(self, work: Callable[[Store], object]) -> None:
        calls = Calls()
        done = calls.submit(work)
        while not done.done():
            with suppress(*OUTAGE):
                calls.answer(self.store)
        done.result()

    def append(self, kind: str, **fields: Any) -> None:
        assert kind == "straggler"
        self.logged.append(fields)


@pytest.fixture(autouse=True)
def _ask_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(straggling, "ASK_EVERY_S", 0.0)


@pytest.fixture
def store() -> Iterator[Store]:
    """A job with N = 8 that trains on two of three devices."""
    with open_store(f"memory://{uuid.uuid4()}") as opened:
        put(opened, KEYS.spec, Spec(wanted=2))
        put(opened, KEYS.signature, ModelSignature(virtual_workers=8, entries=()))
        put(opened, KEYS.status, JobStatus(phase=JobPhase.TRAINING))
        put(opened, KEYS.current, TOPOLOGY)
        for index, worker in enumerate((W1, W2)):
            record = MemberRecord(
                worker=worker,
                node=NodeId("n"),
                device=DeviceId(f"cpu:{index}"),
                pid=1,
                phase=WorkerPhase.TRAINING,
                generation=3,
            )
            put(opened, KEYS.member(worker), record)
        devices = tuple(DeviceId(f"cpu:{i}") for i in range(3))
        put(opened, KEYS.agent(NodeId("n")), AgentRecord(node=NodeId("n"), pid=1, devices=devices))
        yield opened


def put(store: Store, key: str, record: object) -> None:
    store.transact(puts=[Put(key=key, value=encode(record))])


def spec_of(store: Store) -> Spec:
    return read_picture(store, JOB).view.spec


def watch(store: Store, answer: str, *seconds: float, steps: int = STEPS) -> Desk:
    desk = Desk(store, answer)
    care = StragglerCare(desk, ReliefSettings(answer=Answer(answer)))  # type: ignore[arg-type]
    care.enter(TOPOLOGY)
    for _ in range(steps):
        care.observe(seconds)
    return desk


def test_a_slow_worker_is_given_less_to_do(store: Store) -> None:
    desk = watch(store, "auto", 0.1, 0.3)
    assert spec_of(store) == Spec(wanted=2, speeds={W1: pytest.approx(10.0), W2: pytest.approx(10 / 3)})
    assert desk.logged[0]["action"] == "rebalance"
    # Five steps tell the speeds, ten in a row a slow worker.
    assert (desk.logged[0]["suspects"], desk.logged[0]["found_by"]) == ([], "speeds")
    assert desk.logged[0]["slowness"] == {"w1": 1.0, "w2": 3.0}
    assert (
        "virtual workers w1 4 -> 6, w2 4 -> 2: a step takes some 600 instead of 1.2e+03 ms"
        in (desk.logged[0]["reason"])
    )


def test_a_slow_worker_is_replaced_on_a_free_device(store: Store) -> None:
    desk = watch(store, "replace", 0.1, 0.3)
    assert spec_of(store) == Spec(wanted=2, leaving={W2: Leave.SWAP}, targets=(DeviceId("n/cpu:2"),))
    # While the swap is under way nothing else is decided.
    assert [(line["action"], line["workers"]) for line in desk.logged] == [("replace", ["w2"])]
    assert (desk.logged[0]["suspects"], desk.logged[0]["found_by"]) == (["w2"], "streak")


def test_a_slow_worker_is_let_go_and_its_device_comes_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(straggling.time, "monotonic", lambda: clock[0])
    desk = Desk(store, "evict")
    care = StragglerCare(desk, ReliefSettings(answer=Answer.EVICT))  # type: ignore[arg-type]
    care.enter(TOPOLOGY)
    for _ in range(STEPS):
        care.observe([0.1, 0.5])
    assert spec_of(store) == Spec(wanted=1, leaving={W2: Leave.NOW})
    be_alone(store)
    care.enter(ALONE)
    for at_s in (1299.0, 1300.0, 1301.0):
        clock[0] = at_s
        care.observe([0.1])
        assert spec_of(store).wanted == (1 if at_s < 1300.0 else 2)
    assert [line["action"] for line in desk.logged] == ["evict", "readmit"]
    assert desk.logged[1]["reason"] == "n/cpu:1 rested after slowness: 1 more workers are asked for"


class TroubledStore(FaultyStore):
    """A store in which each write fails once before it goes through, done (`lost`) or not."""

    def __init__(self, inner: Store, *, lost: bool) -> None:
        super().__init__(inner, Outage())
        self.lost, self.failed = lost, False

    def transact(self, *args: Any, **kwargs: Any) -> TransactionResult:
        self.failed = not self.failed
        if self.failed:
            self._outage.lost_answers = 1 if self.lost else 0
            self._outage.failing_calls = 0 if self.lost else 1
        return super().transact(*args, **kwargs)


@pytest.mark.parametrize("lost", [False, True])
def test_an_eviction_and_a_readmission_count_once_whatever_outages_they_meet(
    store: Store, monkeypatch: pytest.MonkeyPatch, *, lost: bool
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(straggling.time, "monotonic", lambda: clock[0])
    desk = Desk(TroubledStore(store, lost=lost), "evict")
    care = StragglerCare(desk, ReliefSettings(answer=Answer.EVICT))  # type: ignore[arg-type]
    care.enter(TOPOLOGY)
    for _ in range(STEPS):
        care.observe([0.1, 0.5])
    assert spec_of(store) == Spec(wanted=1, leaving={W2: Leave.NOW})
    be_alone(store)
    care.enter(ALONE)
    clock[0] += 300.0
    care.observe([0.1])
    assert spec_of(store).wanted == 2
    assert [line["action"] for line in desk.logged] == ["evict", "readmit"]
    assert desk.logged[1]["devices"] == ["n/cpu:1"]


def test_a_readmission_asks_for_no_more_workers_than_there_can_be(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(straggling.time, "monotonic", lambda: clock[0])
    desk = Desk(store, "evict")
    care = StragglerCare(desk, ReliefSettings(answer=Answer.EVICT))  # type: ignore[arg-type]
    care.enter(TOPOLOGY)
    for _ in range(STEPS):
        care.observe([0.1, 0.5])
    be_alone(store)
    put(store, KEYS.spec, Spec(wanted=8))
    care.enter(ALONE)
    clock[0] += 300.0
    care.observe([0.1])
    assert spec_of(store).wanted == 8


@pytest.mark.parametrize("lost", [False, True])
def test_a_replacement_outlives_an_outage(store: Store, *, lost: bool) -> None:
    desk = watch(TroubledStore(store, lost=lost), "replace", 0.1, 0.3)
    assert spec_of(store) == Spec(wanted=2, leaving={W2: Leave.SWAP}, targets=(DeviceId("n/cpu:2"),))
    assert [(line["action"], line["workers"]) for line in desk.logged] == [("replace", ["w2"])]


def be_alone(store: Store) -> None:
    """Let `w2` be gone and `w1` train on alone."""
    record = read_picture(store, JOB).view.members[W1]
    put(store, KEYS.current, ALONE)
    put(store, KEYS.member(W1), type(record)(**{**_fields(record), "generation": 4}))
    put(store, KEYS.exit(W2), {"worker": "w2", "code": 0})


def _fields(record: MemberRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}


@pytest.mark.parametrize("seconds", [(0.1, 0.1), (0.1, 0.102), ()])
def test_equal_workers_and_steps_that_tell_nothing_are_left_alone(
    store: Store, seconds: tuple[float, ...]
) -> None:
    before = spec_of(store)
    assert watch(store, "auto", *seconds).logged == []
    assert spec_of(store) == before


def test_a_decision_to_bear_is_told_once(store: Store) -> None:
    put(store, KEYS.agent(NodeId("n")), AgentRecord(node=NodeId("n"), pid=1, devices=()))
    desk = watch(store, "replace", 0.1, 0.3, steps=3 * STEPS)
    assert [line["action"] for line in desk.logged] == ["bear"]
    assert desk.logged[0]["reason"].endswith("no free device for a successor")


def test_only_the_main_worker_watches(store: Store) -> None:
    desk = Desk(store, "auto")
    care = StragglerCare(desk, ReliefSettings())  # type: ignore[arg-type]
    care.enter(None)
    for _ in range(STEPS):
        care.observe([0.1, 0.3])
    assert desk.logged == []


@pytest.mark.parametrize(
    ("key", "record"),
    [
        (KEYS.proposal, TOPOLOGY),
        (KEYS.current, Topology(generation=4, mode=Mode.PLANNED, members=TOPOLOGY.members)),
        (KEYS.current, Topology(generation=3, mode=Mode.STOP, members=(), leaving=(W1, W2))),
        (KEYS.status, JobStatus(phase=JobPhase.FINISHED)),
        (KEYS.spec, Spec(wanted=2, stop=True)),
        (KEYS.spec, Spec(wanted=1, leaving={W2: Leave.SWAP})),
    ],
)
def test_nothing_is_decided_while_something_else_is_under_way(store: Store, key: str, record: object) -> None:
    assert is_quiet(read_picture(store, JOB).view, TOPOLOGY)
    put(store, key, record)
    assert not is_quiet(read_picture(store, JOB).view, TOPOLOGY)
    assert watch(store, "auto", 0.1, 0.3).logged == []


def test_whether_anybody_is_looked_after_is_a_setting(store: Store) -> None:
    assert make_care(Desk(store, "off")) is None  # type: ignore[arg-type]
    assert isinstance(make_care(Desk(store, "auto")), StragglerCare)  # type: ignore[arg-type]
