"""Which generation the records ask for."""

from typing import Any

import pytest
from protocol_records import (
    PREPARING,
    READY,
    dismissed,
    exited,
    record,
    topology,
    view,
)

from elastane.core.desired import Change, plan_change
from elastane.core.view import JobView, compute_needed
from elastane.model.ids import WorkerId
from elastane.model.records import Leave, MemberRecord, ModelSignature
from elastane.model.topology import Mode, Topology

A, B, C, D = (WorkerId(w) for w in "abcd")
AB = topology("a", "b")


def change(mode: Mode, *names: str, reason: str, **more: object) -> Change:
    return Change(mode=mode, members=topology(*names).members, reason=reason, **more)


def test_no_more_workers_train_than_there_are_virtual_workers() -> None:
    assert compute_needed(view(wanted=3)) == 3
    assert compute_needed(view(wanted=9)) == 4
    assert compute_needed(view(wanted=9, signature=None)) == 9
    assert compute_needed(view(wanted=0)) == 1


def test_under_a_batch_policy_each_worker_is_one_virtual_worker() -> None:
    shared = ModelSignature(virtual_workers=64, batch="FixedGlobal(64)", entries=())
    ready = [record(name, READY) for name in "abc"]
    planned = plan_change(view(*ready, wanted=3, signature=shared))
    assert isinstance(planned, Change)
    assert [tuple(m.vranks) for m in planned.members] == [(0, 1), (1, 2), (2, 3)]
    assert compute_needed(view(wanted=65, signature=shared)) == 64


# --- the start -------------------------------------------------------------------------------------


def test_a_job_starts_with_those_that_are_ready() -> None:
    picture = view(record("b", READY), record("a", READY), record("c", PREPARING), record("d", READY))
    reason = "start with 2 of 2 wanted workers"
    assert plan_change(picture) == change(Mode.START, "a", "b", joining=(A, B), reason=reason)


@pytest.mark.parametrize(
    "picture",
    [
        view(),
        view(record("a", PREPARING)),
        view(record("a", READY), signature=None),
        view(record("a", READY), leaving={A: Leave.NOW}),
        view(record("a", READY), dismissed=dismissed("a")),
    ],
)
def test_a_job_without_a_ready_worker_does_not_start(picture: JobView) -> None:
    assert plan_change(picture) is None


def test_a_job_that_is_to_stop_does_not_start() -> None:
    assert plan_change(view(record("a", READY), stop=True)) == "stopped before training began"


# --- failures --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("picture", "reason"),
    [
        (view(record("a"), current=AB), "lost b (no sign of life for the length of its lease)"),
        (view(record("a"), record("b"), current=AB, exits=exited("b", -9)), "lost b (killed by signal 9)"),
        (view(record("a"), record("b"), current=AB, exits=exited("b", 3)), "lost b (exit code 3)"),
        (view(record("a"), record("b"), current=AB, dismissed=dismissed("b")), "lost b (dismissed)"),
    ],
)
def test_survivors_go_on_without_who_is_lost(picture: JobView, reason: str) -> None:
    assert plan_change(picture) == change(Mode.RECOVERY, "a", reason=reason)


def test_members_that_lost_contact_form_a_new_generation() -> None:
    picture = view(record("a", broken=1), record("b"), current=AB)
    assert plan_change(picture) == change(Mode.RECOVERY, "a", "b", reason="a lost contact with a peer")


def test_a_spare_takes_the_place_of_who_is_lost() -> None:
    picture = view(record("a"), record("c", READY), record("d", READY), current=AB, exits=exited("b"))
    reason = "lost b (killed by signal 9)"
    assert plan_change(picture) == change(Mode.RECOVERY, "a", "c", joining=(C,), reason=reason)


def test_a_leaver_lost_before_all_have_entered_is_a_failure() -> None:
    current = topology("a", generation=2, leaving=(B, C))
    picture = view(record("a"), record("c"), current=current)
    reason = "lost b (no sign of life for the length of its lease)"
    assert plan_change(picture) == change(Mode.RECOVERY, "a", leaving=(C,), reason=reason)
    entered = view(record("a", generation=2), wanted=1, current=current)
    assert plan_change(entered) is None


