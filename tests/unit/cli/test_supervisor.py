"""What an agent's process is told, whenever signals come: its order first, then each request to stop once."""

import io
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from elastane.agent.serve import LastWord, Order
from elastane.cli.supervisor import Supervisor
from elastane.model.ids import JobId, NodeId
from elastane.model.records import JobPhase, JobStatus

ORDER = Order(store_url="memory://x", job=JobId("j"), home="/h", node=NodeId("n"))
LINE = msgspec.json.encode(ORDER) + b"\n"
ENDED = JobStatus(phase=JobPhase.STOPPED)

DEADLINE_S = 60.0

Moment = Callable[[str], None]


class Pipe(io.RawIOBase):
    """The standard input of an agent; something may happen before, in the middle of and after each write."""

    def __init__(self, happens: Moment) -> None:
        super().__init__()
        self.heard = b""
        self._happens = happens

    def write(self, words: Any) -> int:
        self._happens("before a write")
        half = bytes(words[: len(words) // 2 + 1])  # a signal handler may cut a write short
        self.heard += half
        self._happens("after a write")
        return len(half)


class Process:
    """An agent that ends as soon as somebody waits for it."""

    def __init__(self, happens: Moment, code: int) -> None:
        self.stdin = Pipe(happens)
        reading, writing = os.pipe()
        os.write(writing, msgspec.json.encode(LastWord(status=ENDED)))
        os.close(writing)
        self.stdout = os.fdopen(reading, "rb", buffering=0)
        self._happens = happens
        self._code = code

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        self.stdin.close()
        self.stdout.close()

    def wait(self) -> int:
        self._happens("at the end")
        return self._code


class World:
    """A supervisor whose agents are told of, and to whom a signal comes at the chosen moments."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, codes: tuple[int, ...] = (0,)) -> None:
        (folder / "logs").mkdir()
        self.supervisor = Supervisor(ORDER, folder)
        self.agents: list[Process] = []
        self.moments: list[str] = []
        self._signals: set[int] = set()
        self._codes = list(codes)
        monkeypatch.setattr(subprocess, "Popen", self._start)

    def _start(self, *_: object, **__: object) -> Process:
        self._happens("before the agent is there")
        self.agents.append(Process(self._happens, self._codes.pop(0)))
        self._happens("when the agent is there")
        return self.agents[-1]

    def _happens(self, moment: str) -> None:
        self.moments.append(moment)
        if len(self.moments) - 1 in self._signals:
            self.supervisor.request_stop()

    def run(self, *signals: int) -> list[bytes]:
        """Run with a signal at each of these moments, counted from 0; return what each agent heard."""
        self._signals = set(signals)
        assert self.supervisor.run() == ENDED
        return [agent.stdin.heard for agent in self.agents]


def count_moments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codes: tuple[int, ...] = (0,)) -> int:
    folder = tmp_path / "plain"
    folder.mkdir()
    world = World(folder, monkeypatch, codes)
    assert world.run() == [LINE] * len(codes)
    return len(world.moments)


def test_a_signal_at_any_moment_reaches_the_agent_after_its_order_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for moment in range(count_moments(tmp_path, monkeypatch)):
        folder = tmp_path / str(moment)
        folder.mkdir()
        assert World(folder, monkeypatch).run(moment) == [LINE + b"s"], moment


def test_two_signals_at_any_moments_are_two_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moments = count_moments(tmp_path, monkeypatch) + 1
    for first in range(moments):
        for second in range(first):
            folder = tmp_path / f"{first}-{second}"
            folder.mkdir()
            assert World(folder, monkeypatch).run(second, first) == [LINE + b"ss"], (second, first)


def test_the_next_agent_is_told_of_all_requests_whenever_they_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for moment in range(count_moments(tmp_path, monkeypatch, codes=(-9, 0))):
        folder = tmp_path / str(moment)
        folder.mkdir()
        _, second = World(folder, monkeypatch, codes=(-9, 0)).run(moment)
        assert second == LINE + b"s", moment


def test_a_thread_that_ends_the_job_while_one_agent_dies_and_the_next_begins_reaches_that_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tells_first, second_begun, second_told = (threading.Event() for _ in range(3))

    def happens(moment: str) -> None:
        agent, thread = len(world.agents), threading.current_thread() is threading.main_thread()
        if not thread and not second_begun.is_set():
            tells_first.set()
            assert second_begun.wait(DEADLINE_S)
            raise ValueError("write to closed file")
        if not thread and moment == "after a write" and world.agents[-1].stdin.heard == LINE + b"ss":
            second_told.set()
        if thread and moment == "at the end" and agent == 1:
            ender.start()
            assert tells_first.wait(DEADLINE_S)
        if thread and moment == "at the end" and agent == 2:
            second_begun.set()
            assert second_told.wait(DEADLINE_S)

    world = World(tmp_path, monkeypatch, codes=(-9, 0))
    monkeypatch.setattr(world, "_happens", happens)
    ender = threading.Thread(target=world.supervisor.end_at_once)
    assert world.run() == [LINE, LINE + b"ss"]
    ender.join(DEADLINE_S)
    assert not ender.is_alive()


def test_a_signal_between_any_two_lines_reaches_the_agent_after_its_order_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python runs a signal's handler between two lines: a trace function stands for it here."""

    def run(line_number: int | None, number: int) -> tuple[list[bytes], int]:
        folder = tmp_path / f"line-{number}"
        folder.mkdir()
        world = World(folder, monkeypatch)
        lines = 0

        def trace(frame: Any, kind: str, _: object) -> Any:
            nonlocal lines
            if not frame.f_code.co_filename.endswith("cli/supervisor.py") or frame.f_code.co_name in IGNORED:
                return None
            if kind == "line":
                lines += 1
                if lines == line_number:
                    sys.settrace(None)
                    world.supervisor.request_stop()
            return trace

        sys.settrace(trace)
        try:
            return world.run(), lines
        finally:
            sys.settrace(before)

    before = sys.gettrace()
    heard, total = run(None, 0)
    assert heard == [LINE]
    assert total > 20
    for number in range(1, total + 1):
        heard, _ = run(number, number)
        # Who asks when the agent has ended asks nobody any more.
        assert heard == [LINE + b"s"] or (heard == [LINE] and number > total - AFTER_THE_END), number


IGNORED = ("caught_signals", "stop", "_read_last_word", "__init__", "request_stop")
AFTER_THE_END = 12
"""Lines from the agent's end on."""
