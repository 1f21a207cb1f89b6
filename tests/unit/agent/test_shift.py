"""An agent's hands, with a launcher that only writes down what it is asked, and a store that can fail."""

import signal
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from elastane.agent.bulletin import Bulletin
from elastane.agent.launcher import Exited, Notice, PoolReported, Started, StartFailed
from elastane.agent.settings import AgentPlace, AgentSettings, WorkerSettings
from elastane.agent.shift import Shift
from elastane.core.view import encode
from elastane.model.errors import StoreBusyError
from elastane.model.ids import DeviceId, JobId, NodeId, WorkerId
from elastane.model.records import ExitRecord, JobInfo, JobKeys, JobPhase, JobStatus, Spec
from elastane.observe.events import EventLog, read_events
from elastane.store.base import Put, Store
from elastane.store.open import open_store
from elastane.worker.context import WorkerContext

JOB = JobId("j")
W1 = WorkerId("w1")


@dataclass
class Script:
    """A launcher that does nothing but remember."""

    started: list[WorkerContext] = field(default_factory=list)
    ended: list[tuple[str, int]] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    stopped: tuple[WorkerId, ...] = ()

    def start(self, context: WorkerContext) -> None:
        self.started.append(context)

    def fileno(self) -> int:
        return -1

    def poll(self) -> list[Notice]:
        notices, self.notices = self.notices, []
        return notices

    def signal(self, worker: WorkerId, signal_number: int) -> None:
        self.ended.append((worker, signal_number))

    def kill(self, worker: WorkerId) -> None:
        self.ended.append((worker, signal.SIGKILL))

    def find_stopped(self) -> tuple[WorkerId, ...]:
        return self.stopped

    def close(self) -> None:
        return


class Busy:
    """A store that refuses its next transactions."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.refusals = 0

    def transact(self, *arguments: object, **named: object) -> object:
        if self.refusals:
            self.refusals -= 1
            raise StoreBusyError("locked")
        return self._store.transact(*arguments, **named)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


@dataclass
class Desk:
    launcher: Script
    store: Busy
    bulletin: Bulletin
    shift: Shift
    folder: Path

    def look(self) -> None:
        self.shift.take_notices()
        self.shift.staff(self.bulletin.read())

    def kinds(self) -> list[str]:
        return [event.kind for event in read_events(self.folder)]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with open_store(f"memory://{uuid.uuid4()}") as opened:
        keys = JobKeys(JOB)
        status = JobStatus(phase=JobPhase.STARTING)
        records: dict[str, object] = {keys.spec: Spec(wanted=1), keys.status: status}
        opened.transact(puts=[Put(key=key, value=encode(record)) for key, record in records.items()])
        store = Busy(opened)
        bulletin = Bulletin(store, JOB, NodeId("n"))  # type: ignore[arg-type]
        info = JobInfo(job=JOB, name="j", script="s.py", directory=str(tmp_path), created_at_s=0.0)
        devices = (DeviceId("cpu:0"), DeviceId("cpu:1"))
        place = AgentPlace(job=JOB, node=NodeId("n"), devices=devices, store_url="memory://x")
        settings = AgentSettings(workers=WorkerSettings(virtual_workers=2))
        launcher = Script()
        events = EventLog(tmp_path, "agent n")
        yield Desk(
            launcher, store, bulletin, Shift(launcher, bulletin, info, events, place, settings), tmp_path
        )
        events.close()


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
