"""How an agent carries out what was planned and writes down what became of it."""

import signal

import pytest
from agent_desk import JOB, W1, Desk

from elastane.agent.launcher import Exited, PoolReported, Started, StartFailed
from elastane.core.view import encode
from elastane.model.errors import StoreBusyError, StoreUnreachableError
from elastane.model.ids import DeviceId, NodeId
from elastane.model.records import Dismissal, ExitRecord, JobKeys, JobPhase, JobStatus, Post, Roster, Spec
from elastane.observe.events import read_events
from elastane.store.base import Put
from elastane.worker.context import WorkerContext


def test_a_started_worker_is_told_all_it_must_know(desk: Desk) -> None:
    desk.look()
    (context,) = desk.launcher.started
    assert context == WorkerContext(
        job=JOB,
        worker=W1,
        node=NodeId("n"),
        device=DeviceId("cpu:0"),
        store_url="memory://x",
        directory=str(desk.folder),
        script="s.py",
        virtual_workers=2,
        requested_at_s=context.requested_at_s,
    )
    assert desk.kinds() == ["worker_starting"]
    desk.look()
    assert len(desk.launcher.started) == 1


def test_an_exit_that_the_store_refuses_is_told_at_the_next_look(desk: Desk) -> None:
    desk.look()
    desk.launcher.notices = [Started(worker=W1, pid=1, warm=True), Exited(worker=W1, code=-9)]
    desk.store.refusals = 1
    with pytest.raises(StoreBusyError):
        desk.look()
    assert desk.bulletin.read().view.exits == {}
    desk.look()
    assert desk.bulletin.read().view.exits == {W1: ExitRecord(worker=W1, code=-9)}
    assert [context.worker for context in desk.launcher.started] == ["w1", "w2"]
    assert desk.kinds() == ["worker_starting", "worker_started", "worker_exited", "worker_starting"]


def test_a_start_that_the_store_refuses_is_made_at_the_next_look(desk: Desk) -> None:
    desk.store.refusals = 1
    with pytest.raises(StoreBusyError):
        desk.look()
    assert desk.launcher.started == []
    desk.look()
    assert [context.worker for context in desk.launcher.started] == ["w1"]


def test_a_start_whose_claim_was_done_and_not_answered_is_made_under_another_id(desk: Desk) -> None:
    desk.store.lost_answers = 1
    with pytest.raises(StoreUnreachableError):
        desk.look()
    desk.look()
    assert [context.worker for context in desk.launcher.started] == ["w2"]
    assert set(desk.bulletin.read().view.rosters[NodeId("n")].posts) == {"w2"}


def test_a_claim_that_was_not_answered_is_taken_back_if_nobody_is_wanted_any_more(desk: Desk) -> None:
    desk.store.lost_answers = 1
    with pytest.raises(StoreUnreachableError):
        desk.look()
    assert set(desk.bulletin.read().view.rosters[NodeId("n")].posts) == {"w1"}
    desk.store.transact(puts=[Put(key=JobKeys(JOB).spec, value=encode(Spec(wanted=1, stop=True)))])
    desk.look()
    assert desk.bulletin.read().view.rosters[NodeId("n")].posts == {}  # the other agents count on it


def test_a_claim_that_lands_long_after_it_was_given_up_is_taken_back(desk: Desk) -> None:
    desk.store.transact(puts=[Put(key=JobKeys(JOB).spec, value=encode(Spec(wanted=1, stop=True)))])
    desk.look()
    late = Roster(node=NodeId("n"), posts={W1: Post(device=DeviceId("cpu:0"))})
    desk.store.transact(puts=[Put(key=JobKeys(JOB).roster(NodeId("n")), value=encode(late))])
    desk.look()
    assert desk.bulletin.read().view.rosters[NodeId("n")].posts == {}


def test_an_end_that_was_written_and_not_answered_is_told_all_the_same(desk: Desk) -> None:
    desk.look()
    desk.store.transact(puts=[Put(key=JobKeys(JOB).spec, value=encode(Spec(wanted=1, abort=True)))])
    desk.launcher.notices = [Exited(worker=W1, code=-9)]
    desk.shift.take_notices()
    desk.store.lost_answers = 1
    with pytest.raises(StoreUnreachableError):
        desk.shift.staff(desk.bulletin.read())
    ended = desk.bulletin.read().view.status
    assert ended.phase is JobPhase.STOPPED
    desk.look()
    (told,) = [event for event in read_events(desk.folder) if event.kind == "stopped"]
    assert told.fields == {"reason": ended.message}
    desk.look()
    assert desk.kinds().count("stopped") == 1


def test_a_process_that_could_not_be_made_counts_as_a_failure(desk: Desk) -> None:
    desk.look()
    desk.launcher.notices = [StartFailed(worker=W1, why="no more processes")]
    desk.look()
    assert desk.bulletin.read().view.exits[W1].code == 127
    assert [past.failures for past in desk.shift.node.history.values()] == [1]


def test_what_the_launcher_reports_is_logged(desk: Desk) -> None:
    desk.launcher.notices = [PoolReported(kind="preloaded", fields={"modules": 3})]
    desk.look()
    (event, _) = read_events(desk.folder)
    assert (event.kind, event.source, event.fields) == ("preloaded", "agent n", {"modules": 3})


def test_why_it_waits_is_logged_once(desk: Desk) -> None:
    desk.store.transact(puts=[Put(key=JobKeys(JOB).spec, value=encode(Spec(wanted=5)))])
    for _ in range(3):
        desk.look()
    assert desk.kinds() == ["worker_starting", "worker_starting", "staffing_waits"]


def test_all_are_killed_at_once_even_if_the_store_refuses_the_jobs_end(desk: Desk) -> None:
    desk.look()
    desk.store.refusals = 1
    with pytest.raises(StoreBusyError):
        desk.shift.end_at_once("asked twice")
    assert desk.launcher.ended == [("w1", signal.SIGKILL)]
    desk.shift.end_at_once("asked twice")
    assert desk.bulletin.read().view.status == JobStatus(phase=JobPhase.STOPPED, message="asked twice")


def test_frozen_workers_are_killed_while_the_store_is_locked(desk: Desk) -> None:
    desk.look()
    desk.launcher.stopped = (W1,)
    desk.shift.end_frozen()
    assert desk.launcher.ended == [("w1", signal.SIGKILL)]


def test_a_log_that_cannot_be_written_stops_nothing(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.shift._events.close()
    desk.look()
    assert [context.worker for context in desk.launcher.started] == ["w1"]
    assert "event worker_starting" in caplog.text


def test_the_device_of_a_worker_that_nobody_could_reach_rests(desk: Desk) -> None:
    desk.look()
    desk.launcher.notices = [Started(worker=W1, pid=1, warm=True)]
    order = Dismissal(reason="could not be connected to the others", unreachable=True)
    desk.store.transact(puts=[Put(key=JobKeys(JOB).dismissal(W1), value=encode(order))])
    desk.look()
    desk.launcher.notices = [Exited(worker=W1, code=0)]
    desk.look()
    assert desk.bulletin.read().view.dismissed == {}
    assert [past.failures for past in desk.shift.node.history.values()] == [1]
