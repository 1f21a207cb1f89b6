"""Workers of real jobs tell every phase of their way in, and the phases make up the join latency."""

from pathlib import Path

import pytest
from agent_world import World, nothing_left_behind
from elastic_world import REAL_ENTRY, SCRIPT, begin_job

from elastane.agent.settings import AgentSettings
from elastane.model.records import JobStatus, Spec
from elastane.observe.events import read_events
from elastane.observe.joins import JoinOutcome, JoinPhase, JoinReport, compute_joins, summarise_joins

pytestmark = pytest.mark.process

SIZE = ("--samples", "211", "--epochs", "2")


def joins_of(job: World) -> tuple[JoinReport, ...]:
    return compute_joins(read_events(Path(job.info.directory)))


def end_at_once(job: World) -> None:
    """End a job that would go on for long."""
    for _ in range(2):
        job.agent.request_stop()
    assert isinstance(job.end(), JobStatus)


def check_phases(report: JoinReport) -> None:
    """Each phase is told, none is negative, and together they are the latency but for what is read after."""
    assert report.outcome is JoinOutcome.JOINED
    assert list(report.phases) == list(JoinPhase)
    assert min(report.phases.values()) >= 0.0
    assert report.latency_s is not None
    assert sum(report.phases.values()) == pytest.approx(report.latency_s, abs=0.5)
    assert sum(report.phases.values()) <= report.latency_s


def test_workers_of_the_start_and_those_that_join_later_tell_all_phases(tmp_path: Path, marks: Path) -> None:
    size = ("--samples", "211", "--epochs", "60", "--marks", str(marks))
    with nothing_left_behind():
        job = begin_job(tmp_path, *size, "--plan", "[2]")
        job.wait_event("joined", worker="w2")
        job.wait_event("switched", generation=2)
        end_at_once(job)
    first, second = joins_of(job)
    assert [(r.worker, r.start, r.generation) for r in (first, second)] == [
        ("w1", "warm", 1),
        ("w2", "warm", 2),
    ]
    for report in (first, second):
        check_phases(report)
    assert (first.moved_bytes, second.moved_bytes > 1_000) == (0, True)
    assert second.device.startswith("n/cpu:")
    assert summarise_joins((first, second)).warm == 2


def test_a_worker_that_starts_cold_tells_its_imports(tmp_path: Path) -> None:
    with nothing_left_behind():
        job = World.begin(
            tmp_path,
            SCRIPT.read_text(),
            Spec(wanted=1),
            AgentSettings(),
            arguments=SIZE,
            **{**REAL_ENTRY, "warm": False},
        )
        assert isinstance(job.end(), JobStatus)
    (report,) = joins_of(job)
    check_phases(report)
    assert report.start == "cold"
    # Nothing was there before it: torch alone takes most of a second of processor time.
    assert report.phases[JoinPhase.IMPORT] > 0.3


def test_a_newcomer_that_ends_before_it_took_part_is_told_as_gone(tmp_path: Path, marks: Path) -> None:
    with nothing_left_behind():
        size = ("--samples", "211", "--epochs", "60", "--marks", str(marks))
        job = begin_job(tmp_path, *size, "--plan", "[2]", "--joiner", "crash")
        job.wait_event("script_failed", worker="w2")
        job.wait_event("worker_exited", worker="w2")
        gone = next(report for report in joins_of(job) if report.worker == "w2")
        assert (gone.outcome, gone.phases, gone.latency_s) == (JoinOutcome.GONE, {}, None)
        end_at_once(job)
