"""What an autoscaler did, read from events that are written down here."""

from typing import Any

import pytest

from elastane.core.autoscaler import AutoscaleSettings, Worth
from elastane.core.utility import Linear
from elastane.observe.autoscaling import AutoscaleStory, SizeChoice, SizeRow, tell_autoscale
from elastane.observe.events import Event

SETTINGS = AutoscaleSettings(maximum=4)


def event(at_s: float, workers: int, wanted: int, rates: dict[int, float], **more: Any) -> Event:
    fields = {
        "step": 10 * workers,
        "elapsed_s": at_s - 1000.0,
        "remaining_samples": 10_000.0,
        "workers": workers,
        "wanted": wanted,
        "settled": False,
        "samples_per_s": {str(size): rate for size, rate in rates.items()},
        "reason": f"{workers} -> {wanted}",
    }
    return Event(at_s=at_s, kind="autoscale", source="w1", fields={**fields, **more})


SEARCH = [
    Event(at_s=1001.0, kind="switched", source="w1", fields={"generation": 2}),
    event(1010.0, 1, 2, {1: 100.0}),
    event(1020.0, 2, 3, {1: 100.0, 2: 150.0}, remaining_samples=9_000.0),
    event(1030.0, 3, 2, {1: 100.0, 2: 150.0, 3: 150.0}, remaining_samples=7_500.0, settled=True),
]


def test_each_size_is_shown_with_what_was_measured_and_what_follows_from_it() -> None:
    story = tell_autoscale(SEARCH, SETTINGS)
    assert story.settled == 2
    assert [(row.workers, row.measured, row.chosen) for row in story.rows] == [
        (1, 100.0, False),
        (2, 150.0, True),
        (3, 150.0, False),
        (4, None, False),
    ]
    assert [row.efficiency for row in story.rows[:3]] == [None, pytest.approx(0.5), pytest.approx(0.0)]
    assert [row.ends_in_s for row in story.rows[:3]] == [75.0, 50.0, 50.0]
    assert [row.worker_s for row in story.rows[:3]] == [75.0, 100.0, 150.0]
    assert {row.worth for row in story.rows} == {row.cost for row in story.rows} == {None}


def test_a_size_that_was_not_tried_is_predicted_and_judged_by_predictions_alone() -> None:
    last = tell_autoscale(SEARCH, SETTINGS).rows[-1]
    assert last.throughput == last.predicted
    assert 100.0 < last.predicted < 160.0
    assert last.efficiency is not None
    assert last.efficiency < 0.1
    assert last.ends_in_s == pytest.approx(7_500.0 / last.predicted)


def test_measured_sizes_are_compared_with_measured_ones_across_those_passed_over() -> None:
    story = tell_autoscale([event(1010.0, 4, 4, {1: 100.0, 4: 250.0})], SETTINGS)
    one, two, _, four = (row.efficiency for row in story.rows)
    assert (one, four) == (None, pytest.approx(0.5))
    assert two is not None
    assert 0.5 < two < 1.0


def test_worth_and_cost_are_those_at_the_newest_decision() -> None:
    worth = Worth(utility=Linear(200.0, 50.0), price=0.1)
    rows = tell_autoscale(SEARCH, AutoscaleSettings(maximum=3, worth=worth)).rows
    # 30 s are gone, and 75 or 50 more to come.
    assert [row.worth for row in rows] == pytest.approx([50 * (1 - 105 / 200), 50 * (1 - 80 / 200), 30.0])
    assert [row.cost for row in rows] == pytest.approx([7.5, 10.0, 15.0])


def test_decisions_are_told_in_order_with_their_reasons() -> None:
    story = tell_autoscale(SEARCH, SETTINGS)
    assert story.choices[0] == SizeChoice(
        at_s=1010.0, elapsed_s=10.0, step=10, workers=1, wanted=2, settled=False, reason="1 -> 2"
    )
    assert [choice.wanted for choice in story.choices] == [2, 3, 2]


def test_a_later_search_replaces_what_it_measured_anew_and_keeps_the_rest() -> None:
    again = event(2000.0, 2, 3, {2: 120.0}, settled=False)
    story = tell_autoscale([*SEARCH, again], SETTINGS)
    assert [row.measured for row in story.rows] == [100.0, 120.0, 150.0, None]
    assert story.settled is None
    assert not any(row.chosen for row in story.rows)


def test_sizes_lie_on_the_grid_of_the_search_and_end_at_the_virtual_workers() -> None:
    settings = AutoscaleSettings(minimum=2, maximum=9, step=2)
    story = tell_autoscale([event(1010.0, 3, 5, {3: 100.0})], settings)
    assert [row.workers for row in story.rows] == [2, 3, 4, 6, 8]
    story = tell_autoscale([event(1010.0, 3, 5, {3: 100.0})], settings, virtual_workers=6)
    assert [row.workers for row in story.rows] == [2, 3, 4, 6]


def test_before_the_first_decision_there_is_nothing_to_show() -> None:
    assert tell_autoscale(SEARCH[:1], SETTINGS) == AutoscaleStory(rows=(), choices=(), settled=None)


def test_events_that_do_not_say_what_is_left_give_a_table_without_times() -> None:
    old = event(1010.0, 1, 2, {1: 100.0})
    fields = {k: v for k, v in old.fields.items() if k not in ("step", "elapsed_s", "remaining_samples")}
    story = tell_autoscale([Event(at_s=1010.0, kind="autoscale", source="w1", fields=fields)], SETTINGS)
    assert story.rows[0] == SizeRow(workers=1, measured=100.0, predicted=pytest.approx(100.0))
    assert (story.choices[0].elapsed_s, story.choices[0].step) == (None, None)
