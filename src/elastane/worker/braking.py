"""Make this worker slow for a while, because a drill asks for it: the training thread sleeps after computing.

A sleep stretches the computing by just the factor that is asked for, whatever the length of a turn, on any
device; the control thread goes on, so that the lease stays alive; and a worker that sleeps wakes up by
itself, whatever becomes of the drill (docs/decisions, "A drill makes a worker slow by letting it sleep").
"""

import time
from collections.abc import Callable
from typing import Any, Protocol

from elastane.model.ids import WorkerId
from elastane.model.records import Slowdown

SLICE_S = 0.05
"""Longest sleep without a look at the order: the end of a drill is heeded as soon, however long the steps."""
SHORTEST_S = 1e-5
"""What is owed and less than this is left for later: a sleep takes longer than that to begin and end."""


class EventSink(Protocol):
    """Be what events are told to."""

    def append(self, kind: str, **fields: Any) -> None:
        """Take one event."""
        ...


class Brake:
    """Hold one worker back as the drills on it say. Belongs to the training thread.

    Args:
        read: returns the order as the store has it now; None if there is none.
        events: where the beginning and the end of each drill are told.
        worker: this one.
        clock: monotonic, seconds.
        sleep: waits so many seconds.
    """

    def __init__(
        self,
        read: Callable[[], Slowdown | None],
        events: EventSink,
        worker: WorkerId,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._read = read
        self._events = events
        self._worker = worker
        self._clock = clock
        self._sleep = sleep
        self._order: Slowdown | None = None
        self._until_s = 0.0
        self._heeds = False
        self._owed_s = 0.0

    def hold_back(self, took_s: float) -> float:
        """Wait as the drill asks after this worker computed for `took_s` seconds; return for how long.

        What a sleep was too long by is taken off the next one.
        """
        began_s = self._clock()
        order = self._heed(began_s)
        if order is None:
            return 0.0
        self._owed_s += (order.factor - 1) * took_s
        now_s = began_s
        while self._owed_s > SHORTEST_S and self._heed(now_s) is not None:
            self._sleep(min(self._owed_s, SLICE_S))
            before_s, now_s = now_s, self._clock()
            self._owed_s -= now_s - before_s
        return now_s - began_s

    def _heed(self, now_s: float) -> Slowdown | None:
        """Return the order that is to be obeyed now; tell when one begins and ends."""
        order = self._read()
        if order != self._order:
            self._end("the drill is over")
            self._order = order
            if order is not None:
                self._begin(order, now_s)
        if self._heeds and now_s >= self._until_s:
            self._end("the time is up")
        return self._order if self._heeds else None

    def _begin(self, order: Slowdown, now_s: float) -> None:
        self._until_s, self._owed_s, self._heeds = now_s + order.for_s, 0.0, True
        self._events.append(
            "slowed",
            worker=self._worker,
            factor=order.factor,
            for_s=order.for_s,
            drill=order.drill,
            reason="a drill, asked for by a person",
        )

    def _end(self, reason: str) -> None:
        if self._heeds and self._order is not None:
            self._heeds = False
            self._events.append("slowed_no_more", worker=self._worker, drill=self._order.drill, reason=reason)
