"""What the rows about transient devices and the live autoscaler make of their runs."""

import pytest
from benchmarks.analysis import Commit
from benchmarks.autoscaler_live import LiveRun, choose_by_rule, describe_live
from benchmarks.transient_devices import (
    IDLE,
    Cycle,
    compute_at_leisure,
    compute_cycle,
    describe,
    measure_step_times,
    read_step_times,
)

STEP_TIMES = {4: 1.0, 8: 0.5}


def commits(*spells: tuple[float, float, int]) -> list[Commit]:
    """Steps from 0 s on; each spell is (until when, the time of a step, workers)."""
    found = [Commit(step=0, at_s=0.0, workers=4)]
    for until_s, every_s, workers in spells:
        while found[-1].at_s + every_s <= until_s + 1e-9:
            found.append(Commit(step=len(found), at_s=found[-1].at_s + every_s, workers=workers))
    return found


def test_a_cycle_is_compared_with_devices_that_train_from_the_moment_they_come() -> None:
    # They come at 10 s, train from 12 s on, go at 30 s; the next ones come at 50 s.
    log = commits((12.0, 1.0, 4), (30.0, 0.5, 8), (60.0, 1.0, 4))
    cycle = compute_cycle(log, (10.0, 30.0, 50.0), (4, 8), {4: 1.0, 8: 0.4}, STEP_TIMES)
    assert cycle == Cycle(steps=58.0, ideal=60.0, ideal_of_curve=70.0, fixed=40.0, length_s=40.0)


def test_at_four_minutes_as_many_steps_are_lost_of_more() -> None:
    cycle = Cycle(steps=58.0, ideal=60.0, ideal_of_curve=60.0, fixed=40.0, length_s=48.0)
    assert compute_at_leisure(cycle) == pytest.approx(1 - 2 / 60 / 10)


def test_the_time_of_a_step_is_the_median_for_each_number_of_workers() -> None:
    assert measure_step_times(commits((4.0, 1.0, 4), (8.0, 0.5, 8))) == {4: 1.0, 8: 0.5}


def test_the_figures_of_a_case_are_ratios_of_the_ideal_with_a_goal() -> None:
    cycle = Cycle(steps=59.7, ideal=60.0, ideal_of_curve=61.0, fixed=40.0, length_s=40.0)
    figures = describe(4, [cycle], [0.3, 0.4], [0.002])
    assert [(f.figure, f.goal) for f in figures if f.goal] == [("throughput, of the ideal", ">= 0.99")]
    assert figures[0].value == pytest.approx(0.995)
    assert {f.workload for f in figures} == {"4 + 4 devices"}


def test_step_times_come_from_the_curve_and_fall_with_more_devices() -> None:
    times = read_step_times()
    assert times[4] == 0.2
    assert all(times[4 + idle] < times[4] for idle in IDLE)


def test_the_rule_keeps_the_size_before_the_first_step_that_does_not_pay() -> None:
    assert choose_by_rule({1: 1.0, 2: 0.5, 3: 0.49}) == 2
    assert choose_by_rule({1: 1.0, 2: 0.5}) == 2


def test_a_live_search_is_weighed_against_an_hour_and_the_best_size() -> None:
    times = {1: 1.0, 2: 0.5, 3: 0.49}
    right = LiveRun(settled=2, changes=3, settled_after_s=20.0, lost_s=36.0)
    wrong = LiveRun(settled=1, changes=3, settled_after_s=20.0, lost_s=0.0)
    ratio = describe_live([right, wrong, right], times)[-1]
    assert (ratio.figure, ratio.min, ratio.max) == (
        "time, of the best by the rule",
        pytest.approx(1.01),
        pytest.approx(2.0),
    )
