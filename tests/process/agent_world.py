"""What tests of agents and launchers need: jobs with scripts, waiting with deadlines, and leak checks."""

import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from elastane.agent.agent import Agent
from elastane.agent.devices import name_cpu_slots
from elastane.agent.launcher import Exited, Notice, Started, StartFailed
from elastane.agent.local import LocalLauncher, LocalSettings
from elastane.agent.settings import AgentPlace, AgentSettings
from elastane.jobs.registry import NewJob, create_job, log_path
from elastane.jobs.requests import JobPicture, read_picture
from elastane.model.ids import DeviceId, JobId, NodeId, WorkerId
from elastane.model.records import JobInfo, JobStatus, Launch, Spec
from elastane.observe.events import Event, read_events
from elastane.store.base import Store
from elastane.store.open import open_store
from elastane.worker.context import WorkerContext

DEADLINE_S = 180.0
"""Far beyond what anything takes: only a hang meets it, on however busy a machine."""
LOOK_S = 0.01


def wait_for(what: str, look: Callable[[], object]) -> None:
    """Look until `look` returns something true; fail after the deadline."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not look():
        assert time.monotonic() < deadline_s, f"waited {DEADLINE_S} s in vain for {what}"
        time.sleep(LOOK_S)


def is_gone(pid: int) -> bool:
    """Tell whether no process, not even a zombie, has this number."""
    return not psutil.pid_exists(pid)


@contextmanager
def nothing_left_behind() -> Iterator[None]:
    """Fail if children, threads, descriptors or named shared memory are more than before."""
    before = _inventory()
    yield
    wait_for(f"leftovers to go: before {before}, now {_inventory()}", lambda: not _extra(before))


def _inventory() -> dict[str, set[object]]:
    return {
        "children": {child.pid for child in psutil.Process().children(recursive=True)},
        "threads": {thread.name for thread in threading.enumerate()},
        "descriptors": set(os.listdir("/proc/self/fd")),
        # The folder is the whole machine's; files of other programs come and go in it.
        "shared memory": {name for name in os.listdir("/dev/shm") if "elastane" in name},
    }


def _extra(before: dict[str, set[object]]) -> bool:
    now = _inventory()
    return any(len(now[kind] - seen) > 0 and len(now[kind]) > len(seen) for kind, seen in before.items())


def worker_environment() -> dict[str, str]:
    # The tree under test may not be the installed one, so what the tests were told to import stays in front.
    folders = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}


@dataclass
class Trial:
    """A launcher of its own, for one script."""

    folder: Path
    script: Path
    launcher: LocalLauncher
    seen: list[Notice] = field(default_factory=list)

    @classmethod
    def begin(cls, folder: Path, source: str, *, warm: bool, **changes: object) -> "Trial":
        script = folder / "script.py"
        script.write_text(source)
        settings = LocalSettings(
            script=str(script),
            directory=str(folder),
            environment=worker_environment(),
            warm=warm,
            **{"entry": "agent_entry:run_script", "preload": (), **changes},
        )
        return cls(folder, script, LocalLauncher(settings))

    def start(self, name: str, *arguments: str, **changes: object) -> None:
        context = WorkerContext(
            job=JobId("j"),
            worker=WorkerId(name),
            node=NodeId("n"),
            device=DeviceId("cpu:0"),
            store_url="memory://unused",
            directory=str(self.folder),
            script=str(self.script),
            arguments=arguments,
            **changes,
        )
        self.launcher.start(context)

    def notice(self, kind: type[Notice], name: str) -> Notice:
        """Wait for the next notice of a kind about a worker."""
        deadline_s = time.monotonic() + DEADLINE_S
        while True:
            self.seen += self.launcher.poll()
            for notice in self.seen:
                if isinstance(notice, kind) and notice.worker == name:
                    self.seen.remove(notice)
                    return notice
            assert time.monotonic() < deadline_s, f"waited in vain for {kind.__name__} of {name}: {self.seen}"
            select.select([self.launcher.fileno()], [], [], 1.0)

    def started(self, name: str) -> Started:
        notice = self.notice(Started, name)
        assert isinstance(notice, Started)
        return notice

    def exit_code(self, name: str) -> int:
        notice = self.notice(Exited, name)
        assert isinstance(notice, Exited)
        return notice.code

    def failure(self, name: str) -> str:
        notice = self.notice(StartFailed, name)
        assert isinstance(notice, StartFailed)
        return notice.why

    def output(self, name: str) -> str:
        path = log_path(self.folder, name)
        return path.read_text() if path.exists() else ""

    def wait_output(self, name: str, text: str) -> None:
        wait_for(f"{text!r} in the log of {name}", lambda: text in self.output(name))


@dataclass
class World:
    """A store, a job and its agent in a thread."""

    home: Path
    info: JobInfo
    store: Store
    agent: Agent
    result: list[JobStatus | BaseException] = field(default_factory=list)
    thread: threading.Thread = field(default_factory=threading.Thread)

    @classmethod
    def begin(
        cls,
        home: Path,
        source: str,
        spec: Spec,
        settings: AgentSettings,
        *,
        start: bool = True,
        arguments: tuple[str, ...] = (),
        **changes: object,
    ) -> "World":
        script = home / "train.py"
        script.write_text(source)
        with open_store(f"sqlite://{home}/store.db") as store:
            info = create_job(
                store,
                home,
                NewJob(
                    name="job",
                    script=str(script),
                    arguments=arguments,
                    spec=spec,
                    launch=Launch(stragglers=settings.workers.stragglers),
                ),
            )
        world = cls.attach(home, info, settings, **changes)
        if start:
            world.thread.start()
        return world

    @classmethod
    def attach(
        cls,
        home: Path,
        info: JobInfo,
        settings: AgentSettings,
        *,
        slots: int = 4,
        node: str = "n",
        **changes: object,
    ) -> "World":
        """Make an agent for a job that is there already."""
        local = LocalSettings(
            script=info.script,
            directory=info.directory,
            environment=worker_environment(),
            **{"entry": "agent_entry:run_member", "preload": (), **changes},
        )
        url = f"sqlite://{home}/store.db"
        place = AgentPlace(job=info.job, node=NodeId(node), devices=name_cpu_slots(slots), store_url=url)
        world = cls(home, info, open_store(url), Agent(place, LocalLauncher(local), settings))
        world.thread = threading.Thread(target=world._run, name="agent under test")
        return world

    def _run(self) -> None:
        try:
            self.result.append(self.agent.run())
        except Exception as error:  # noqa: BLE001 - looked at by the test
            self.result.append(error)

    def picture(self) -> JobPicture:
        return read_picture(self.store, self.info.job)

    def events(self, kind: str, **fields: object) -> list[Event]:
        found = (e for e in read_events(Path(self.info.directory)) if e.kind == kind)
        return [e for e in found if fields.items() <= e.fields.items()]

    def wait_event(self, kind: str, *, count: int = 1, **fields: object) -> Event:
        wait_for(f"{count} x {kind} {fields}", lambda: len(self.events(kind, **fields)) >= count)
        return self.events(kind, **fields)[count - 1]

    def pid(self, worker: str) -> int:
        return int(self.wait_event("worker_started", worker=worker).fields["pid"])

    def log(self, worker: str) -> str:
        return log_path(Path(self.info.directory), worker).read_text()

    def end(self, patience: float = 1.0) -> JobStatus | BaseException:
        """Wait for the agent's end, for so many deadlines, and return what came of it."""
        self.thread.join(patience * DEADLINE_S)
        assert self.result, "the agent did not end"
        self.store.close()
        return self.result[0]
