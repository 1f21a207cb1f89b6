"""What an agent starts and ends, for every state a job and a node can be in."""

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastane.core.staffing import (
    DeviceHistory,
    End,
    FailureKind,
    FailureLimits,
    Force,
    NodeState,
    StaffingPlan,
    StaffingSettings,
    Start,
    WorkerProcess,
    observe_exit,
    observe_processes,
    observe_progress,
    plan_staffing,
)
from elastane.core.view import JobView, compute_needed
from elastane.model.ids import DeviceId, NodeId, WorkerId
from elastane.model.records import (
    Dismissal,
    ExitRecord,
    JobPhase,
    JobStatus,
    Leave,
    MemberRecord,
    ModelSignature,
    Spec,
    WorkerPhase,
)
from elastane.model.topology import Member, Mode, Topology, VrankRange

SETTINGS = StaffingSettings()
NODE = NodeId("n")
PREPARING, READY, TRAINING, FINISHED = WorkerPhase


def member(name: str, phase: WorkerPhase = TRAINING, *, node: str = "n", device: str = "") -> MemberRecord:
    return MemberRecord(
        worker=WorkerId(name),
        node=NodeId(node),
        device=DeviceId(device or f"cpu:{int(name[1:]) - 1}"),
        pid=1,
        phase=phase,
    )


def view(*members: MemberRecord, wanted: int = 2, **changes: object) -> JobView:
    spec_changes = {k: changes.pop(k) for k in ("leaving", "targets", "stop") if k in changes}
    spec = Spec(wanted=wanted, **spec_changes)
    return JobView(revision=1, spec=spec, members={m.worker: m for m in members}, **changes)


def process(name: str, phase: WorkerPhase | None = TRAINING, **changes: object) -> WorkerProcess:
    device = DeviceId(f"cpu:{int(name[1:]) - 1}")
    made = WorkerProcess(worker=WorkerId(name), device=device, started_at_s=float(name[1:]), last_phase=phase)
    return replace(made, **changes)


def node(*processes: WorkerProcess, devices: int = 4, **changes: object) -> NodeState:
    return NodeState(
        node=NODE,
        devices=tuple(DeviceId(f"cpu:{i}") for i in range(devices)),
        processes={p.worker: p for p in processes},
        **changes,
    )


def topology(*names: str, mode: Mode = Mode.PLANNED) -> Topology:
    members = tuple(Member(worker=WorkerId(w), vranks=VrankRange(i, i + 1)) for i, w in enumerate(names))
    return Topology(generation=1, mode=mode, members=members)


def plan(seen: JobView, here: NodeState, now_s: float = 100.0) -> StaffingPlan:
    return plan_staffing(seen, here, now_s, SETTINGS)


def started_on(made: StaffingPlan) -> list[str]:
    return [start.device for start in made.starts]


# --- starts ----------------------------------------------------------------------------------------


def test_an_empty_node_starts_what_is_wanted_on_its_first_devices() -> None:
    assert plan(view(), node()) == StaffingPlan(
        starts=(
            Start(device=DeviceId("cpu:0"), reason="the job wants 2 workers"),
            Start(device=DeviceId("cpu:1"), reason="the job wants 2 workers"),
        )
    )


def test_nothing_is_done_when_as_many_are_there_as_are_wanted() -> None:
    assert plan(view(member("w1"), member("w2")), node(process("w1"), process("w2"))) == StaffingPlan()


@pytest.mark.parametrize("phase", [None, PREPARING, READY, TRAINING])
def test_a_process_counts_from_its_start_on_whether_or_not_it_has_registered(
    phase: WorkerPhase | None,
) -> None:
    members = [member("w1", phase)] if phase else []
    assert started_on(plan(view(*members), node(process("w1", phase)))) == ["cpu:1"]


def test_members_on_other_nodes_count() -> None:
    assert started_on(plan(view(member("w1", node="other")), node())) == ["cpu:0"]


def test_a_member_of_this_node_that_an_earlier_agent_started_counts_and_keeps_its_device() -> None:
    assert started_on(plan(view(member("w1")), node())) == ["cpu:1"]


def test_no_more_workers_are_started_than_there_are_virtual_workers() -> None:
    signature = ModelSignature(virtual_workers=1, entries=())
    assert compute_needed(view(wanted=5, signature=signature)) == 1
    assert started_on(plan(view(wanted=5, signature=signature), node())) == ["cpu:0"]


def test_n_is_known_as_soon_as_one_worker_has_said_it() -> None:
    told = msgspec.structs.replace(member("w1", PREPARING), virtual_workers=1)
    assert plan(view(told, wanted=5), node(process("w1", PREPARING))).starts == ()


