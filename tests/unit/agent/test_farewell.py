"""A request to stop that reaches an agent: its job stops, or its node leaves somebody else's job."""

import signal
from dataclasses import replace

import pytest
from agent_desk import JOB, NODE, W1, Desk

from elastane.agent import farewell
from elastane.agent.farewell import Farewell, JobStop, NodeLeave
from elastane.core.view import encode
from elastane.model.errors import StoreBusyError
from elastane.model.ids import DeviceId, NodeId, WorkerId
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
from elastane.observe.events import read_events
from elastane.store.base import Put

KEYS = JobKeys(JOB)
OTHER = NodeId("other")


class Clock:
    now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(farewell, "time", made)
    return made


def train(desk: Desk, *, devices_elsewhere: int) -> None:
    """Let w1 train here, beside another node with so many free devices."""
    desk.look()
    member = MemberRecord(worker=W1, node=NODE, device=DeviceId("cpu:0"), pid=1, phase=WorkerPhase.TRAINING)
    seats = (Member(worker=W1, vranks=VrankRange(0, 2)),)
    devices = tuple(DeviceId(f"cpu:{i}") for i in range(devices_elsewhere))
    records: dict[str, object] = {
        KEYS.member(W1): member,
        KEYS.current: Topology(generation=1, mode=Mode.START, members=seats),
        KEYS.signature: ModelSignature(virtual_workers=2, entries=()),
        KEYS.agent(NODE): AgentRecord(node=NODE, pid=1, devices=desk.place.devices),
        KEYS.agent(OTHER): AgentRecord(node=OTHER, pid=2, devices=devices),
    }
    desk.store.transact(puts=[Put(key=key, value=encode(record)) for key, record in records.items()])
    desk.look()


def pursue(desk: Desk, way: Farewell, requests: int = 1) -> Spec:
    way.pursue(desk.shift, desk.store, desk.bulletin.read().view, requests)  # type: ignore[arg-type]
    return desk.bulletin.read().view.spec


def told(desk: Desk) -> list[dict[str, object]]:
    return [event.fields for event in read_events(desk.folder) if event.kind == "node_leaves"]


def test_a_node_that_leaves_asks_for_successors_once(desk: Desk, clock: Clock) -> None:
    train(desk, devices_elsewhere=1)
    way = NodeLeave(desk.place, desk.settings)
    expected = Spec(wanted=1, vacating=(NODE,), leaving={W1: Leave.SWAP})
    assert pursue(desk, way) == expected
    revision = desk.bulletin.read().spec_revision
    assert pursue(desk, way) == expected
    assert desk.bulletin.read().spec_revision == revision
    assert told(desk) == [{"node": "n", "workers": {"w1": "swap"}, "grace_s": 30.0}]
    assert way.deadline_s == clock.now_s + 30.0
    assert desk.launcher.ended == []


def test_after_the_grace_time_nobody_waits_for_a_successor(desk: Desk, clock: Clock) -> None:
    train(desk, devices_elsewhere=1)
    way = NodeLeave(desk.place, desk.settings)
    pursue(desk, way)
    clock.now_s += 30.0
    assert pursue(desk, way).leaving == {W1: Leave.NOW}
    pursue(desk, way)
    assert told(desk)[1:] == [
        {"node": "n", "workers": {"w1": "now"}, "reason": "no successor was ready within 30 s"}
    ]


def test_where_nobody_can_take_over_a_worker_goes_at_once(desk: Desk, clock: Clock) -> None:
    train(desk, devices_elsewhere=0)
    way = NodeLeave(desk.place, desk.settings)
    assert pursue(desk, way).leaving == {W1: Leave.NOW}


def test_asked_twice_its_workers_are_ended_once_and_the_job_is_left_alone(desk: Desk, clock: Clock) -> None:
    train(desk, devices_elsewhere=1)
    way = NodeLeave(desk.place, desk.settings)
    for _ in range(3):
        way.cut_short(desk.shift)
        pursue(desk, way, requests=2)
    assert desk.launcher.ended == [("w1", signal.SIGKILL)]
    assert desk.bulletin.read().view.status == JobStatus(phase=JobPhase.STARTING)


def test_what_the_store_refuses_is_asked_for_and_told_at_the_next_look(desk: Desk, clock: Clock) -> None:
    train(desk, devices_elsewhere=1)
    way = NodeLeave(desk.place, desk.settings)
    desk.store.refusals = 1
    with pytest.raises(StoreBusyError):
        pursue(desk, way)
    assert told(desk) == []
    assert pursue(desk, way).leaving == {W1: Leave.SWAP}
    assert told(desk) == [{"node": "n", "workers": {"w1": "swap"}, "grace_s": 30.0}]


def test_an_agent_has_left_when_its_last_process_is_gone(desk: Desk, clock: Clock) -> None:
    train(desk, devices_elsewhere=1)
    way = NodeLeave(desk.place, desk.settings)
    assert not way.is_done(desk.shift, desk.bulletin.read().view)
    pursue(desk, way)
    view = desk.bulletin.read().view
    assert not way.is_done(desk.shift, view)
    desk.shift.node = replace(desk.shift.node, processes={})
    assert way.is_done(desk.shift, view)
    the_next_agent = NodeLeave(desk.place, desk.settings)
    assert not the_next_agent.is_done(desk.shift, view)


def test_a_job_that_has_ended_meanwhile_is_not_asked(desk: Desk, clock: Clock) -> None:
    train(desk, devices_elsewhere=1)
    desk.bulletin.post_status(JobStatus(phase=JobPhase.FINISHED))
    for way in (NodeLeave(desk.place, desk.settings), JobStop(desk.place, desk.settings)):
        assert pursue(desk, way) == Spec(wanted=1)


def test_the_owner_of_a_job_stops_all_of_it(desk: Desk, clock: Clock) -> None:
    train(desk, devices_elsewhere=1)
    way = JobStop(desk.place, desk.settings)
    assert pursue(desk, way) == Spec(wanted=1, stop=True)
    assert not way.is_done(desk.shift, desk.bulletin.read().view)
    clock.now_s += 30.0
    pursue(desk, way)
    assert desk.launcher.ended == [("w1", signal.SIGKILL)]
    assert desk.bulletin.read().view.status == JobStatus(
        phase=JobPhase.STOPPED, message="a graceful stop took more than 30 s; what was not saved is lost"
    )


def test_workers_of_other_nodes_stay(desk: Desk, clock: Clock) -> None:
    train(desk, devices_elsewhere=1)
    there = WorkerId("w9")
    record = MemberRecord(
        worker=there, node=OTHER, device=DeviceId("cpu:0"), pid=3, phase=WorkerPhase.TRAINING
    )
    desk.store.transact(puts=[Put(key=KEYS.member(there), value=encode(record))])
    assert pursue(desk, NodeLeave(desk.place, desk.settings)).leaving.keys() == {W1}
