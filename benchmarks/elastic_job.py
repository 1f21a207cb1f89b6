"""A real elastic job under `elastane run`, as a benchmark drives and reads it.

Changes are asked for in this process, over the job's store, as any client would; so the moment of a request
is known exactly, on the same clock as the commits in the job's log.
"""

import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from benchmarks.analysis import Commit, compute_periods, count_steps
from benchmarks.pairs import Turn
from benchmarks.processes import end_tree, start_python, wait_until
from elastane.core.view import JobView
from elastane.jobs.registry import find_job
from elastane.jobs.requests import read_picture, request_migrate, request_scale
from elastane.jobs.slowdowns import SlowdownLease
from elastane.model.errors import JobNotFoundError
from elastane.model.ids import JobId
from elastane.model.records import Slowdown
from elastane.observe.events import Event, read_events
from elastane.observe.metrics import MetricsRecord, MetricsTail
from elastane.store.base import Store
from elastane.store.open import open_store

JOB_NAME = "bench"
SLOW_FOR_S = 3600.0
"""Longer than any job of a benchmark lasts."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Say how a job is run.

    Attributes:
        arguments: of the script.
        flags: more of `elastane run`.
    """

    script: Path
    arguments: Sequence[str]
    workers: int
    flags: Sequence[str] = ()


@dataclass
class ElasticJob:
    """Run a job while the `with` block lasts.

    Args:
        plan: how.
        folder: an empty folder for everything the job writes.
    """

    plan: Plan
    folder: Path
    commits: list[Commit] = field(default_factory=list)
    records: list[MetricsRecord] = field(default_factory=list)
    _process: subprocess.Popen[bytes] | None = None
    _store: Store | None = None
    _job: JobId = field(default=JobId(""))
    _directory: Path = Path()
    _tail: MetricsTail | None = None

    def __enter__(self) -> Self:
        plan = self.plan
        command = ["-m", "elastane.cli.main", "run", str(plan.script), "--name", JOB_NAME, "--plain"]
        command += ["--home", str(self.folder), "--workers", str(plan.workers), *plan.flags]
        command += ["--", *plan.arguments]
        self._process = start_python(command, self.folder / "run.log")
        try:
            self._wait((self.folder / "store.db").exists, "the job's store")
            self._store = open_store(f"sqlite://{self.folder}/store.db")
            self._wait(self._find, "the job")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process = self._process
        assert process is not None
        # Two requests to stop end a job at once: nothing of it is worth saving.
        for number in (signal.SIGINT, signal.SIGTERM):
            if process.poll() is None:
                process.send_signal(number)
        end_tree(process)
        if self._store is not None:
            self._store.close()

    def _find(self) -> bool:
        assert self._store is not None
        try:
            info = find_job(self._store, JOB_NAME)
        except JobNotFoundError:
            return False
        self._job, self._directory = info.job, Path(info.directory)
        self._tail = MetricsTail(self._directory)
        return True

    def _wait(self, look: Callable[[], object], what: str) -> None:
        assert self._process is not None
        wait_until(look, f"{what} (see {self.folder / 'run.log'})", [self._process])

    # --- requests: each returns the wall clock at which it was made ----------------------------------

    def scale(self, workers: int) -> float:
        """Ask for so many workers."""
        assert self._store is not None
        asked_at_s = time.time()
        request_scale(self._store, self._job, workers)
        return asked_at_s

    def migrate(self) -> float:
        """Ask that the first worker moves to any other device."""
        assert self._store is not None
        worker = min(read_picture(self._store, self._job).view.members)
        asked_at_s = time.time()
        request_migrate(self._store, self._job, worker)
        return asked_at_s

    def slow_down(self, place: int, factor: float) -> float:
        """Make the member at this place so many times as slow until it goes; return from when on it is."""
        view = self.look()
        assert self._store is not None
        assert view.current is not None, "the job trains"
        worker = view.current.members[place].worker
        order = Slowdown(factor=factor, for_s=SLOW_FOR_S, drill="bench")
        SlowdownLease(self._store, self._job, SLOW_FOR_S).begin({worker: order}, time.monotonic())
        self._wait(lambda: self.events("slowed"), f"{worker} to be slow")
        return self.events("slowed")[0].at_s

    def look(self) -> JobView:
        """Return the job's records as they are now."""
        assert self._store is not None
        return read_picture(self._store, self._job).view

    # --- what it takes --------------------------------------------------------------------------------

    def train_turn(self, warm_up: int, steps: int) -> Turn:
        """Wait for `warm_up` steps, then for `steps` more; return what these took."""
        self.wait_commits(warm_up + 1)
        begin_s, begin_cpu_s = time.time(), self._cpu_s()
        self.wait_commits(steps)
        end_s, cpu_s = time.time(), self._cpu_s() - begin_cpu_s
        self._wait(lambda: self._read() and self.commits[-1].at_s > end_s, "the log to reach the present")
        return Turn(
            periods=compute_periods(self.commits[warm_up:][: steps + 1]),
            cpu_s=cpu_s / count_steps(self.commits, begin_s, end_s),
        )

    def _cpu_s(self) -> float:
        """Return the processor time that the workers have used so far."""
        times = [psutil.Process(e.fields["pid"]).cpu_times() for e in self.events("worker_started")]
        return sum(used.user + used.system for used in times)

    # --- what became of them ------------------------------------------------------------------------

    def events(self, kind: str) -> list[Event]:
        """Return the events of one kind, the oldest first."""
        return [event for event in read_events(self._directory) if event.kind == kind]

    def switches(self) -> list[Event]:
        """Return one event for each change of generation after the first."""
        return [event for event in self.events("switched") if event.fields["generation"] > 1]

    def wait_commits(self, count: int) -> None:
        """Wait for so many more commits than are known now."""
        self._read()
        wanted = len(self.commits) + count
        self._wait(lambda: self._read() >= wanted, f"{count} more steps")

    def wait_switch(self, number: int) -> dict[str, Any]:
        """Wait until so many changes have happened; return the last one's fields."""
        self._wait(lambda: len(self.switches()) >= number, f"change {number}")
        return self.switches()[number - 1].fields

    def wait_event(self, kind: str, look: Callable[[Event], object]) -> Event:
        """Wait for the first event of a kind that looks right."""

        def find() -> list[Event]:
            return [event for event in self.events(kind) if look(event)]

        self._wait(find, f"an event {kind}")
        return find()[0]

    def wait_workers(self, count: int) -> None:
        """Wait until no process of a worker that has gone is left, so that it disturbs nothing."""
        assert self._store is not None
        store = self._store

        def settled() -> bool:
            return len(read_picture(store, self._job).view.members) == count

        self._wait(settled, f"{count} workers")

    def wait_view(self, look: Callable[[JobView], object], what: str) -> None:
        """Wait until the job's records show something."""
        self._wait(lambda: look(self.look()), what)

    def wait_finished(self) -> str:
        """Wait until training has come to its end; return the digest of the final state."""
        self._wait(lambda: self.events("finished"), "the end of the training")
        self._read()
        return str(self.events("finished")[0].fields["digest"])

    def all_events(self) -> list[Event]:
        """Return all events, the oldest first."""
        return list(read_events(self._directory))

    def _read(self) -> int:
        assert self._tail is not None
        new = self._tail.poll()
        self.records += new
        self.commits += [Commit(step=r.step, at_s=r.at_s, workers=r.workers) for r in new]
        return len(self.commits)
