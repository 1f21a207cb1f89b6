"""The command that harms jobs: what it refuses, and how its report reads. Real drills: tests/process."""

import io
import os
import random
import signal
from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pytest
from cli_world import A, B, World
from rich.console import Console

from elastane.cli import drill_watch
from elastane.cli.chaos import Session, check_drillable, describe_target
from elastane.cli.drill_report import render_report
from elastane.cli.parse import parse_duration
from elastane.core.drills import Harm, Target
from elastane.jobs.requests import read_picture
from elastane.model.errors import ConfigError, JobStateError
from elastane.model.ids import NodeId, WorkerId
from elastane.model.records import AgentRecord, JobInfo, JobKeys, JobPhase, Spec
from elastane.model.topology import Member, Mode, Topology, VrankRange
from elastane.observe.drills import Drill, DrillReport, DrillResult
from elastane.store.base import DeleteKey

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


class Victim:
    """The process of a worker on this machine, as a drill sees it."""

    def __init__(self, worker: WorkerId, struck: list[WorkerId]) -> None:
        self.worker = worker
        self._struck = struck

    def signal(self, number: signal.Signals) -> bool:
        del number
        self._struck.append(self.worker)
        return True

    def release(self) -> None:
        return


class Quiet:
    """An output that nobody reads."""

    def remark(self, text: str) -> None:
        del text


@pytest.fixture
def struck(monkeypatch: pytest.MonkeyPatch) -> list[WorkerId]:
    """All workers run on this machine; who is hit gets into this list."""
    hit: list[WorkerId] = []
    monkeypatch.setattr(drill_watch, "find_worker_process", lambda _, worker, __: Victim(worker, hit))
    return hit


@pytest.fixture
def session(world: World, info: JobInfo, struck: list[WorkerId]) -> Iterator[Session]:
    del struck
    with world.store() as store:
        made = Session(
            store=store,
            info=info,
            lease_s=3.0,
            harm=Harm.KILL,
            generator=random.Random(1),
            out=Quiet(),  # type: ignore[arg-type]
            risk_all=False,
        )
        yield made
        made.close()


def leave_alone(world: World, info: JobInfo) -> None:
    """Let A be the only worker of the job, now and for good."""
    keys = JobKeys(info.job)
    members = (Member(worker=A, vranks=VrankRange(0, 4)),)
    world.put(
        (keys.spec, Spec(wanted=1)),
        (keys.current, Topology(generation=2, mode=Mode.PLANNED, members=members)),
    )
    with world.store() as store:
        store.transact(deletes=[DeleteKey(key=keys.member(B))])


def test_a_lone_worker_without_a_checkpoint_is_harmed_only_if_somebody_insists(
    world: World, info: JobInfo, session: Session, struck: list[WorkerId]
) -> None:
    leave_alone(world, info)
    with pytest.raises(JobStateError, match=f"{A} alone holds the training state .* give --yes"):
        check_drillable(session, session.look())
    session.strike()
    assert (struck, session.spared) == ([], [f"{A} alone holds the training state"])
    session.risk_all = True
    check_drillable(session, session.look())
    session.strike()
    assert struck == [A]


def test_a_lone_worker_with_a_checkpoint_is_harmed(
    world: World, info: JobInfo, session: Session, struck: list[WorkerId]
) -> None:
    leave_alone(world, info)
    world.save_checkpoint(info, 30)
    check_drillable(session, session.look())
    session.strike()
    assert struck == [A]


def test_a_job_that_grew_meanwhile_never_loses_its_last_holder_though_it_was_alone_at_first(
    world: World, info: JobInfo, session: Session, struck: list[WorkerId]
) -> None:
    keys = JobKeys(info.job)
    grown = read_picture(session.store, info.job).view
    leave_alone(world, info)
    world.save_checkpoint(info, 30)
    check_drillable(session, session.look())
    world.put((keys.spec, grown.spec), (keys.current, grown.current), (keys.member(B), grown.members[B]))
    for _ in range(3):
        session.strike()
    # One of two; the other one holds the state alone until somebody new has entered.
    assert (len(struck), len(session.spared)) == (1, 2)
    assert "alone holds the training state" in session.spared[-1]


def test_a_job_that_shrank_to_one_meanwhile_is_treated_as_one_that_was_alone_at_first(
    world: World, info: JobInfo, session: Session, struck: list[WorkerId]
) -> None:
    check_drillable(session, session.look())
    leave_alone(world, info)
    session.strike()
    assert (struck, session.spared) == ([], [f"{A} alone holds the training state"])
    world.save_checkpoint(info, 30)
    session.strike()
    assert struck == [A]


def keep_files_on_n1(world: World, info: JobInfo, main: WorkerId | None = None) -> None:
    """Let there be a node n1 with files of its own, which the main worker runs on if it is named."""
    keys = JobKeys(info.job)
    world.put(
        (keys.agent(NodeId("n1")), AgentRecord(node=NodeId("n1"), pid=1, devices=(), directory="/other"))
    )
    if main is not None:
        with world.store() as store:
            record = read_picture(store, info.job).view.members[main]
        world.put((keys.member(main), msgspec.structs.replace(record, node=NodeId("n1"))))


def test_drills_are_refused_where_the_loss_curve_is_not_written(
    world: World, info: JobInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_files_on_n1(world, info, main=A)
    monkeypatch.setattr(
        drill_watch, "find_worker_process", lambda _, worker, __: Victim(worker, []) if worker == B else None
    )
    result = world.elastane("chaos", "digits")
    assert (result.code, result.out, result.err) == (
        4,
        "",
        f"elastane: the loss curve of job {info.job}, by which drills are judged, is written on node n1, in "
        "/other; give the command there\n",
    )


def test_the_main_worker_is_spared_where_the_loss_curve_would_go_on_out_of_sight(
    world: World, info: JobInfo, session: Session, struck: list[WorkerId]
) -> None:
    keep_files_on_n1(world, info)
    check_drillable(session, session.look())
    session.strike()
    session.strike()
    assert (struck, len(session.spared)) == ([B], 1)
    session.drills.clear()
    with world.store() as store:
        store.transact(deletes=[DeleteKey(key=JobKeys(info.job).member(B))])
    session.strike()
    assert session.spared[-1] == f"without {A} the loss curve would go on on a node that is not seen here"


def test_nobody_is_harmed_while_the_loss_curve_is_written_out_of_sight(
    world: World, info: JobInfo, session: Session, struck: list[WorkerId], monkeypatch: pytest.MonkeyPatch
) -> None:
    check_drillable(session, session.look())
    monkeypatch.setattr(session.watch, "find_curve_elsewhere", lambda _: "n1")
    session.strike()
    assert (struck, session.spared) == (
        [],
        ["the loss curve, by which drills are judged, is written on node n1 now"],
    )