def test_leavers_go_on_where_no_member_is_left() -> None:
    picture = view(record("b"), current=topology("a", generation=2, leaving=(B,)), exits=exited("a"))
    assert plan_change(picture) == change(Mode.RECOVERY, "b", reason="lost a (killed by signal 9)")


def test_a_leaver_that_went_as_asked_is_not_told_among_the_lost() -> None:
    current = topology("a", generation=2, leaving=(B,))
    picture = view(current=current, exits={**exited("a"), **exited("b", 0)}, stop=True)
    lost = "lost a (killed by signal 9)"
    assert plan_change(picture) == f"{lost}, and no worker that holds the job's state is left"


def lost_job(*records: MemberRecord, **more: Any) -> JobView:
    """Return a picture of a job whose two members were killed."""
    return view(*records, current=AB, exits={**exited("a"), **exited("b")}, **more)


ALL_LOST = "lost a (killed by signal 9), b (killed by signal 9)"


def test_a_job_that_everybody_was_lost_of_goes_on_with_those_that_have_loaded_a_checkpoint() -> None:
    late = record("e", READY, restored_after=1)
    picture = lost_job(record("c", READY), record("d", READY, restored_after=1), late, wanted=2)
    reason = f"{ALL_LOST}, and nobody is left that holds the job's state: on from the newest checkpoint"
    assert plan_change(picture) == change(Mode.RESTORE, "d", "e", joining=(D, WorkerId("e")), reason=reason)


def test_a_newcomer_without_a_checkpoint_is_sent_it_by_one_that_has_it() -> None:
    picture = lost_job(record("c", READY), record("d", READY, restored_after=1), wanted=2)
    planned = plan_change(picture)
    assert isinstance(planned, Change)
    assert [m.worker for m in planned.members] == [D, C]


@pytest.mark.parametrize("restored_after", [0, 7])
def test_nobody_begins_without_the_newest_checkpoint(restored_after: int) -> None:
    assert plan_change(lost_job(record("c", READY, restored_after=restored_after))) is None


def test_a_lost_job_that_was_asked_to_stop_ends() -> None:
    picture = lost_job(record("c", READY, restored_after=1), stop=True)
    assert plan_change(picture) == f"{ALL_LOST}, and no worker that holds the job's state is left"


def test_a_stop_whose_workers_are_all_lost_cannot_go_on() -> None:
    stop = topology(generation=2, mode=Mode.STOP, leaving=(A,))
    lost = "lost a (no sign of life for the length of its lease)"
    assert plan_change(view(current=stop)) == f"{lost}, and no worker that holds the job's state is left"


def test_a_start_that_somebody_has_not_entered_begins_anew() -> None:
    current = topology("a", "b", mode=Mode.START)
    picture = view(record("b", READY), record("c", READY), current=current, exits=exited("a"))
    reason = "lost a (killed by signal 9)"
    assert plan_change(picture) == change(Mode.START, "b", "c", joining=(C,), reason=reason)


def test_a_start_that_all_have_entered_is_recovered() -> None:
    picture = view(record("b"), current=topology("a", "b", mode=Mode.START), exits=exited("a"))
    assert plan_change(picture) == change(Mode.RECOVERY, "b", reason="lost a (killed by signal 9)")


# --- planned changes -------------------------------------------------------------------------------


def settled(*records: object, current: Topology = AB, **more: object) -> JobView:
    return view(record("a"), record("b"), *records, current=current, **more)


@pytest.mark.parametrize(
    "picture",
    [
        settled(),
        settled(record("c", READY)),
        settled(record("c", PREPARING), wanted=3),
        settled(record("c", READY), wanted=3, current=topology("a", "b", generation=2)),  # not yet entered
        settled(stop=True, current=topology("a", "b", generation=2)),
        view(record("a", generation=2), current=topology(generation=2, mode=Mode.STOP, leaving=(A,))),
        settled(leaving={A: Leave.SWAP}),  # until somebody can take its place
        view(record("a"), wanted=1, current=topology("a"), leaving={A: Leave.SWAP}),
    ],
)
def test_nothing_is_due(picture: JobView) -> None:
    assert plan_change(picture) is None


