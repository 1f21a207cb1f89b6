"""How a watch waits: it looks often after something happened, and seldom when all is quiet.

One look costs some 4 microseconds, ten times that when the caches are cold. It happens inside training
processes, so a quiet watch must not cost them anything that shows. Knows no store: it is given the look and
the clock.
"""

from collections.abc import Callable

from elastane.store.base import Event
from elastane.store.clock import Clock

MIN_INTERVAL_S = 0.002
"""While things happen: half of it is the mean delay, well below the 5 ms that a topology change can spare."""
MAX_INTERVAL_S = 0.025
"""When quiet: 40 looks a second, below 0.5 % of a core even where waking up is dear (a virtual machine)."""
QUIET_SHARE = 32
"""The interval is this share of the quiet time: short for the first 64 ms, at its longest after 800 ms."""


def compute_interval_s(quiet_s: float) -> float:
    """Return how long to sleep until the next look, `quiet_s` seconds after the last event."""
    return min(MAX_INTERVAL_S, max(MIN_INTERVAL_S, quiet_s / QUIET_SHARE))


class Waiter:
    """Look and sleep in turn until there are events; remembers when the last ones came."""

    __slots__ = ("_active_at_s", "_clock", "_look")

    def __init__(self, look: Callable[[], list[Event]], clock: Clock) -> None:
        self._look = look
        self._clock = clock
        self._active_at_s = clock.now_s()

    def wait(self, timeout_s: float) -> list[Event]:
        """Return the first events that a look gives, an empty list once `timeout_s` seconds have passed."""
        until_s = self._clock.now_s() + timeout_s
        while True:
            events = self._look()
            now_s = self._clock.now_s()
            if events:
                self._active_at_s = now_s
            if events or now_s >= until_s:
                return events
            interval_s = compute_interval_s(now_s - self._active_at_s)
            self._clock.sleep(min(interval_s, until_s - now_s))