def test_a_worker_to_be_swapped_is_replaced_first_and_says_for_whom() -> None:
    seen = view(member("w1"), member("w2"), leaving={WorkerId("w1"): Leave.SWAP})
    here = node(process("w1"), process("w2"))
    assert plan(seen, here).starts == (Start(device=DeviceId("cpu:2"), reason="to take the place of w1"),)


def test_a_worker_that_leaves_now_counts_as_gone_but_its_device_does_not() -> None:
    seen = view(member("w1"), member("w2"), leaving={WorkerId("w1"): Leave.NOW})
    assert started_on(plan(seen, node(process("w1"), process("w2"), devices=3))) == ["cpu:2"]


def test_wished_devices_come_first_named_with_or_without_their_node() -> None:
    seen = view(targets=("n/cpu:3", "cpu:2"))
    assert started_on(plan(seen, node())) == ["cpu:3", "cpu:2"]


def test_without_a_free_device_the_plan_says_for_what_it_waits() -> None:
    made = plan(view(member("w1"), wanted=3), node(process("w1"), devices=2))
    assert started_on(made) == ["cpu:1"]
    assert made.waiting == "1 workers wait for a free device: all 2 of n are in use"


@pytest.mark.parametrize(
    "seen",
    [
        view(member("w1"), stop=True),
        view(member("w1"), current=topology("w1", mode=Mode.STOP)),
        view(member("w1"), proposal=topology("w1", mode=Mode.STOP)),
        view(member("w1", FINISHED)),
        view(member("w1"), status=JobStatus(phase=JobPhase.FINISHED)),
    ],
    ids=["stop asked", "stop committed", "stop proposed", "a worker is through", "ended"],
)
def test_nobody_is_started_for_a_job_that_comes_to_its_end(seen: JobView) -> None:
    assert plan(seen, node(process("w1", seen.members[WorkerId("w1")].phase))).starts == ()


# --- failures --------------------------------------------------------------------------------------


SCRIPT, MACHINE, PREEMPTION = FailureKind


def failed(failures: int, at_s: float = 100.0, **since_progress: int) -> dict[DeviceId, DeviceHistory]:
    counts = {FailureKind(kind): count for kind, count in since_progress.items()}
    past = DeviceHistory(failures=failures, since_progress=counts, last_failure_at_s=at_s)
    return {DeviceId("cpu:0"): past}


def test_a_lost_worker_is_replaced_at_once() -> None:
    made = plan(view(wanted=1), node(devices=1, history=failed(1)))
    assert made.starts == (
        Start(device=DeviceId("cpu:0"), reason="the job wants 1 workers and one was lost"),
    )


@pytest.mark.parametrize(("failures", "rest_s"), [(2, 0.5), (3, 1.0), (4, 2.0), (9, 60.0), (1000, 60.0)])
def test_a_device_that_fails_again_rests_longer_each_time(failures: int, rest_s: float) -> None:
    here = node(devices=1, history=failed(failures))
    resting = plan(view(wanted=1), here, 100.0)
    assert resting == StaffingPlan(
        waiting="1 workers wait for devices that rest after failures", wake_at_s=100.0 + rest_s
    )
    assert started_on(plan(view(wanted=1), here, 100.0 + rest_s)) == ["cpu:0"]


def test_a_device_that_never_failed_is_preferred() -> None:
    assert started_on(plan(view(wanted=1), node(history=failed(1)))) == ["cpu:1"]


@pytest.mark.parametrize(
    ("kind", "count", "report"),
    [
        (SCRIPT, 3, "the script failed 3 times in a row on cpu:0"),
        (MACHINE, 10, "workers were killed, cut off or not started 10 times in a row on cpu:0"),
        (PREEMPTION, 100, "workers were asked to leave 100 times in a row on cpu:0"),
    ],
)
def test_each_kind_of_failure_has_a_budget_of_its_own_and_ends_the_job_with_its_first(
    kind: FailureKind, count: int, report: str
) -> None:
    others = dict.fromkeys(({"script", "machine", "preemption"} - {kind.value}), 2)
    first = {kind: "w1 ended, see its log\nTraceback ..."}
    within = plan(view(wanted=1), node(history=failed(3, **{kind.value: count - 1}, **others)))
    assert within.status is None
    made = plan(
        view(wanted=1), node(history=failed(3, **{kind.value: count}, **others), first_failures=first)
    )
    assert made.status == JobStatus(
        phase=JobPhase.FAILED,
        message=f"{report} without progress of the job; "
        "the first failure: w1 ended, see its log\nTraceback ...",
    )
    assert made.starts == ()


