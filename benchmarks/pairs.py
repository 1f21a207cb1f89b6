"""Let two systems take turns, and hold what their steps took."""

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """Hold the periods of every turn, in seconds: ours and theirs, in pairs of neighbours."""

    ours: Sequence[Sequence[float]]
    theirs: Sequence[Sequence[float]]

    @property
    def our_medians(self) -> list[float]:
        """Return the median period of each of our turns."""
        return [statistics.median(turn) for turn in self.ours]

    @property
    def their_medians(self) -> list[float]:
        """Return the median period of each of their turns."""
        return [statistics.median(turn) for turn in self.theirs]

    @property
    def our_means(self) -> list[float]:
        """Return the mean period of each of our turns."""
        return [statistics.fmean(turn) for turn in self.ours]

    @property
    def their_means(self) -> list[float]:
        """Return the mean period of each of their turns."""
        return [statistics.fmean(turn) for turn in self.theirs]


def compute_steps_between(stamps: Sequence[float]) -> list[float]:
    """Return the times between neighbouring stamps, in seconds."""
    return [later - earlier for earlier, later in itertools.pairwise(stamps)]


def take_turns(
    ours: Callable[[], Sequence[float]], theirs: Callable[[], Sequence[float]], count: int
) -> Turns:
    """Run both `count` times in turn, each first every other time, so that a drift favours neither."""
    our_turns, their_turns = [], []
    for number in range(count):
        if number % 2:
            their_turns.append(theirs())
            our_turns.append(ours())
        else:
            our_turns.append(ours())
            their_turns.append(theirs())
    return Turns(ours=our_turns, theirs=their_turns)


def measure_call_s(call: Callable[[], object]) -> float:
    """Return how long a call took, in seconds."""
    begun_s = time.monotonic()
    call()
    return time.monotonic() - begun_s
