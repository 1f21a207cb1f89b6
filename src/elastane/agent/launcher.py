"""Where worker processes come from: one small interface between the agent and what starts them.

A launcher starts, signals and reports; it decides nothing and knows no store. `LocalLauncher` (in
`local.py`) makes processes on this machine; others may ask Ray or Slurm for them.
"""

from dataclasses import dataclass
from typing import Protocol

from elastane.model.ids import WorkerId
from elastane.worker.context import WorkerContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """Report that a worker's process runs."""

    worker: WorkerId
    pid: int
    warm: bool
    """True if it was forked from a preloaded parent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exited:
    """Report that a worker's process, and all of its process group, is gone."""

    worker: WorkerId
    code: int | None
    """Exit code; -N if signal N ended the process, as in `subprocess`; None if it was not ours to see."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFailed:
    """Report that no process could be made for a worker."""

    worker: WorkerId
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolReported:
    """Report something about the preloaded parent itself, for the event log."""

    kind: str
    fields: dict[str, object]


Notice = Started | Exited | StartFailed | PoolReported


class Launcher(Protocol):
    """Start, signal and watch the worker processes of one agent. Used by one thread only."""

    def start(self, context: WorkerContext) -> None:
        """Ask for a process that runs the worker of `context`; `poll` tells what became of it."""

    def adopt(self, worker: WorkerId, pid: int) -> None:
        """Watch a worker that an earlier agent has started; `poll` tells its exit, without its code."""

    def fileno(self) -> int:
        """Return a descriptor that is readable while `poll` has something to tell."""

    def poll(self) -> list[Notice]:
        """Return what happened since the last call, without waiting."""

    def signal(self, worker: WorkerId, signal_number: int) -> None:
        """Send a signal to a worker's own process; nothing happens if it is gone."""

    def kill(self, worker: WorkerId) -> None:
        """End a worker's whole process group at once; `poll` reports its exit."""

    def find_stopped(self) -> tuple[WorkerId, ...]:
        """Return the workers whose processes are frozen, as far as that can be seen from here."""

    def close(self) -> None:
        """Kill what is left and give up all processes and descriptors; harmless if called twice."""