def test_budgets_can_be_set() -> None:
    limits = FailureLimits(script=1)
    here = node(history=failed(1, script=1))
    made = plan_staffing(view(wanted=1), here, 100.0, replace(SETTINGS, limits=limits))
    assert made.status is not None
    assert made.status.phase is JobPhase.FAILED


@pytest.mark.parametrize("phase", [None, PREPARING, TRAINING])
def test_a_bad_device_does_not_end_a_job_that_others_carry_on(phase: WorkerPhase | None) -> None:
    members = [member("w2", phase)] if phase else []
    here = node(process("w2", phase), history=failed(3, script=3))
    assert plan(view(*members), here).status is None


def test_a_ready_worker_that_waits_in_vain_for_others_does_not_keep_the_job_alive() -> None:
    here = node(process("w2", READY), history=failed(3, script=3))
    made = plan(view(member("w2", READY)), here)
    assert made.status is not None
    assert made.status.phase is JobPhase.FAILED


def test_progress_takes_back_the_limit_but_not_the_rest() -> None:
    here = observe_progress(node(history=failed(4, script=2), first_failures={SCRIPT: "w1 ..."}))
    assert (here.history, here.first_failures) == (failed(4), {})


def test_exits_that_are_failures_are_counted_on_their_device() -> None:
    here = node(process("w1"), process("w2"))
    after, failure = observe_exit(view(member("w1")), here, WorkerId("w1"), -9, 10.0, SETTINGS)
    assert failure is MACHINE
    assert after == node(process("w2"), history=failed(1, machine=1, at_s=10.0))


def test_a_failure_after_a_long_life_counts_as_the_first() -> None:
    here = node(process("w1"), history=failed(5, script=1, at_s=3.0))
    after, _ = observe_exit(view(), here, WorkerId("w1"), 1, 61.0, SETTINGS)
    assert after.history == failed(1, script=2, at_s=61.0)


def test_who_was_asked_to_leave_from_outside_is_counted_but_his_device_need_not_rest() -> None:
    here = node(process("w1"), history=failed(1, machine=1, at_s=3.0))
    after, kind = observe_exit(view(), here, WorkerId("w1"), -15, 9.0, SETTINGS)
    assert kind is PREEMPTION
    assert after.history == failed(1, machine=1, preemption=1, at_s=3.0)


@pytest.mark.parametrize(
    ("seen", "ended", "code", "failure"),
    [
        (view(), process("w1", PREPARING), 0, SCRIPT),
        (view(), process("w1", None), 0, SCRIPT),
        (view(), process("w1", TRAINING), 0, None),
        (view(current=topology("w1")), process("w1", TRAINING), 0, SCRIPT),
        (view(current=topology("w2")), process("w1", TRAINING), 0, None),
        (view(current=topology("w1")), process("w1", FINISHED), 0, None),
        (view(), process("w1", TRAINING), 1, SCRIPT),
        (view(), process("w1", FINISHED), 1, SCRIPT),
        (view(), process("w1", TRAINING), -9, MACHINE),
        (view(), process("w1", TRAINING), 75, MACHINE),
        (view(), process("w1", None), 127, MACHINE),
        (view(), process("w1", TRAINING), None, MACHINE),
        (view(), process("w1", PREPARING), 143, PREEMPTION),
        (view(), process("w1", PREPARING, terminated_at_s=1.0), -15, None),
        (view(), process("w1", READY, dismissed_at_s=1.0), 0, None),
        (view(status=JobStatus(phase=JobPhase.FAILED)), process("w1"), 1, None),
    ],
)
def test_what_counts_as_a_failure_and_of_which_kind(
    seen: JobView, ended: WorkerProcess, code: int | None, failure: FailureKind | None
) -> None:
    assert observe_exit(seen, node(ended), WorkerId("w1"), code, 2.0, SETTINGS)[1] is failure


# --- ends ------------------------------------------------------------------------------------------


def test_surplus_that_does_not_train_yet_is_ended_the_youngest_first() -> None:
    here = node(process("w1"), process("w2", PREPARING), process("w3", None))
    made = plan(view(member("w1"), member("w2", PREPARING), wanted=1), here)
    reasons = [(end.worker, end.force) for end in made.ends]
    assert reasons == [("w2", Force.TERMINATE), ("w3", Force.TERMINATE)]
    one_too_many = plan(view(member("w1"), member("w2", PREPARING), wanted=2), here)
    assert one_too_many.ends == (
        End(
            worker=WorkerId("w3"),
            force=Force.TERMINATE,
            reason="not needed: the job wants 2 workers and has 1 more",
        ),
    )


