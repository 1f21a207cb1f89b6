"""The command that harms jobs: what it refuses, and how its report reads. Real drills: tests/process."""

import io
import os
from dataclasses import replace

import pytest
from cli_world import A, B, World
from rich.console import Console

from elastane.cli.chaos import describe_target
from elastane.cli.drill_report import render_report
from elastane.cli.parse import parse_duration
from elastane.core.drills import Harm, Target
from elastane.model.errors import ConfigError
from elastane.model.records import JobInfo, JobKeys, JobPhase, Spec
from elastane.observe.drills import Drill, DrillReport, DrillResult

TARGET = Target(
    worker=A,
    pid=7,
    phase="training",
    generation=1,
    seated=True,
    leader=True,
    main=True,
    changing=False,
    wanted=2,
)
RESULT = DrillResult(
    drill=Drill(number=1, harm=Harm.KILL, at_s=100.0, target=TARGET),
    step=41,
    part_of_step=0.25,
    next_commit_s=0.04,
    steps_repeated=0,
    workers_back_s=0.5,
    also_lost=(),
    trouble=(),
)
REPORT = DrillReport(results=(RESULT,), first_step=0, last_step=90, missing_steps=0, trouble=())


@pytest.fixture
def info(world: World) -> JobInfo:
    return world.train()


def render(report: DrillReport, *spared: str) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(render_report(report, spared))
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "seconds"), [("5s", 5.0), ("500ms", 0.5), ("2m", 120.0), ("1h", 3600.0), ("1.5", 1.5)]
)
def test_times_are_read_with_their_units(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "0s", "-1s", "soon", "5 days", "1e3"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is no time; write 5s, 500ms, 2m or 1h"):
        parse_duration(text)


def test_an_ended_job_is_refused(world: World, info: JobInfo) -> None:
    world.end(info, JobPhase.STOPPED)
    result = world.elastane("chaos", "digits")
    assert (result.code, result.out) == (4, "")
    assert f"job {info.job} has ended: stopped" in result.err


def test_a_job_that_has_not_begun_or_is_about_to_stop_is_refused(world: World, info: JobInfo) -> None:
    world.create("fresh")
    assert "has not begun to train" in world.elastane("chaos", "fresh").err
    world.put((JobKeys(info.job).spec, Spec(wanted=2, stop=True)))
    assert f"job {info.job} is about to stop" in world.elastane("chaos", "digits").err


def test_workers_of_other_machines_are_refused_by_the_names_of_their_nodes(
    world: World, info: JobInfo
) -> None:
    result = world.elastane("chaos", "digits")
    assert (result.code, result.err) == (
        4,
        f"elastane: no worker of job {info.job} runs on this machine as this user (they run on n0); "
        "give the command there\n",
    )


def test_a_process_that_only_has_the_number_of_a_worker_is_no_worker(world: World, info: JobInfo) -> None:
    keys = JobKeys(info.job)
    with world.store() as store:
        text = store.get(keys.member(A))
    assert text is not None
    own = text.value.replace(b'"pid":100', f'"pid":{os.getpid()}'.encode())
    with world.store() as store:
        from elastane.store.base import Put

        store.transact(puts=[Put(key=keys.member(A), value=own)])
    assert "runs on this machine" in world.elastane("chaos", "digits").err


def test_a_target_is_described_by_what_it_is_to_its_job() -> None:
    assert describe_target(TARGET) == f"{A} (leader, main worker, training)"
    other = replace(TARGET, worker=B, leader=False, main=False, phase="ready", changing=True)
    assert describe_target(other) == f"{B} (ready), while workers changed"


def test_the_report_shows_each_drill_and_the_verdict() -> None:
    assert [line.rstrip() for line in render(REPORT).splitlines()] == [
        "#  WORKER  WAS                     AT STEP       NEXT STEP  REPEATED  ALL BACK  VERDICT",
        "1  aaaa    leader, main, training  41, 25% done  40 ms      0         500 ms    harmless",
        "1 drill, no harm: every step from 0 to 90 is there; the longest wait for the next one was 40 ms",
    ]


def test_the_report_says_what_went_wrong_and_what_was_left_out() -> None:
    harmed = replace(
        RESULT, next_commit_s=None, workers_back_s=None, trouble=("no step was committed afterwards",)
    )
    text = render(
        replace(REPORT, results=(harmed,), trouble=("the job failed: no state",)), "b alone is left"
    )
    assert "none" in text
    assert "not yet" in text
    assert text.splitlines()[-1] == (
        "the job was harmed: the job failed: no state; 1 drill did harm; "
        "1 drill left out, the last since b alone is left"
    )


def test_a_report_without_drills_says_why() -> None:
    empty = DrillReport(results=(), first_step=None, last_step=None, missing_steps=0, trouble=())
    assert render(empty, "w1 alone holds the training state") == (
        "nobody was harmed: w1 alone holds the training state\n"
    )
    assert render(empty) == "nobody was harmed\n"
