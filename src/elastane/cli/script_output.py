"""What the script prints, as `elastane run` shows it: the lines of the worker that owns virtual worker 0.

All workers run the same script; `if job.is_main:` prints once, and what others print stays in their logs
(`elastane logs`). When another worker becomes the main one its lines from then on follow.
"""

from collections.abc import Callable
from pathlib import Path

from elastane.jobs.registry import log_path
from elastane.model.ids import WorkerId
from elastane.observe.snapshot import JobSnapshot
from elastane.observe.tail import LineTail


class ScriptOutput:
    """Follow the output of a job's main worker, whoever that is."""

    __slots__ = ("_directory", "_show", "_tails")

    def __init__(self, directory: Path, show: Callable[[WorkerId, str], None]) -> None:
        """Follow the logs in the job's `directory`; `show` is called with the worker and each line."""
        self._directory = directory
        self._show = show
        self._tails: dict[WorkerId, LineTail] = {}

    def update(self, snapshot: JobSnapshot, *, last: bool = False) -> None:
        """Show what is new; with `last` no more is expected, and a last line without an end is shown too.

        Raises:
            OSError: a log exists but cannot be read.
        """
        for worker in snapshot.workers:
            if worker.vranks is not None and worker.vranks[0] == 0 and worker.worker not in self._tails:
                self._follow(worker.worker)
        for name, tail in self._tails.items():
            for line in tail.poll(last=last):
                self._show(name, line.decode(errors="replace"))

    def _follow(self, worker: WorkerId) -> None:
        tail = LineTail(log_path(self._directory, worker))
        if self._tails:
            tail.poll()  # what it printed before was printed by the main worker too
        self._tails[worker] = tail