def test_of_workers_started_at_one_moment_the_last_is_the_youngest() -> None:
    numbers = (1, 2, 9, 10)
    processes = [process(f"w{number}", PREPARING, started_at_s=5.0) for number in numbers]
    seen = view(*(member(p.worker, PREPARING) for p in processes), wanted=2)
    assert sorted(end.worker for end in plan(seen, node(*processes)).ends) == ["w10", "w9"]


def test_surplus_that_trains_or_is_ready_is_left_to_the_leader() -> None:
    seen = view(member("w1"), member("w2"), member("w3", READY), wanted=1)
    assert plan(seen, node(process("w1"), process("w2"), process("w3", READY))).ends == ()


def test_surplus_that_a_proposal_counts_on_is_left_alone() -> None:
    seen = view(member("w1"), member("w2", PREPARING), wanted=1, proposal=topology("w1", "w2"))
    assert plan(seen, node(process("w1"), process("w2", PREPARING))).ends == ()


def test_a_worker_asked_to_leave_before_it_trained_is_ended_and_replaced() -> None:
    seen = view(member("w1"), member("w2", READY), leaving={WorkerId("w2"): Leave.NOW})
    made = plan(seen, node(process("w1"), process("w2", READY)))
    assert made == StaffingPlan(
        starts=(Start(device=DeviceId("cpu:2"), reason="the job wants 2 workers"),),
        ends=(End(worker=WorkerId("w2"), force=Force.TERMINATE, reason="asked to leave before it trained"),),
    )


def observed(seen: JobView, here: NodeState, now_s: float) -> NodeState:
    return observe_processes(seen, here, now_s)


def test_a_worker_whose_lease_was_lost_is_replaced_at_once_and_ended_after_a_grace() -> None:
    seen = view(wanted=1)
    here = observed(seen, node(process("w1"), devices=2), 50.0)
    assert here.processes[WorkerId("w1")].lost_at_s == 50.0
    at_once = plan(seen, here, 50.0)
    assert (started_on(at_once), at_once.ends, at_once.wake_at_s) == (["cpu:1"], (), 52.0)
    assert plan(seen, observed(seen, here, 52.0), 52.0).ends == (
        End(
            worker=WorkerId("w1"),
            force=Force.TERMINATE,
            reason="its lease was lost 2 s ago: the job goes on without it",
        ),
    )


def test_a_frozen_worker_is_killed_and_replaced_once_its_lease_must_be_lost() -> None:
    seen = view(member("w1"), wanted=1)
    here = observe_processes(seen, node(process("w1")), 50.0, {WorkerId("w1")})
    waiting = plan(seen, here, 52.0)
    assert (waiting.starts, waiting.ends, waiting.wake_at_s) == ((), (), 53.0)
    later = plan(seen, observe_processes(seen, here, 53.0, {WorkerId("w1")}), 53.0)
    reason = "frozen for 3 s, so its lease is lost"
    assert later.ends == (End(worker=WorkerId("w1"), force=Force.KILL, reason=reason),)
    assert started_on(later) == ["cpu:1"]


def test_a_worker_that_was_frozen_for_a_moment_goes_on() -> None:
    seen = view(member("w1"), wanted=1)
    here = observe_processes(seen, node(process("w1")), 50.0, {WorkerId("w1")})
    assert plan(seen, observe_processes(seen, here, 54.0), 54.0) == StaffingPlan()


def test_a_worker_that_has_not_registered_is_not_taken_for_lost() -> None:
    seen = view()
    assert observed(seen, node(process("w1", None)), 50.0) == node(process("w1", None))


def test_a_worker_that_never_registers_is_ended() -> None:
    here = node(process("w1", None))
    assert plan(view(), here, 180.0).ends == ()
    assert [end.worker for end in plan(view(), here, 181.0).ends] == ["w1"]


def test_a_dismissed_worker_may_go_by_itself_first() -> None:
    seen = view(member("w1"), member("w2", READY), dismissed={WorkerId("w2"): Dismissal(reason="slow")})
    here = observed(seen, node(process("w1"), process("w2", READY)), 10.0)
    assert plan(seen, here, 10.0).ends == ()
    assert [end.worker for end in plan(seen, here, 15.0).ends] == ["w2"]


def test_what_survives_sigterm_is_killed_and_killed_again() -> None:
    here = node(process("w1", TRAINING, terminated_at_s=10.0))
    assert plan(view(member("w1"), wanted=1), here, 14.9).ends == ()
    assert plan(view(member("w1"), wanted=1), here, 15.0).ends == (
        End(worker=WorkerId("w1"), force=Force.KILL, reason="still there 5 s after SIGTERM"),
    )


