"""What rows make of their runs: turns, joins, restarts, and the picture of a change."""

import json
import time
from pathlib import Path

from benchmarks.analysis import Commit
from benchmarks.changes import name_phases
from benchmarks.figures import Chart, Series, Target, make_figure
from benchmarks.pairs import Turn, Turns, compute_steps_between, make_turn_figures, measure_call_s, take_turns
from benchmarks.restart import Restart, compute_restart
from benchmarks.stock import read_turn
from benchmarks.timeline import make_chart

from elastane.model.ids import WorkerId
from elastane.observe.joins import JoinPhase, JoinReport


def test_two_systems_take_turns_and_each_is_first_every_other_time() -> None:
    order: list[str] = []

    def turn(name: str, cpu_s: float) -> Turn:
        order.append(name)
        return Turn(periods=[1.0, 2.0, 6.0], cpu_s=cpu_s)

    turns = take_turns(lambda: turn("ours", 1.0), lambda: turn("theirs", 2.0), 3)

    assert order == ["ours", "theirs", "theirs", "ours", "ours", "theirs"]
    assert turns == Turns(
        ours=[Turn(periods=[1.0, 2.0, 6.0], cpu_s=1.0)] * 3,
        theirs=[Turn(periods=[1.0, 2.0, 6.0], cpu_s=2.0)] * 3,
    )


def test_turns_are_compared_by_their_median_and_mean_steps_and_by_their_processor_time() -> None:
    turns = Turns(
        ours=[Turn(periods=[1.0, 2.0, 6.0], cpu_s=1.0)], theirs=[Turn(periods=[4.0, 4.0], cpu_s=2.0)]
    )
    target = Target(goal="<= 1")

    figures = make_turn_figures(turns, "digits", "DDP", target)

    assert figures == [
        make_figure("step time / DDP", "digits", [0.5], "ratio", target),
        make_figure("mean step time / DDP", "digits", [0.75], "ratio"),
        make_figure("processor time per step / DDP", "digits", [0.5], "ratio"),
        make_figure("step time, elastane", "digits", [2000.0], "ms"),
        make_figure("step time, DDP", "digits", [4000.0], "ms"),
        make_figure("processor time per step, elastane", "digits", [1000.0], "ms"),
        make_figure("processor time per step, DDP", "digits", [2000.0], "ms"),
    ]


def test_a_turn_of_ranks_has_the_first_ones_times_and_the_processor_time_of_all(tmp_path: Path) -> None:
    for number, cpu_s in enumerate(([0.0, 5.0, 6.0, 7.0], [0.0, 1.0, 2.0, 5.0])):
        text = json.dumps({"at_s": [10.0 * number, 12.0, 13.0, 15.0], "cpu_s": cpu_s})
        (tmp_path / f"rank{number}.json").write_text(text)

    turn = read_turn([tmp_path / "rank0.json", tmp_path / "rank1.json"], warm_up=1)

    assert turn == Turn(periods=[1.0, 2.0], cpu_s=3.0)


def test_steps_are_the_times_between_stamps() -> None:
    assert compute_steps_between([1.0, 3.0, 7.0]) == [2.0, 4.0]


def test_a_call_is_timed_by_the_monotonic_clock() -> None:
    assert measure_call_s(time.monotonic) >= 0.0


def test_the_phases_of_a_join_lead_from_the_request_to_the_first_step() -> None:
    join = JoinReport(
        worker=WorkerId("w2"),
        asked_at_s=10.5,
        phases={JoinPhase.SPAWN: 0.25, JoinPhase.TRANSFER: 0.75},
        latency_s=1.0,
        generation=5,
    )

    assert name_phases(join, 10.0, 2.0) == {
        "noticed by the agent": 0.5,
        "process started": 0.25,
        "state moved": 0.75,
        "first step": 0.5,
    }


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
