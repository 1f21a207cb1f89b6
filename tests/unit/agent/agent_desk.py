"""An agent's hands, with a launcher that only writes down what it is asked, and a store that can fail."""

import signal
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from elastane.agent.bulletin import Bulletin
from elastane.agent.launcher import Notice
from elastane.agent.settings import AgentPlace, AgentSettings, WorkerSettings
from elastane.agent.shift import Shift
from elastane.core.view import encode
from elastane.model.errors import StoreBusyError, StoreUnreachableError
from elastane.model.ids import DeviceId, JobId, NodeId, WorkerId
from elastane.model.records import JobInfo, JobKeys, JobPhase, JobStatus, Spec
from elastane.observe.events import EventLog, read_events
from elastane.store.base import Put, Store
from elastane.store.open import open_store
from elastane.worker.context import WorkerContext

JOB = JobId("j")
W1 = WorkerId("w1")
NODE = NodeId("n")


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
    """A store that refuses its next transactions, or does them and loses the answers."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.refusals = 0
        self.lost_answers = 0

    def transact(self, *arguments: object, **named: object) -> object:
        if self.refusals:
            self.refusals -= 1
            raise StoreBusyError("locked")
        result = self._store.transact(*arguments, **named)  # type: ignore[arg-type]
        if self.lost_answers:
            self.lost_answers -= 1
            raise StoreUnreachableError("it may or may not have taken effect")
        return result

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


@dataclass
class Desk:
    launcher: Script
    store: Busy
    bulletin: Bulletin
    shift: Shift
    place: AgentPlace
    settings: AgentSettings
    folder: Path

    def look(self) -> None:
        self.shift.take_notices()
        self.shift.staff(self.bulletin.read())

    def kinds(self) -> list[str]:
        return [event.kind for event in read_events(self.folder)]


@contextmanager
def open_desk(folder: Path) -> Iterator[Desk]:
    """Yield an agent's hands on a node of two devices, for a job that wants one worker."""
    with open_store(f"memory://{uuid.uuid4()}") as opened:
        keys = JobKeys(JOB)
        status = JobStatus(phase=JobPhase.STARTING)
        records: dict[str, object] = {keys.spec: Spec(wanted=1), keys.status: status}
        opened.transact(puts=[Put(key=key, value=encode(record)) for key, record in records.items()])
        store = Busy(opened)
        bulletin = Bulletin(store, JOB, NODE)  # type: ignore[arg-type]
        info = JobInfo(job=JOB, name="j", script="s.py", directory=str(folder), created_at_s=0.0)
        devices = (DeviceId("cpu:0"), DeviceId("cpu:1"))
        place = AgentPlace(job=JOB, node=NODE, devices=devices, store_url="memory://x")
        settings = AgentSettings(workers=WorkerSettings(virtual_workers=2))
        launcher = Script()
        events = EventLog(folder, "agent n")
        shift = Shift(launcher, bulletin, info, events, place, settings)
        yield Desk(launcher, store, bulletin, shift, place, settings, folder)
        events.close()
