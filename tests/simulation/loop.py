"""Virtual time: one queue of events, and processes whose activities are generators.

An activity yields how long it sleeps, or a `Signal` to wait for, perhaps with the longest time to wait.
A frozen process gets its events when it goes on; a killed one gets none. Nothing here knows what the
processes do.
"""

import heapq
from collections.abc import Callable, Generator
from random import Random
from typing import Any

Activity = Generator[Any, Any, Any]
"""Yields a number of seconds, a Signal, or (Signal, seconds)."""

JITTER_S = 0.002
"""Longest time between a wake-up and the moment at which the woken activity runs: what schedulers do."""


class Signal:
    """Let activities wait until somebody fires."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[tuple[_Task, int]] = []

    def fire(self) -> bool:
        """Wake all that wait now; tell whether there was any."""
        waiting, self._waiting = self._waiting, []
        woken = [task.wake(turn) for task, turn in waiting]
        return any(woken)  # those whose time was up wait no more

    def add(self, task: "_Task", turn: int) -> None:
        """Let a task wait."""
        self._waiting.append((task, turn))


class Bell(Signal):
    """Be a signal that is remembered until somebody waits for it."""

    __slots__ = ("_rung",)

    def __init__(self) -> None:
        super().__init__()
        self._rung = False

    def fire(self) -> bool:
        """Wake all that wait now, or the next that will."""
        woken = super().fire()
        self._rung = self._rung or not woken
        return woken

    def add(self, task: "_Task", turn: int) -> None:
        """Let a task wait, unless the bell has rung."""
        if self._rung:
            self._rung = False
            task.wake(turn)
        else:
            super().add(task, turn)


class Process:
    """Be something that can be killed, frozen and continued."""

    def __init__(self, loop: "Loop", name: str) -> None:
        self.loop = loop
        self.name = name
        self.alive = True
        self.frozen = False
        self._held: list[Callable[[], None]] = []

    def spawn(self, activity: Activity) -> None:
        """Begin an activity of this process."""
        task = _Task(self, activity)
        self.loop.call_after(0.0, task.step, self)

    def kill(self) -> None:
        """End the process at once."""
        self.alive = False
        self._held.clear()

    def freeze(self) -> None:
        """Stop the process where it stands."""
        self.frozen = True

    def thaw(self) -> None:
        """Let the process go on; what happened meanwhile happens to it now, in some order."""
        self.frozen = False
        held, self._held = self._held, []
        for call in held:
            self.loop.call_after(self.loop.rng.random() * JITTER_S, call, self)

    def hold(self, call: Callable[[], None]) -> None:
        """Keep an event until the process goes on."""
        self._held.append(call)


class _Task:
    __slots__ = ("_activity", "_process", "_turn")

    def __init__(self, process: Process, activity: Activity) -> None:
        self._process = process
        self._activity = activity
        self._turn = 0

    def wake(self, turn: int) -> bool:
        if turn != self._turn:
            return False
        loop = self._process.loop
        loop.call_after(loop.rng.random() * JITTER_S, lambda: self._resume(turn), self._process)
        return True

    def _resume(self, turn: int) -> None:
        if turn == self._turn:
            self.step()

    def step(self) -> None:
        self._turn += 1
        try:
            wish = next(self._activity)
        except StopIteration:
            return
        turn = self._turn
        if isinstance(wish, Signal):
            wish.add(self, turn)
            return
        if isinstance(wish, tuple):
            signal, delay_s = wish
            signal.add(self, turn)
        else:
            delay_s = wish
        self._process.loop.call_after(delay_s, lambda: self._resume(turn), self._process)


class LoopClock:
    """Be the clock of a store in virtual time."""

    origin_id = "loop"

    def __init__(self, loop: "Loop") -> None:
        self._loop = loop

    def now_s(self) -> float:
        """Return the time of the present event."""
        return self._loop.now_s

    def sleep(self, duration_s: float) -> None:
        """Never be called: nothing waits here but activities."""
        raise AssertionError(duration_s)


class Loop:
    """Run events in the order of their times."""

    def __init__(self, rng: Random) -> None:
        """Begin at zero."""
        self.rng = rng
        self.now_s = 0.0
        self.events = 0
        self._queue: list[tuple[float, int, Process | None, Callable[[], None]]] = []
        self._count = 0

    def call_after(self, delay_s: float, call: Callable[[], None], process: Process | None = None) -> None:
        """Have `call` run after a while, in `process` or in nobody's name."""
        self._count += 1
        heapq.heappush(self._queue, (self.now_s + delay_s, self._count, process, call))

    def run(self, until_s: float, is_over: Callable[[], bool]) -> None:
        """Run all events up to a time, or until the world is over."""
        queue = self._queue
        while queue and queue[0][0] <= until_s and not is_over():
            at_s, _, process, call = heapq.heappop(queue)
            if process is not None:
                if not process.alive:
                    continue
                if process.frozen:
                    process.hold(call)
                    continue
            self.now_s = at_s
            self.events += 1
            call()
