"""Keep processors busy beside a job, as a neighbour on a shared machine does.

Each process ends by itself: at its time, or as soon as the one that started it is gone, however that ended.
"""

import os
import subprocess
import sys
from types import TracebackType
from typing import Self

MAX_PROCESSES = 256
"""More than any machine needs to be overloaded several times; a larger number is a slip of the hand."""
END_S = 5.0
"""How long a busy process may take to end: it looks a thousand times a second."""

_SOURCE = """
import os, sys, time
parent, end_s = int(sys.argv[1]), time.monotonic() + float(sys.argv[2])
while os.getppid() == parent and time.monotonic() < end_s:
    for _ in range(10_000):
        pass
"""


class Contention:
    """Keep so many processes busy while the `with` block lasts, and no longer than `for_s`."""

    def __init__(self, processes: int, for_s: float) -> None:
        self._count = processes
        self._for_s = for_s
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        # A session of their own: Ctrl-C is for the command, which ends them.
        command = [sys.executable, "-I", "-S", "-c", _SOURCE, str(os.getpid()), str(self._for_s)]
        try:
            for _ in range(self._count):
                self._running.append(subprocess.Popen(command, start_new_session=True))
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    @property
    def pids(self) -> list[int]:
        """Return the processes that have not ended."""
        return [process.pid for process in self._running if process.poll() is None]

    def end(self) -> None:
        """End all of them; harmless if called twice."""
        for process in self._running:
            process.kill()
        for process in self._running:
            process.wait(END_S)
        self._running.clear()