@pytest.mark.parametrize(
    ("phase", "last_phase", "grace_s"),
    [
        (JobPhase.FINISHED, TRAINING, 20.0),
        (JobPhase.STOPPED, FINISHED, 20.0),
        (JobPhase.FAILED, TRAINING, 1.0),
        (JobPhase.FINISHED, PREPARING, 1.0),
        (JobPhase.STOPPED, None, 1.0),
    ],
)
def test_after_the_jobs_end_workers_may_end_by_themselves_for_a_while(
    phase: JobPhase, last_phase: WorkerPhase | None, grace_s: float
) -> None:
    seen = view(status=JobStatus(phase=phase))
    here = observed(seen, node(process("w1", last_phase)), 10.0)
    waiting = plan(seen, here, 10.0)
    assert (waiting.ends, waiting.wake_at_s) == ((), 10.0 + grace_s)
    later = 10.0 + grace_s
    assert [end.worker for end in plan(seen, observed(seen, here, later), later).ends] == ["w1"]


def test_what_a_script_does_after_the_end_of_training_takes_as_long_as_it_takes() -> None:
    seen = view(status=JobStatus(phase=JobPhase.FINISHED))
    here = observed(seen, node(process("w1", FINISHED)), 10.0)
    assert plan(seen, observed(seen, here, 100_000.0), 100_000.0).ends == ()


# --- the end of the job ----------------------------------------------------------------------------


def test_a_job_stopped_before_anybody_trained_ends_at_once() -> None:
    made = plan(view(member("w1", PREPARING), stop=True), node(process("w1", PREPARING)))
    assert made.status == JobStatus(phase=JobPhase.STOPPED, message="stopped before the first step")


def test_a_stop_is_left_to_the_workers_while_one_of_them_trains() -> None:
    current = topology("w1")
    for seen, here in (
        (view(member("w1"), stop=True, current=current), node()),
        (view(stop=True, current=current), node(process("w1"))),
        (view(stop=True, current=current), node(process("w1", FINISHED))),
    ):
        assert plan(seen, here).status is None


def test_a_stop_with_nobody_left_to_save_the_state_is_a_failure() -> None:
    made = plan(view(stop=True, current=topology("w1")), node())
    assert made.status == JobStatus(
        phase=JobPhase.FAILED,
        message="asked to stop, but no worker was left to save the state; an earlier one is kept",
    )


def test_a_job_whose_workers_all_came_to_the_end_of_the_script_has_finished() -> None:
    here, failure = observe_exit(view(), node(process("w1", FINISHED)), WorkerId("w1"), 0, 9.0, SETTINGS)
    assert not failure
    made = plan(view(), here)
    assert made.status == JobStatus(
        phase=JobPhase.FINISHED, message="all workers came to the end of the script"
    )


def test_an_exit_record_takes_a_member_out_of_the_count() -> None:
    exits = {WorkerId("w1"): ExitRecord(worker=WorkerId("w1"), code=-9)}
    assert started_on(plan(view(member("w1"), wanted=1, exits=exits), node(devices=1))) == ["cpu:0"]


# --- properties ------------------------------------------------------------------------------------

PHASES = st.sampled_from([None, PREPARING, READY, TRAINING])


@given(
    phases=st.lists(PHASES, max_size=6),
    wanted=st.integers(1, 8),
    devices=st.integers(1, 8),
    leaving=st.sets(st.integers(1, 6)),
)
def test_starts_never_exceed_what_is_missing_nor_use_a_device_twice(
    phases: list[WorkerPhase | None], wanted: int, devices: int, leaving: set[int]
) -> None:
    processes = [process(f"w{i + 1}", phase) for i, phase in enumerate(phases)]
    members = [member(p.worker, p.last_phase) for p in processes if p.last_phase is not None]
    seen = view(*members, wanted=wanted, leaving={WorkerId(f"w{i}"): Leave.SWAP for i in leaving})
    here = node(*processes, devices=devices)
    made = plan(seen, here)
    started = started_on(made)
    in_use = {p.device for p in processes}
    assert len(set(started)) == len(started)
    assert not in_use & set(started)
    staying = [p for p in processes if p.worker not in seen.spec.leaving]
    assert len(started) <= max(0, wanted - len(staying))
    assert not (started and any("not needed" in end.reason for end in made.ends))
    if len(staying) < wanted and set(here.devices) - in_use:
        assert started
