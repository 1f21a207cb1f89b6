"""What an agent starts, for every state a job and a node can be in, and what it makes of failures."""

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from staffing_world import (
    FINISHED,
    PREPARING,
    READY,
    SETTINGS,
    TRAINING,
    member,
    node,
    plan,
    process,
    started_on,
    topology,
    view,
)

from elastane.core.staffing import (
    DeviceHistory,
    FailureKind,
    FailureLimits,
    StaffingPlan,
    Start,
    WorkerProcess,
    observe_exit,
    observe_processes,
    observe_progress,
    plan_staffing,
)
from elastane.core.view import JobView, compute_needed
from elastane.model.ids import DeviceId, WorkerId
from elastane.model.records import (
    Dismissal,
    ExitRecord,
    JobPhase,
    JobStatus,
    Leave,
    ModelSignature,
    WorkerPhase,
)
from elastane.model.topology import Mode

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
    assert made.waiting == "1 worker waits for a free device: all 2 of n are in use"


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
        waiting="1 worker waits for devices that rest after failures", wake_at_s=100.0 + rest_s
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


@pytest.mark.parametrize("code", [0, 75])
def test_a_worker_that_the_others_could_not_reach_counts_against_its_machine(code: int) -> None:
    order = Dismissal(reason="could not be connected to the others", unreachable=True)
    told = observe_processes(view(dismissed={WorkerId("w1"): order}), node(process("w1", READY)), 1.0)
    # Its order is gone from the store with the notice of its end.
    after, failure = observe_exit(view(), told, WorkerId("w1"), code, 2.0, SETTINGS)
    assert failure is FailureKind.MACHINE
    assert after.history[DeviceId("cpu:0")].failures == 1


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
