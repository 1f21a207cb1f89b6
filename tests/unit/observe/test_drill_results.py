"""What drills did to a job, read from its log: the next step, steps repeated, workers back, verdicts."""

from dataclasses import replace
from typing import Any

import pytest

from elastane.core.drills import Harm, Target
from elastane.model.ids import WorkerId
from elastane.observe.drills import Drill, DrillReport, DrillResult, judge_drills
from elastane.observe.events import Event
from elastane.observe.metrics import MetricsRecord

W2 = WorkerId("w2")
TARGET = Target(
    worker=W2,
    pid=7,
    phase="training",
    generation=1,
    seated=True,
    leader=False,
    main=False,
    changing=False,
    wanted=2,
)
DRILL = Drill(number=1, harm=Harm.KILL, at_s=102.5, target=TARGET)


def step(number: int, at_s: float, generation: int) -> MetricsRecord:
    return MetricsRecord(step=number, epoch=0, at_s=at_s, generation=generation, workers=2, step_time_s=1.0)


def event(kind: str, at_s: float, **fields: Any) -> Event:
    return Event(at_s=at_s, kind=kind, source="w1", fields=fields)


# w2 is killed at 102.5, in step 3, which w1 commits at 103.75; w3 joins before step 5.
METRICS = [
    step(0, 100, 1),
    step(1, 101, 1),
    step(2, 102, 1),
    step(3, 103.75, 2),
    step(4, 105, 2),
    step(5, 106, 3),
]
EVENTS = [
    event("worker_exited", 102.6, worker="w2", code=-9, failure=True),
    event("committed", 102.7, generation=2, mode="recovery", members={"w1": [0, 4]}, switch_step=3),
    event("switched", 102.75, generation=2, step=3),
    event(
        "committed", 104.0, generation=3, mode="planned", members={"w1": [0, 2], "w3": [2, 4]}, switch_step=5
    ),
    event("switched", 105.1, generation=3, step=5),
    event("joined", 105.25, generation=3, step=5, worker="w3"),
]
HARMLESS = DrillResult(
    drill=DRILL,
    step=3,
    part_of_step=0.5,
    next_commit_s=1.25,
    steps_repeated=0,
    workers_back_s=2.75,
    also_lost=(),
    trouble=(),
)


def judge(metrics: list[MetricsRecord], events: list[Event]) -> DrillResult:
    return judge_drills([DRILL], metrics, events).results[0]


def test_a_death_that_costs_a_pause_is_harmless() -> None:
    report = judge_drills([DRILL], METRICS, EVENTS)
    assert report == DrillReport(results=(HARMLESS,), first_step=0, last_step=5, missing_steps=0, trouble=())
    assert report.harmless


def test_a_step_of_the_old_generation_is_not_what_the_others_went_on_with() -> None:
    just_before = [*METRICS[:3], replace_at(METRICS[3], 102.55, 1), *METRICS[4:]]
    assert judge(just_before, EVENTS).next_commit_s == 2.5


def replace_at(record: MetricsRecord, at_s: float, generation: int) -> MetricsRecord:
    return step(record.step, at_s, generation)


def test_who_only_prepared_to_join_keeps_nobody_waiting() -> None:
    spare = replace(DRILL, target=replace(TARGET, seated=False, phase="preparing"))
    result = judge_drills([spare], METRICS, EVENTS).results[0]
    assert (result.next_commit_s, result.steps_repeated) == (1.25, 0)


def test_a_job_that_commits_nothing_afterwards_was_harmed() -> None:
    result = judge(METRICS[:3], EVENTS[:1])
    assert (result.next_commit_s, result.workers_back_s) == (None, None)
    assert result.trouble == ("no step was committed afterwards",)
    assert not judge_drills([DRILL], METRICS[:3], EVENTS[:1]).harmless


def test_a_job_that_came_to_its_end_at_this_moment_was_not_harmed() -> None:
    assert judge(METRICS[:3], [*EVENTS[:1], event("finished", 103.0)]).trouble == ()


@pytest.mark.parametrize(
    ("switch_step", "repeated", "trouble"), [(2, 1, ()), (1, 2, ("2 committed steps were trained again",))]
)
def test_one_repeated_step_is_no_harm_and_two_are(
    switch_step: int, repeated: int, trouble: tuple[str, ...]
) -> None:
    fields = {**EVENTS[1].fields, "switch_step": switch_step}
    result = judge(METRICS, [EVENTS[0], event("committed", 102.7, **fields), *EVENTS[2:]])
    assert (result.steps_repeated, result.trouble) == (repeated, trouble)


def test_a_job_that_went_back_to_a_checkpoint_says_how_many_steps_it_repeats() -> None:
    result = judge(
        METRICS, [EVENTS[0], event("restored", 102.7, generation=2, step=0, repeated=3), *EVENTS[2:]]
    )
    assert (result.steps_repeated, result.trouble) == (3, ("3 committed steps were trained again",))


def test_another_worker_that_fails_meanwhile_is_harm() -> None:
    result = judge(METRICS, [event("worker_exited", 102.9, worker="w1", code=1, failure=True), *EVENTS])
    assert (result.also_lost, result.trouble) == (("w1",), ("w1 ended as well",))


def test_a_later_drill_s_victim_is_not_held_against_an_earlier_one() -> None:
    later = Drill(
        number=2, harm=Harm.KILL, at_s=104.5, target=replace(TARGET, worker=WorkerId("w1"), generation=2)
    )
    events = [*EVENTS[:4], event("worker_exited", 104.6, worker="w1", code=-9, failure=True), *EVENTS[4:]]
    assert [r.also_lost for r in judge_drills([DRILL, later], METRICS, events).results] == [(), ()]


def test_a_gap_in_the_loss_curve_is_harm() -> None:
    report = judge_drills([DRILL], [*METRICS[:4], *METRICS[5:]], EVENTS)
    assert (report.missing_steps, report.trouble) == (1, ("the loss curve lacks 1 steps",))


def test_a_job_that_failed_was_harmed_with_its_own_reason() -> None:
    report = judge_drills([DRILL], METRICS, [*EVENTS, event("failed", 107.0, reason="nobody is left")])
    assert report.trouble == ("the job failed: nobody is left",)


def test_drills_that_harmed_nobody_find_nothing() -> None:
    assert judge_drills([], [], []) == DrillReport(
        results=(), first_step=None, last_step=None, missing_steps=0, trouble=()
    )
