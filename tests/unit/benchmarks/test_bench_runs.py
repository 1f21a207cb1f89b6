"""What rows make of their runs: turns, joins, restarts, and the picture of a change."""

import time

from benchmarks.analysis import Commit
from benchmarks.changes import find_marks
from benchmarks.figures import Chart, Series
from benchmarks.pairs import Turns, compute_steps_between, measure_call_s, take_turns
from benchmarks.restart import Restart, compute_restart
from benchmarks.timeline import make_chart

from elastane.observe.events import Event


def test_two_systems_take_turns_and_each_is_first_every_other_time() -> None:
    order: list[str] = []

    def ours() -> list[float]:
        order.append("ours")
        return [1.0, 2.0, 6.0]

    def theirs() -> list[float]:
        order.append("theirs")
        return [2.0, 4.0]

    turns = take_turns(ours, theirs, 3)

    assert order == ["ours", "theirs", "theirs", "ours", "ours", "theirs"]
    assert turns == Turns(ours=[[1.0, 2.0, 6.0]] * 3, theirs=[[2.0, 4.0]] * 3)
    assert (turns.our_medians, turns.our_means) == ([2.0] * 3, [3.0] * 3)
    assert (turns.their_medians, turns.their_means) == ([3.0] * 3, [3.0] * 3)


def test_steps_are_the_times_between_stamps() -> None:
    assert compute_steps_between([1.0, 3.0, 7.0]) == [2.0, 4.0]


def test_a_call_is_timed_by_the_monotonic_clock() -> None:
    assert measure_call_s(time.monotonic) >= 0.0


def event(kind: str, at_s: float, **fields: object) -> Event:
    return Event(at_s=at_s, kind=kind, source="test", fields=fields)


def test_the_phases_of_a_join_end_with_the_events_of_the_worker_that_joined() -> None:
    events = [
        event("worker_starting", 1.0, worker="w2"),
        event("worker_started", 2.0, worker="w2"),
        event("worker_ready", 3.0, worker="w2"),
        event("worker_starting", 3.5, worker="w3"),
        event("joined", 4.0, worker="w2", generation=5),
        event("joined", 9.0, worker="w3", generation=6),
    ]

    assert find_marks(events, 5) == {
        "noticed by the agent": 1.0,
        "process started": 2.0,
        "script ran, step rehearsed": 3.0,
        "links, switch, state moved": 4.0,
    }


def test_a_generation_that_nobody_joined_has_no_phases() -> None:
    assert find_marks([event("joined", 4.0, worker="w2", generation=5)], 6) == {}


def test_a_restart_stops_the_job_and_repeats_steps() -> None:
    alone = [Commit(step=step, at_s=float(step), workers=1) for step in range(5)]
    together = [Commit(step=step, at_s=14.0 + step, workers=2) for step in (2, 3, 4)]

    assert compute_restart([*alone, *together], 3.5) == Restart(stop_s=11.0, latency_s=12.5, repeated_steps=3)


def test_a_picture_shows_every_step_at_its_time_with_the_pause_before_it() -> None:
    commits = [
        Commit(step=7, at_s=10.0, workers=1),
        Commit(step=8, at_s=10.5, workers=1),
        Commit(step=9, at_s=11.5, workers=2),
        Commit(step=10, at_s=11.75, workers=2),
        Commit(step=11, at_s=12.0, workers=2),
    ]

    chart = make_chart("digits", commits, requested_at_s=10.25, switch_step=9, around=2)

    assert chart == Chart(
        name="timeline-digits",
        title="digits: from one to two workers",
        x_label="seconds since the request",
        y_label="milliseconds since the commit before",
        series=[
            Series(label="1 worker", points=[(0.25, 500.0)]),
            Series(label="2 workers", points=[(1.25, 1000.0), (1.5, 250.0)]),
        ],
        marks=[(0.0, "request"), (1.25, "first step together")],
    )
