"""Workers as processes of this machine: forked from a preloaded parent, or spawned cold."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from elastane.agent.child import DEFAULT_ENTRY
from elastane.agent.children import Children
from elastane.agent.launcher import Exited, Notice, Started, StartFailed
from elastane.agent.preload import WORKER_MODULES
from elastane.agent.spawn import build_environment, open_log, spawn_python
from elastane.agent.warm_pool import ZYGOTE_NAME, PoolSettings, WarmPool
from elastane.model.ids import WorkerId
from elastane.worker.context import CONTEXT_VARIABLE, WorkerContext


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSettings:
    """Hold what the workers of one job on this machine have in common."""

    script: str
    directory: str
    """The job's folder."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """The environment that workers inherit, usually that of the command that runs the job."""
    intra_op_threads: int = 1
    warm: bool = True
    """Fork workers from a preloaded parent."""
    preload: tuple[str, ...] = WORKER_MODULES
    """What that parent imports beside the entry's module and the script's installed packages."""
    entry: str = DEFAULT_ENTRY
    """"package.module:function" that runs in the worker; takes the context and returns the exit code."""


class LocalLauncher:
    """Start, signal and watch worker processes on this machine; a `Launcher`."""

    def __init__(self, settings: LocalSettings) -> None:
        """Start the preloaded parent at once, so that it is ready when workers are wanted.

        Raises:
            OSError: the job's folder cannot be written, or the system gives no more processes.
        """
        self._settings = settings
        self._environment = build_environment(settings.environment, settings.intra_op_threads)
        self._children = Children()
        self._notices: list[Notice] = []
        self._pool: WarmPool | None = None
        if settings.warm:
            self._pool = self._open_pool(settings)

    def _open_pool(self, settings: LocalSettings) -> WarmPool:
        pool_settings = PoolSettings(
            script=settings.script,
            entry=settings.entry,
            preload=settings.preload,
            environment=self._environment,
            directory=settings.directory,
        )
        pool = WarmPool(pool_settings, self._children, self._adopt_warm, self._start_cold)
        try:
            pool.open()
        except OSError:
            pool.close()
            self._children.close()
            raise
        return pool

    def start(self, context: WorkerContext) -> None:
        """Ask for a process that runs the worker of `context`; `poll` tells what became of it."""
        if self._pool is not None and not self._pool.given_up:
            self._notices += self._pool.start(context)
        else:
            self._start_cold(context)

    def adopt(self, worker: WorkerId, pid: int) -> None:
        """Watch a worker that an earlier agent has started; `poll` tells its exit, without its code."""
        try:
            self._children.adopt(worker, pid, foreign=True)
        except ProcessLookupError:
            self._notices.append(Exited(worker=worker, code=None))

    def fileno(self) -> int:
        """Return a descriptor that is readable while `poll` has something to tell from outside."""
        return self._children.fileno()

    def poll(self) -> list[Notice]:
        """Return what happened since the last call, without waiting."""
        if self._pool is not None:
            self._notices += self._pool.poll()
        for child in self._children.collect():
            if child.name != ZYGOTE_NAME:
                self._notices.append(Exited(worker=WorkerId(child.name), code=child.code))
            elif self._pool is not None:
                self._notices += self._pool.take_exit(child.code)
        notices, self._notices = self._notices, []
        return notices

    def signal(self, worker: WorkerId, signal_number: int) -> None:
        """Send a signal to a worker's own process; a request that has not been sent is taken back."""
        if not self._take_back(worker):
            self._children.signal(worker, signal_number)

    def kill(self, worker: WorkerId) -> None:
        """End a worker's whole process group at once; `poll` reports its exit."""
        if not self._take_back(worker):
            self._children.kill(worker)

    def find_stopped(self) -> tuple[WorkerId, ...]:
        """Return the workers whose processes a signal has frozen."""
        return tuple(WorkerId(name) for name in self._children.find_stopped() if name != ZYGOTE_NAME)

    def close(self) -> None:
        """Kill what is left and give up all processes and descriptors; harmless if called twice."""
        if self._pool is not None:
            self._pool.close()
        self._children.close()

    def _take_back(self, worker: WorkerId) -> bool:
        if self._pool is None or not self._pool.cancel(worker):
            return False
        self._notices.append(StartFailed(worker=worker, why="taken back"))
        return True

    def _adopt_warm(self, worker: WorkerId, pid: int) -> None:
        self._adopt(worker, pid, warm=True)

    def _start_cold(self, context: WorkerContext) -> None:
        environment = {**self._environment, CONTEXT_VARIABLE: msgspec.json.encode(context).decode()}
        try:
            log = open_log(Path(context.directory), context.worker)
            try:
                arguments = ("-m", "elastane.agent.cold", self._settings.entry)
                pid = spawn_python(arguments, environment, log)
            finally:
                os.close(log)
        except OSError as error:
            self._notices.append(StartFailed(worker=context.worker, why=str(error)))
            return
        self._adopt(context.worker, pid, warm=False)

    def _adopt(self, worker: WorkerId, pid: int, *, warm: bool) -> None:
        try:
            self._children.adopt(worker, pid)
        except ProcessLookupError:
            self._notices.append(StartFailed(worker=worker, why=f"process {pid} was gone at once"))
            return
        self._notices.append(Started(worker=worker, pid=pid, warm=warm))
