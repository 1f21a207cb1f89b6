"""Which vacancy is whose, when several nodes serve one job."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from elastane.core.staffing import (
    DeviceHistory,
    FailureKind,
    NodeState,
    Seat,
    StaffingPlan,
    StaffingSettings,
    Vacancies,
    WorkerProcess,
    plan_staffing,
    plan_vacancies,
)
from elastane.core.view import JobView
from elastane.model.ids import DeviceId, NodeId, WorkerId
from elastane.model.records import (
    AgentRecord,
    DeviceFailures,
    Dismissal,
    ExitRecord,
    Leave,
    MemberRecord,
    Post,
    Roster,
    Spec,
    WorkerPhase,
)
from elastane.model.topology import Member, Mode, Topology, VrankRange

SETTINGS = StaffingSettings()
PREPARING, READY, TRAINING, FINISHED = WorkerPhase
Place = tuple[str, int]
"""A node and the number of a device."""


def seat(node: str, device: int) -> Seat:
    return Seat(node=NodeId(node), device=DeviceId(f"cpu:{device}"))


def member(name: str, place: Place, phase: WorkerPhase = TRAINING) -> MemberRecord:
    here = seat(*place)
    return MemberRecord(worker=WorkerId(name), node=here.node, device=here.device, pid=1, phase=phase)


def cluster(sizes: dict[str, int], *members: MemberRecord, wanted: int, **changes: object) -> JobView:
    """A job whose nodes have so many devices each."""
    spec = {k: changes.pop(k) for k in ("leaving", "targets", "nodes", "stop") if k in changes}
    agents = {
        NodeId(node): AgentRecord(
            node=NodeId(node), pid=1, devices=tuple(DeviceId(f"cpu:{i}") for i in range(count))
        )
        for node, count in sizes.items()
    }
    return JobView(
        revision=1,
        spec=Spec(wanted=wanted, **spec),
        members={m.worker: m for m in members},
        agents=agents,
        **changes,
    )


def started(view: JobView) -> Topology:
    members = tuple(
        Member(worker=w, vranks=VrankRange(i, i + 1)) for i, w in enumerate(view.members or [WorkerId("w0")])
    )
    return Topology(generation=1, mode=Mode.START, members=members)


def running(view: JobView) -> JobView:
    return replace(view, current=started(view))


def roster(node: str, posts: dict[str, Post], **changes: object) -> dict[NodeId, Roster]:
    made = Roster(node=NodeId(node), posts={WorkerId(w): post for w, post in posts.items()}, **changes)
    return {NodeId(node): made}


def post(device: int, **changes: object) -> Post:
    return Post(device=DeviceId(f"cpu:{device}"), **changes)


# --- packing ---------------------------------------------------------------------------------------


def test_the_node_with_most_free_devices_is_filled_first_and_then_the_next() -> None:
    view = cluster({"four": 4, "eight": 8, "one": 1}, wanted=13)
    expected = [*(seat("eight", i) for i in range(8)), *(seat("four", i) for i in range(4)), seat("one", 0)]
    assert plan_vacancies(view) == Vacancies(seats=tuple(expected))


def test_a_node_that_runs_workers_of_the_job_already_comes_before_emptier_ones() -> None:
    view = cluster({"a": 3, "b": 8}, member("w1", ("a", 1)), wanted=4)
    assert plan_vacancies(view).seats == (seat("a", 0), seat("a", 2), seat("b", 0))


def test_what_has_no_device_stays_unfilled() -> None:
    view = cluster({"a": 1, "b": 1}, wanted=5)
    assert plan_vacancies(view) == Vacancies(seats=(seat("a", 0), seat("b", 0)), unfilled=3)


def test_wished_devices_come_first_on_whatever_node() -> None:
    view = cluster({"a": 4, "b": 4}, wanted=3, targets=("b/cpu:2", "cpu:3", "gone/cpu:0", "b/cpu:9"))
    assert plan_vacancies(view).seats == (seat("b", 2), seat("a", 3), seat("a", 0))


def test_a_wish_for_a_device_in_use_is_passed_over() -> None:
    view = cluster({"a": 2, "b": 2}, member("w1", ("a", 0)), wanted=2, targets=("a/cpu:0",))
    assert plan_vacancies(view).seats == (seat("a", 1),)


# --- spreading -------------------------------------------------------------------------------------


def test_a_job_that_asks_for_nodes_gets_an_equal_share_of_each() -> None:
    view = cluster({"a": 8, "b": 8}, wanted=4, nodes=2)
    assert plan_vacancies(view).seats == (seat("a", 0), seat("a", 1), seat("b", 0), seat("b", 1))


def test_nodes_with_room_for_less_than_their_share_leave_the_rest_to_the_others() -> None:
    view = cluster({"a": 8, "b": 4, "c": 1}, wanted=12, nodes=3)
    counts = [s.node for s in plan_vacancies(view).seats]
    assert (counts.count(NodeId("a")), counts.count(NodeId("b")), counts.count(NodeId("c"))) == (7, 4, 1)


def test_the_first_start_keeps_their_shares_for_nodes_that_are_still_to_come() -> None:
    view = cluster({"a": 8}, wanted=4, nodes=2)
    assert plan_vacancies(view) == Vacancies(seats=(seat("a", 0), seat("a", 1)), unfilled=2)


def test_a_running_job_does_not_wait_for_a_lost_node() -> None:
    view = running(cluster({"a": 8}, member("w1", ("a", 0)), wanted=4, nodes=2))
    assert plan_vacancies(view).seats == (seat("a", 1), seat("a", 2), seat("a", 3))


# --- who is there ----------------------------------------------------------------------------------


def test_a_worker_that_is_being_started_anywhere_fills_its_vacancy_and_its_device() -> None:
    view = cluster({"a": 2, "b": 2}, wanted=3, rosters=roster("b", {"w1": post(0)}))
    assert plan_vacancies(view).seats == (seat("b", 1), seat("a", 0))


def test_what_a_dead_agent_was_starting_counts_no_more() -> None:
    view = cluster({"a": 2}, wanted=1, rosters=roster("b", {"w1": post(0)}))
    assert plan_vacancies(view).seats == (seat("a", 0),)


def test_a_process_that_has_lost_its_lease_counts_no_more_but_keeps_its_device() -> None:
    view = cluster({"a": 2}, wanted=1, rosters=roster("a", {"w1": post(0, registered=True)}))
    assert plan_vacancies(view).seats == (seat("a", 1),)


def test_starting_workers_that_have_ended_or_were_dismissed_count_no_more() -> None:
    w1, w2 = WorkerId("w1"), WorkerId("w2")
    view = cluster(
        {"a": 4},
        wanted=2,
        rosters=roster("a", {"w1": post(0), "w2": post(1)}),
        exits={w1: ExitRecord(worker=w1, code=-9)},
        dismissed={w2: Dismissal(reason="slow")},
    )
    assert plan_vacancies(view).seats == (seat("a", 2), seat("a", 3))


def test_devices_that_rest_are_passed_over_and_failed_ones_come_last() -> None:
    failures = {DeviceId("cpu:0"): DeviceFailures(in_a_row=1), DeviceId("cpu:1"): DeviceFailures(in_a_row=2)}
    rosters = roster("a", {}, resting=(DeviceId("cpu:1"),), failures=failures)
    view = cluster({"a": 3, "b": 1}, wanted=4, rosters=rosters)
    assert plan_vacancies(view) == Vacancies(seats=(seat("a", 2), seat("a", 0), seat("b", 0)), unfilled=1)


def test_the_workers_of_a_lost_node_are_replaced_on_the_others() -> None:
    view = running(cluster({"b": 4}, member("w3", ("b", 0)), wanted=3))
    assert plan_vacancies(view).seats == (seat("b", 1), seat("b", 2))


# --- what each agent makes of it -------------------------------------------------------------------


def node_state(view: JobView, node: str, **changes: object) -> NodeState:
    """What the agent of a node knows if the records tell all."""
    own = view.rosters.get(NodeId(node))
    posts = own.posts if own is not None else {}
    processes = {
        w: WorkerProcess(worker=w, device=p.device, started_at_s=0.0, last_phase=None)
        for w, p in posts.items()
    } | {
        m.worker: WorkerProcess(worker=m.worker, device=m.device, started_at_s=0.0, last_phase=m.phase)
        for m in view.members.values()
        if m.node == node
    }
    devices = view.agents[NodeId(node)].devices
    return NodeState(node=NodeId(node), devices=devices, processes=processes, **changes)


def plans(view: JobView) -> dict[str, StaffingPlan]:
    return {str(node): plan_staffing(view, node_state(view, node), 100.0, SETTINGS) for node in view.agents}


def test_each_agent_fills_its_own_vacancies_and_one_says_for_what_the_rest_waits() -> None:
    made = plans(cluster({"b": 1, "a": 2}, wanted=4))
    assert {node: [s.device for s in plan.starts] for node, plan in made.items()} == {
        "a": ["cpu:0", "cpu:1"],
        "b": ["cpu:0"],
    }
    assert made["a"].waiting == "1 worker waits for a free device: all 3 of a, b are in use"
    assert made["b"].waiting == ""


def test_a_start_that_lacks_nodes_says_so() -> None:
    made = plans(cluster({"a": 2}, wanted=4, nodes=2))
    assert made["a"].waiting == (
        "2 workers wait for more nodes: 1 of 2 are here (a); start the others with `elastane agent`"
    )


def test_surplus_is_ended_the_youngest_first_by_whose_node_it_is() -> None:
    rosters = roster("a", {"w3": post(1)}) | roster("b", {"w10": post(1)})
    view = running(
        cluster({"a": 4, "b": 4}, member("w1", ("a", 0)), member("w2", ("b", 0)), wanted=3, rosters=rosters)
    )
    ended = {node: [end.worker for end in plan.ends] for node, plan in plans(view).items()}
    assert ended == {"a": [], "b": ["w10"]}


def test_a_wish_stands_until_a_worker_is_ready_on_the_device() -> None:
    def served(phase: WorkerPhase) -> list[tuple[DeviceId, ...]]:
        leaving = {WorkerId("w1"): Leave.SWAP}
        view = running(
            cluster(
                {"a": 4, "b": 4},
                member("w1", ("a", 0)),
                member("w2", ("b", 2), phase),
                wanted=1,
                leaving=leaving,
                targets=("b/cpu:2", "a/cpu:3"),
            )
        )
        return [plan.served for plan in plans(view).values()]

    assert served(PREPARING) == [(), ()]
    assert served(READY) == [(), ("b/cpu:2",)]


def test_wishes_that_nobody_needs_any_more_are_dropped_by_the_first_node() -> None:
    view = running(cluster({"a": 4, "b": 4}, member("w1", ("a", 0)), wanted=1, targets=("b/cpu:2",)))
    assert [plan.served for plan in plans(view).values()] == [("b/cpu:2",), ()]


def test_a_job_does_not_end_for_one_nodes_failures_while_another_node_can_try() -> None:
    view = cluster({"a": 1, "b": 1}, wanted=1)
    spoilt = {
        DeviceId("cpu:0"): DeviceHistory(
            failures=3, since_progress={FailureKind.SCRIPT: 3}, last_failure_at_s=100.0
        )
    }
    alone = cluster({"a": 1}, wanted=1)
    assert plan_staffing(view, node_state(view, "a", history=spoilt), 100.0, SETTINGS).status is None
    assert plan_staffing(alone, node_state(alone, "a", history=spoilt), 100.0, SETTINGS).status is not None


# --- properties ------------------------------------------------------------------------------------

SIZES = st.dictionaries(st.sampled_from("abcd"), st.integers(1, 5), min_size=1)


@given(
    sizes=SIZES,
    wanted=st.integers(1, 16),
    nodes=st.integers(1, 4),
    present=st.sets(st.tuples(st.sampled_from("abcd"), st.integers(0, 4)), max_size=8),
    phase=st.sampled_from(WorkerPhase),
)
def test_all_agents_together_start_what_is_missing_each_device_once(
    sizes: dict[str, int], wanted: int, nodes: int, present: set[Place], phase: WorkerPhase
) -> None:
    members = [
        member(f"w{number}", place, PREPARING if phase is FINISHED else phase)
        for number, place in enumerate(sorted(present), start=1)
        if place[0] in sizes and place[1] < sizes[place[0]]
    ]
    view = running(cluster(sizes, *members, wanted=wanted, nodes=nodes))
    made = plans(view)
    seats = [(node, start.device) for node, plan in made.items() for start in plan.starts]
    used = {(m.node, m.device) for m in members}
    free = sum(sizes.values()) - len(used)
    assert len(seats) == len(set(seats)) == min(max(0, wanted - len(members)), free)
    assert not used & set(seats)
    ended = sum(len(plan.ends) for plan in made.values())
    assert ended in (0, max(0, len(members) - wanted))
