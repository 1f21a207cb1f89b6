"""When a worker came past each milestone of its join, by the monotonic clock of its machine.

The phases between them follow each other without a gap. What they are for is in `observe.joins`.
"""

import time
from collections.abc import Callable

from elastane.observe.joins import JoinPhase


class Milestones:
    """Remember when each phase of a worker's join ended.

    Args:
        requested_at_s: when the agent asked for the worker; 0 if nobody did.
        clock: of this machine.
    """

    __slots__ = ("_clock", "_ended_at_s", "_requested_at_s")

    def __init__(self, requested_at_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._requested_at_s = requested_at_s
        self._clock = clock
        self._ended_at_s: dict[JoinPhase, float] = {}

    def reach(self, phase: JoinPhase, at_s: float | None = None) -> None:
        """Note that a phase has ended, now or at a moment before; usable from any thread.

        What has to be done again, since a proposal came to nothing, ends when it was done last.
        """
        self._ended_at_s[phase] = self._clock() if at_s is None else at_s

    def durations(self) -> dict[str, float]:
        """Return the seconds of each phase that has ended; one that was never noted adds to the next.

        Empty if nobody asked for the worker.
        """
        if not self._requested_at_s:
            return {}
        seconds: dict[str, float] = {}
        begun_s = self._requested_at_s
        for phase in JoinPhase:
            ended_s = self._ended_at_s.get(phase)
            if ended_s is not None:
                # A later phase may have been left and begun again while an earlier one was noted once.
                seconds[phase.value] = max(0.0, ended_s - begun_s)
                begun_s = max(begun_s, ended_s)
        return seconds
