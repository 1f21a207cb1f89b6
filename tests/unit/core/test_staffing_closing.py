"""How a job ends if no worker is left that could say so."""

from staffing_world import FINISHED, PREPARING, SETTINGS, member, node, plan, process, topology, view

from elastane.core.staffing import (
    observe_exit,
)
from elastane.model.ids import WorkerId
from elastane.model.records import (
    JobPhase,
    JobStatus,
)


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
