"""What came of slow workers, read from logs that are written down here."""

from typing import Any

import pytest

from elastane.observe.events import Event
from elastane.observe.metrics import MetricsRecord
from elastane.observe.slowdowns import Pace, SlowDrill, Slowed, SlowReport, judge_slow_drill

DRILL = SlowDrill(drill="d", factors={"w2": 2.0}, begun_s=100.0, ended_s=140.0)
FOUND = {"suspects": ["w2"], "found_by": "streak", "slowness": {"w1": 1.0, "w2": 2.0}, "workers": []}


def steps(first: int, begin_s: float, end_s: float, every_s: float) -> list[MetricsRecord]:
    """Steps of 8 samples, committed at the end of each interval."""
    count = round((end_s - begin_s) / every_s)
    return [
        MetricsRecord(
            step=first + number,
            epoch=0,
            at_s=begin_s + (number + 1) * every_s,
            generation=1,
            workers=2,
            step_time_s=every_s,
            samples=8,
        )
        for number in range(count)
    ]


def curve(*spells: tuple[float, float]) -> list[MetricsRecord]:
    """Steps from 80 s on; each spell is (until when, the time of a step)."""
    records: list[MetricsRecord] = []
    begin_s = 80.0
    for until_s, every_s in spells:
        records += steps(len(records), begin_s, until_s, every_s)
        begin_s = until_s
    return records


def event(at_s: float, kind: str, **fields: Any) -> Event:
    return Event(at_s=at_s, kind=kind, source="w1", fields=fields)


def slowed(at_s: float = 100.0, worker: str = "w2", drill: str = "d") -> Event:
    return event(at_s, "slowed", worker=worker, factor=2.0, drill=drill)


def straggler(at_s: float, action: str, **fields: Any) -> Event:
    return event(at_s, "straggler", action=action, reason=f"so {action}", **{**FOUND, **fields})


METRICS = curve((100.0, 0.5), (120.0, 1.0), (140.0, 0.75), (160.0, 0.5))


def test_a_worker_that_was_found_and_relieved_is_told_with_the_steps_it_took() -> None:
    events = [
        slowed(),
        straggler(112.2, "rebalance"),
        event(120.0, "switched", generation=2),
        event(139.9, "slowed_no_more", worker="w2", drill="d"),
    ]
    assert judge_slow_drill(DRILL, METRICS, events) == SlowReport(
        slowed=(
            Slowed(
                worker="w2",
                factor=2.0,
                steps=46,
                found_after=12,
                found_by="streak",
                answer="rebalance",
                answered_after=20,
                reason="so rebalance",
            ),
        ),
        accused=(),
        pace=Pace(before=16.0, slow=8.0, answered=pytest.approx(8 / 0.75), afterwards=16.0),
        steps=46,
    )


def test_a_decision_to_bear_counts_as_found_and_the_deed_that_follows_as_the_answer() -> None:
    events = [
        slowed(),
        straggler(112.2, "bear"),
        straggler(115.2, "replace", workers=["w2"]),
        event(120.0, "switched", generation=2),
        event(120.1, "left", worker="w2"),
    ]
    (one,) = judge_slow_drill(DRILL, METRICS, events).slowed
    assert (one.found_after, one.answer, one.answered_after, one.steps) == (12, "replace", 20, 20)
    (one,) = judge_slow_drill(DRILL, METRICS, events[:2]).slowed
    assert (one.found_after, one.answer, one.answered_after) == (12, "bear", None)


def test_a_placement_by_measured_speeds_counts_as_found_for_those_that_were_measured_to_be_slow() -> None:
    moved = straggler(107.2, "rebalance", suspects=[], found_by="speeds")
    (one,) = judge_slow_drill(DRILL, METRICS, [slowed(), moved]).slowed
    assert (one.found_after, one.found_by) == (7, "speeds")
    equal = straggler(107.2, "rebalance", suspects=[], slowness={"w1": 1.0, "w2": 1.04, "w3": 2.0})
    (one,) = judge_slow_drill(DRILL, METRICS, [slowed(), equal]).slowed
    assert (one.found_after, one.answer) == (None, "")


