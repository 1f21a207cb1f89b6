"""How a node's workers go when the node leaves a job that trains on elsewhere."""

from collections.abc import Mapping
from dataclasses import replace

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from elastane.core.desired import plan_change
from elastane.core.staffing import Seat, plan_vacancies
from elastane.core.staffing.departure import find_waiting, plan_departure
from elastane.core.view import JobView
from elastane.model.ids import DeviceId, NodeId, WorkerId
from elastane.model.records import (
    AgentRecord,
    Leave,
    MemberRecord,
    ModelSignature,
    Post,
    Roster,
    Spec,
    WorkerPhase,
)
from elastane.model.topology import Member, Mode, Topology, VrankRange

A, B = NodeId("a"), NodeId("b")


def job(sizes: Mapping[str, int], workers: Mapping[str, str], **changes: object) -> JobView:
    """A job that trains with the workers of `workers` (name -> node), the first ones on the first devices."""
    taken: dict[str, int] = {}
    members = {}
    for name, node in workers.items():
        device = DeviceId(f"cpu:{taken.get(node, 0)}")
        taken[node] = taken.get(node, 0) + 1
        members[WorkerId(name)] = MemberRecord(
            worker=WorkerId(name),
            node=NodeId(node),
            device=device,
            pid=1,
            phase=WorkerPhase.TRAINING,
            generation=1,
        )
    ranges = tuple(Member(worker=w, vranks=VrankRange(i, i + 1)) for i, w in enumerate(members))
    agents = {
        NodeId(node): AgentRecord(
            node=NodeId(node), pid=1, devices=tuple(DeviceId(f"cpu:{i}") for i in range(count))
        )
        for node, count in sizes.items()
    }
    return JobView(
        revision=1,
        spec=Spec(wanted=len(members), **changes),
        signature=ModelSignature(virtual_workers=len(members), entries=()),
        members=members,
        agents=agents,
        current=Topology(generation=1, mode=Mode.START, members=ranges) if members else None,
    )


def leave(view: JobView, going: Mapping[WorkerId, Leave], node: NodeId = A) -> JobView:
    leaving = {**view.spec.leaving, **going}
    return replace(view, spec=msgspec.structs.replace(view.spec, leaving=leaving, vacating=(node,)))


def test_who_can_be_replaced_elsewhere_waits_for_that_and_the_others_go_at_once() -> None:
    view = job({"a": 3, "b": 3}, {"w1": "a", "w2": "a", "w3": "a", "w4": "b"})
    assert plan_departure(view, A) == {"w1": Leave.SWAP, "w2": Leave.SWAP, "w3": Leave.NOW}


def test_a_worker_that_is_on_its_way_elsewhere_is_a_successor_too() -> None:
    view = job({"a": 1, "b": 1}, {"w1": "a"})
    coming = Roster(node=B, posts={WorkerId("w2"): Post(device=DeviceId("cpu:0"))})
    assert plan_departure(replace(view, rosters={B: coming}), A) == {"w1": Leave.SWAP}


def test_a_device_that_rests_after_failures_will_do_for_a_successor() -> None:
    resting = Roster(node=B, resting=(DeviceId("cpu:0"),))
    view = replace(job({"a": 1, "b": 1}, {"w1": "a"}), rosters={B: resting})
    assert plan_departure(view, A) == {"w1": Leave.SWAP}


def test_a_worker_that_does_not_train_yet_just_goes() -> None:
    view = job({"a": 2, "b": 2}, {"w1": "b"})
    coming = Roster(node=A, posts={WorkerId("w2"): Post(device=DeviceId("cpu:0"))})
    assert plan_departure(replace(view, rosters={A: coming}), A) == {"w2": Leave.NOW}


def test_who_was_asked_before_is_not_asked_again() -> None:
    view = job({"a": 2, "b": 2}, {"w1": "a", "w2": "a"})
    asked = leave(view, {WorkerId("w1"): Leave.SWAP})
    assert plan_departure(asked, A) == {"w2": Leave.SWAP}
    assert plan_departure(leave(view, plan_departure(view, A)), A) == {}


def test_nobody_waits_for_a_successor_when_the_time_is_over() -> None:
    view = job({"a": 2, "b": 2}, {"w1": "a", "w2": "a"})
    asked = leave(view, {WorkerId("w1"): Leave.SWAP, WorkerId("w2"): Leave.NOW})
    assert find_waiting(asked, A) == ("w1",)
    assert plan_departure(asked, A, patient=False) == {"w1": Leave.NOW}


def test_a_node_that_leaves_gets_no_workers_and_its_leavers_are_replaced_on_others() -> None:
    view = job({"a": 2, "b": 2}, {"w1": "a", "w2": "b"})
    view = leave(view, plan_departure(view, A))
    assert plan_vacancies(view).seats == (Seat(node=B, device=DeviceId("cpu:1")),)


def test_of_two_nodes_that_leave_at_once_none_counts_on_the_other() -> None:
    view = leave(job({"a": 2, "b": 2, "c": 1}, {"w1": "a", "w2": "b", "w3": "c"}), {}, node=B)
    assert plan_departure(view, A) == {"w1": Leave.NOW}


def test_the_last_workers_of_a_job_end_it_with_its_state_saved() -> None:
    view = job({"a": 2, "b": 0}, {"w1": "a", "w2": "a"})
    change = plan_change(leave(view, plan_departure(view, A)))
    assert not isinstance(change, str | None)
    assert (change.mode, change.leaving) == (Mode.STOP, ("w1", "w2"))


@given(
    here=st.integers(0, 4),
    elsewhere=st.integers(0, 4),
    free=st.integers(0, 4),
    patient=st.booleans(),
)
def test_everybody_goes_and_only_as_many_wait_as_there_are_places(
    here: int, elsewhere: int, free: int, patient: bool
) -> None:
    workers = {f"w{i}": "a" if i < here else "b" for i in range(here + elsewhere)}
    view = job({"a": 4, "b": elsewhere + free}, workers)
    going = plan_departure(view, A, patient=patient)
    assert going.keys() == {w for w, node in workers.items() if node == "a"}
    swapped = sum(how is Leave.SWAP for how in going.values())
    assert swapped == (min(here, free) if patient else 0)
