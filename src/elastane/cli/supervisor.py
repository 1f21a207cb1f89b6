"""Keep an agent running in a process of its own, and start it again should it be killed.

The agent's death harms no worker: the next one goes on with those that run (see `agent.shift`). It hears
through its standard input what the foreground wants, so no signal can miss it while it starts.
"""

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

import msgspec

from elastane.agent.agent import STOP_SIGNALS
from elastane.agent.serve import CODE_UNABLE, LastWord, Order
from elastane.jobs.registry import log_path
from elastane.model import errors
from elastane.model.records import JobStatus
from elastane.observe.events import EventLog

MOST_DEATHS = 5
"""Agents in a row that die soon after their start, after which there is no point in another one."""
SHORT_LIFE_S = 60.0
"""What is soon: an agent that lived longer worked."""
LOG_NAME = "agent"
SIGNAL_LOOK_S = 0.1
"""Longest time from a signal to its handler."""


class Supervisor:
    """Run the agent of one job until the job has ended."""

    def __init__(self, order: Order, directory: Path) -> None:
        """Prepare to have `order` carried out; what the agent says goes to the logs in the job's
        `directory`."""
        self._order = order
        self._directory = directory
        self._listener: _Listener | None = None
        """The agent that hears requests to stop; None while there is none that has its order."""
        self._stops = 0
        self._telling = threading.Lock()

    def run(self, on_signal: Callable[[], None] | None = None) -> JobStatus:
        """Return how the job ended. In the main thread: signals count as requests to stop meanwhile.

        Args:
            on_signal: what a signal does instead.

        Raises:
            ElastaneError, OSError: what the agent could not go on for, or that it died again and again.
        """
        deaths = 0
        events = EventLog(self._directory, "elastane run")
        try:
            with caught_signals(on_signal or self.request_stop):
                while True:
                    begun_s = time.monotonic()
                    code, said = self._run_once()
                    if code in (0, CODE_UNABLE):
                        return _read_last_word(said)
                    deaths = 1 if time.monotonic() - begun_s > SHORT_LIFE_S else deaths + 1
                    events.append("agent_died", code=code, deaths=deaths)
                    if deaths >= MOST_DEATHS:
                        raise self._give_up(deaths, code)
        finally:
            events.close()

    def request_stop(self) -> None:
        """Ask once for a graceful stop, twice for an end at once. Safe in signal handlers."""
        self._stops += 1
        self._tell_stops()

    def end_at_once(self) -> None:
        """End the job without saving its state. Safe in signal handlers and from any thread."""
        for _ in range(2):
            self.request_stop()

    def _give_up(self, deaths: int, code: int) -> errors.ElastaneError:
        return errors.ElastaneError(
            f"the agent of job {self._order.job} died {deaths} times in a row (exit code {code}), see "
            f"{log_path(self._directory, LOG_NAME)}; its workers stop and save by themselves before long"
        )

    def _run_once(self) -> tuple[int, bytes]:
        path = log_path(self._directory, LOG_NAME)
        log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # A session of its own: Ctrl-C reaches this process only, which tells the agent.
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "elastane.agent.serve"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                bufsize=0,
            )
        finally:
            os.close(log)
        with process:
            assert process.stdin is not None
            assert process.stdout is not None
            # First the order, then requests to stop: one that comes meanwhile is only counted.
            _write_all(process.stdin, msgspec.json.encode(self._order) + b"\n")
            self._listener = _Listener(process.stdin)
            self._tell_stops()
            said = _read_patiently(process.stdout)
            code = process.wait()
            self._listener = None  # the next agent is told of all
        return code, said

    def _tell_stops(self) -> None:
        """Tell the agent of each request to stop that it has not been told of, once.

        A signal may come at any point here, and its handler comes here as well, as may another thread: then
        it leaves the telling to who is at it, who looks once more after he has said that he is done.
        """
        while (listener := self._listener) is not None and listener.told < self._stops:
            if not self._telling.acquire(blocking=False):
                return
            try:
                while listener.told < self._stops:
                    listener.told += 1
                    _write_all(listener.pipe, b"s")
            finally:
                self._telling.release()


@dataclass(slots=True)
class _Listener:
    """Hold how many requests to stop one agent was told of, and where it hears them."""

    pipe: IO[bytes]
    told: int = 0


def _read_patiently(pipe: IO[bytes]) -> bytes:
    """Read to the end, and never be in one call of the system for long.

    Of two signals that come at once another thread may take both: its part is done then, a blocked call of
    the main thread goes on as if nothing had been, and Python runs handlers in the main thread only.
    """
    said = b""
    while True:
        readable, _, _ = select.select([pipe], [], [], SIGNAL_LOOK_S)
        if readable:
            block = os.read(pipe.fileno(), 1 << 16)
            if not block:
                return said
            said += block


def _write_all(pipe: IO[bytes], words: bytes) -> None:
    try:
        while words:
            words = words[pipe.write(words) :]
    except (BrokenPipeError, ValueError):
        return  # it has died, or its pipe was closed, in this moment, which is about to be seen


@contextmanager
def caught_signals(request_stop: Callable[[], None]) -> Iterator[None]:
    """Let each signal that ends programs ask for a stop instead."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        request_stop()

    numbers = list(STOP_SIGNALS)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        numbers.append(signal.SIGHUP)  # a closed terminal, unless that is ignored (nohup)
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _read_last_word(said: bytes) -> JobStatus:
    word = msgspec.json.decode(said, type=LastWord)
    if word.status is not None:
        return word.status
    kind = getattr(errors, word.error, None)
    if isinstance(kind, type) and issubclass(kind, errors.ElastaneError):
        raise kind(word.message)
    raise OSError(word.message)
