"""Signal the process of one worker, and never that of a stranger.

A worker's record says which process it is. Process numbers are used again, and a job's workers may run on
several machines, so the number alone proves nothing. What proves it: the process belongs to this user, and
its standard output or error is the log file of that very worker, whose id is never given to another.
The process is held by a descriptor meanwhile, so that the number cannot change hands between look and signal.
"""

import os
import signal
from pathlib import Path

from elastane.jobs.registry import log_path
from elastane.model.ids import WorkerId

_OUTPUTS = (1, 2)
"""Standard output and error: a script may have redirected one of them."""


class Mark:
    """Hold the process of one worker."""

    __slots__ = ("_descriptor", "pid", "worker")

    def __init__(self, worker: WorkerId, pid: int, descriptor: int) -> None:
        self.worker = worker
        self.pid = pid
        self._descriptor = descriptor

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal; tell whether the process was still there."""
        try:
            signal.pidfd_send_signal(self._descriptor, number)
        except ProcessLookupError:
            return False
        return True

    def release(self) -> None:
        """Let go of the process; harmless if called twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def find_worker_process(directory: Path, worker: WorkerId, pid: int) -> Mark | None:
    """Return the process of a worker; None if it does not run on this machine, or belongs to another user.

    Args:
        directory: the job's folder.
        worker: whose process it must be.
        pid: which process the worker's record names.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return None  # no such process here
    if _is_process_of(directory, worker, pid):
        return Mark(worker, pid, descriptor)
    os.close(descriptor)
    return None


def _is_process_of(directory: Path, worker: WorkerId, pid: int) -> bool:
    process = Path("/proc", str(pid))
    try:
        owner = process.stat().st_uid
        log = log_path(directory, worker).stat()
    except OSError:
        return False
    return owner == os.getuid() and any(_same_file(process / "fd" / str(output), log) for output in _OUTPUTS)


def _same_file(link: Path, log: os.stat_result) -> bool:
    try:
        found = link.stat()
    except OSError:
        return False  # closed, or the process has ended
    return (found.st_dev, found.st_ino) == (log.st_dev, log.st_ino)
