"""Two runs are equal only if every bit is, and costs are those that the job told."""

import math

from demo.compare import Cost, Run, compare_runs, compute_costs, compute_recovery_s, compute_step_time_s
from demo.story import Act, Deed, Scene
from demo_jobs import make_change, make_join, make_record

RECORDS = tuple(make_record(step, 1.0 / (step + 1)) for step in range(5))


def test_equal_runs_have_no_difference_though_they_took_other_times() -> None:
    other = tuple(make_record(r.step, r.values["loss"], at_s=7.0, workers=2, generation=3) for r in RECORDS)
    assert compare_runs(Run(digest="a", records=RECORDS), Run(digest="a", records=other)) == []


def test_one_bit_of_one_loss_is_a_difference() -> None:
    other = list(RECORDS)
    other[3] = make_record(3, math.nextafter(0.25, 1.0))
    assert compare_runs(Run(digest="a", records=RECORDS), Run(digest="a", records=tuple(other))) == [
        "first unequal step: 3: elastic epoch 0, 128 samples, loss 0.25, "
        "plain epoch 0, 128 samples, loss 0.25000000000000006"
    ]


def test_another_state_and_missing_steps_are_differences() -> None:
    assert compare_runs(Run(digest="a", records=RECORDS), Run(digest="b", records=RECORDS[:-1])) == [
        "steps: 5 in the elastic run, 4 in the plain one",
        "final state: elastic sha256 a, plain sha256 b",
    ]


def test_a_nan_equals_itself_and_minus_zero_is_not_zero() -> None:
    nan, zero, minus = (Run(digest="a", records=(make_record(0, x),)) for x in (math.nan, 0.0, -0.0))
    assert compare_runs(nan, nan) == []
    assert len(compare_runs(zero, minus)) == 1


def test_each_change_has_its_cost_and_a_kill_counts_until_the_next_step() -> None:
    out = Scene(act=Act(deed=Deed.SCALE_OUT, title="", at=0.1), asked_at_s=100.5)
    out.changes = (make_change(2, "planned", step=1, joined=(make_join("w2", 0.3),)),)
    kill = Scene(act=Act(deed=Deed.KILL, title="", at=0.2), asked_at_s=102.5)
    kill.changes = (
        make_change(3, "recovery", step=3),
        make_change(4, "planned", step=4, joined=(make_join("w3", 0.4),), stop_s=0.02),
    )
    records = [make_record(step, generation=min(step, 3)) for step in range(5)]
    assert compute_costs([out, kill], records) == [
        Cost(what="scale out", step=1, stop_s=0.01, join_s=0.3),
        Cost(what="SIGKILL to next step", step=3, stop_s=0.5, join_s=None),
        Cost(what="replacement joins", step=4, stop_s=0.02, join_s=0.4),
    ]


def test_a_recovery_without_a_step_after_it_has_no_time() -> None:
    assert compute_recovery_s(1.0, 2, RECORDS) is None


def test_the_usual_step_time_is_the_median() -> None:
    times_s = (0.3, 0.1, 0.2)
    assert compute_step_time_s([make_record(i, step_time_s=t) for i, t in enumerate(times_s)]) == 0.2
    assert math.isnan(compute_step_time_s([]))
