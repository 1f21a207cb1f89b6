"""Which processes an agent ends, when, and how hard."""

import pytest
from staffing_world import (
    FINISHED,
    PREPARING,
    READY,
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
    End,
    Force,
    NodeState,
    StaffingPlan,
    Start,
    observe_processes,
)
from elastane.core.view import JobView
from elastane.model.ids import DeviceId, WorkerId
from elastane.model.records import (
    Dismissal,
    JobPhase,
    JobStatus,
    Leave,
    WorkerPhase,
)


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