@pytest.mark.parametrize(
    ("picture", "expected"),
    [
        (
            settled(stop=True),
            Change(mode=Mode.STOP, members=(), leaving=(A, B), reason="asked to stop"),
        ),
        (
            settled(record("c", READY), wanted=3),
            change(Mode.PLANNED, "a", "b", "c", joining=(C,), reason="2 -> 3 workers, 3 wanted: c joins"),
        ),
        (
            settled(wanted=1),
            change(
                Mode.PLANNED,
                "a",
                leaving=(B,),
                reason="2 -> 1 workers, 1 wanted: b leaves (no longer wanted)",
            ),
        ),
        (
            settled(leaving={A: Leave.NOW}),
            change(
                Mode.PLANNED,
                "b",
                leaving=(A,),
                reason="2 -> 1 workers, 2 wanted: a leaves (asked to leave)",
            ),
        ),
        (
            settled(record("c", READY), leaving={A: Leave.SWAP}),
            change(
                Mode.PLANNED,
                "c",
                "b",
                leaving=(A,),
                joining=(C,),
                reason="2 -> 2 workers, 2 wanted: c joins, a leaves (replaced)",
            ),
        ),
        (
            view(record("a"), wanted=1, current=topology("a"), leaving={A: Leave.NOW}),
            Change(mode=Mode.STOP, members=(), leaving=(A,), reason="the last worker was asked to leave"),
        ),
    ],
)
def test_a_change_is_due(picture: JobView, expected: Change) -> None:
    assert plan_change(picture) == expected


def test_of_two_that_are_to_be_replaced_the_first_stays_until_there_is_a_second_newcomer() -> None:
    picture = settled(record("c", READY), leaving={A: Leave.SWAP, B: Leave.SWAP})
    reason = "2 -> 2 workers, 2 wanted: c joins, b leaves (replaced)"
    expected = change(Mode.PLANNED, "a", "c", leaving=(B,), joining=(C,), reason=reason)
    assert plan_change(picture) == expected


# --- placement by measured speeds ------------------------------------------------------------------


def widths(planned: Change | str | None) -> dict[WorkerId, int]:
    assert isinstance(planned, Change)
    return {m.worker: m.vranks.width for m in planned.members}


def test_the_same_members_change_places_when_one_was_measured_to_be_slow() -> None:
    picture = view(record("a"), record("b"), current=AB, speeds={A: 10.0, B: 2.5})
    planned = plan_change(picture)
    assert widths(planned) == {A: 3, B: 1}
    assert isinstance(planned, Change)
    assert (planned.mode, planned.leaving, planned.joining) == (Mode.PLANNED, (), ())
    assert planned.reason == "rebalanced by the workers' speeds: 800 -> 400 ms a step"
    # What was planned is final.
    moved = Topology(generation=1, mode=Mode.PLANNED, members=planned.members)
    assert plan_change(view(record("a"), record("b"), current=moved, speeds={A: 10.0, B: 2.5})) is None


@pytest.mark.parametrize("speeds", [{}, {A: 10.0, B: 9.9}, {A: 10.0}, {C: 1.0}])
def test_members_keep_their_places_when_moving_is_not_worth_it(speeds: dict[WorkerId, float]) -> None:
    assert plan_change(view(record("a"), record("b"), current=AB, speeds=speeds)) is None


def test_under_a_batch_policy_speeds_place_nobody() -> None:
    shared = ModelSignature(virtual_workers=64, batch="FixedGlobal(64)", entries=())
    two = view(record("a"), record("b"), current=AB, speeds={A: 10.0, B: 1.0}, signature=shared)
    assert plan_change(two) is None


def test_any_other_change_places_by_speed_too_and_newcomers_count_as_most_of_the_others() -> None:
    grown = plan_change(
        view(record("a"), record("b"), record("c", READY), current=AB, wanted=3, speeds={A: 10.0, B: 5.0})
    )
    assert widths(grown) == {A: 2, B: 1, C: 1}
    lost = view(record("a"), record("c"), current=topology("a", "b", "c"), wanted=3, speeds={A: 9.0, C: 3.0})
    assert widths(plan_change(lost)) == {A: 3, C: 1}
    first = view(record("a", READY), record("b", READY), speeds={A: 9.0, B: 3.0})
    assert widths(plan_change(first)) == {A: 3, B: 1}


def test_a_worker_that_waits_for_its_successor_is_still_relieved() -> None:
    swap = view(record("a"), record("b"), current=AB, leaving={B: Leave.SWAP}, speeds={A: 10.0, B: 2.5})
    assert widths(plan_change(swap)) == {A: 3, B: 1}