def test_a_worker_that_is_not_found_in_time_is_trouble_if_somebody_looked() -> None:
    metrics = curve((100.0, 0.5), (140.0, 0.5), (150.0, 0.5))
    report = judge_slow_drill(DRILL, metrics, [slowed()])
    assert report.trouble == ("w2 was 2 times as slow for 80 steps, and not found",)
    assert not report.passed
    unanswered = SlowDrill(drill="d", factors={"w2": 2.0}, begun_s=100.0, ended_s=140.0, findable=False)
    assert judge_slow_drill(unanswered, metrics, [slowed()]).passed
    little = SlowDrill(drill="d", factors={"w2": 1.1}, begun_s=100.0, ended_s=140.0)
    assert judge_slow_drill(little, metrics, [slowed()]).passed
    brief = curve((100.0, 0.5), (140.0, 1.0), (150.0, 0.5))
    assert judge_slow_drill(DRILL, brief, [slowed()]).passed


def test_a_worker_that_never_obeyed_is_trouble_and_an_earlier_drill_is_no_excuse() -> None:
    report = judge_slow_drill(DRILL, METRICS, [slowed(drill="another")])
    assert report.slowed == (Slowed(worker="w2", factor=2.0, steps=0),)
    assert report.trouble == ("w2 was never slow: it has not seen the order",)


def test_a_worker_whose_events_nobody_sees_is_taken_to_be_slow_from_the_beginning() -> None:
    unseen = SlowDrill(drill="d", factors={"w2": 2.0}, begun_s=100.0, ended_s=140.0, unseen=frozenset({"w2"}))
    report = judge_slow_drill(unseen, METRICS, [straggler(112.2, "bear")])
    assert (report.slowed[0].found_after, report.passed) == (12, True)


def test_the_end_of_an_earlier_drill_is_not_taken_for_that_of_the_one_that_replaced_it() -> None:
    ends = event(100.5, "slowed_no_more", worker="w2", drill="earlier")
    metrics = curve((100.0, 0.5), (140.0, 0.5), (150.0, 0.5))
    late = event(101.0, "slowed_no_more", worker="w2", drill="earlier")
    for events in (
        [ends, slowed(100.5)],
        [slowed(100.5), late],
        [event(100.2, "left", worker="w2"), slowed(100.5)],
    ):
        report = judge_slow_drill(DRILL, metrics, events)
        assert report.slowed[0].steps == 79
        assert report.trouble == ("w2 was 2 times as slow for 79 steps, and not found",)


def test_whoever_is_called_slow_without_a_drill_is_told() -> None:
    busy = SlowDrill(drill="d", factors={}, processes=2, begun_s=100.0, ended_s=140.0)
    report = judge_slow_drill(busy, METRICS, [straggler(110.0, "bear", suspects=["w1", "w3"])])
    assert (report.slowed, report.accused, report.passed) == ((), ("w1", "w3"), True)
    assert report.pace == Pace(before=16.0, slow=pytest.approx(8 / 0.75), afterwards=16.0)
    both = judge_slow_drill(DRILL, METRICS, [slowed(), straggler(110.0, "bear", suspects=["w2", "w3"])])
    assert both.accused == ("w3",)


def test_losses_and_gaps_are_trouble_and_what_was_before_is_not() -> None:
    lost = {"worker": "w1", "failure": True}
    events = [event(99.0, "worker_exited", **lost), slowed(), event(150.0, "worker_exited", **lost)]
    gap = [record for record in METRICS if record.step not in (44, 45)]
    report = judge_slow_drill(DRILL, gap, [*events, event(151.0, "failed", reason="no state")])
    assert report.missing_steps == 2
    assert report.trouble == ("the loss curve lacks 2 steps", "w1 was lost", "the job failed: no state")


def test_the_step_that_was_slow_in_part_only_is_left_out() -> None:
    partly = [*steps(0, 90.0, 100.0, 1.0), *steps(10, 100.0, 101.0, 1.0), *steps(11, 101.0, 103.0, 2.0)]
    report = judge_slow_drill(DRILL, partly, [slowed(100.5)])
    assert report.pace == Pace(before=8.0, slow=4.0)


def test_spells_without_steps_have_no_throughput() -> None:
    assert judge_slow_drill(DRILL, [], [slowed()]).pace == Pace()
    no_samples = [MetricsRecord(step=0, epoch=0, at_s=90.0, generation=1, workers=2, step_time_s=0.5)]
    assert judge_slow_drill(DRILL, no_samples, [slowed()]).pace == Pace(before=2.0)
