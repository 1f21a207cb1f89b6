"""Let two systems take turns, and hold what their steps took."""

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.figures import Figure, Target, compute_ratios, make_figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Hold one turn of one system.

    Attributes:
        periods: times between neighbouring steps, in seconds.
        cpu_s: processor time of one step, summed over all processes that train, data loading left out.
    """

    periods: Sequence[float]
    cpu_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """Hold the turns of two systems, in pairs of neighbours."""

    ours: Sequence[Turn]
    theirs: Sequence[Turn]


def take_turns(ours: Callable[[], Turn], theirs: Callable[[], Turn], count: int) -> Turns:
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


def make_turn_figures(turns: Turns, workload: str, peer: str, target: Target) -> list[Figure]:
    """Return the ratios to the peer, and the times that they are made of."""
    our_medians, their_medians = _medians(turns.ours), _medians(turns.theirs)
    our_means = [statistics.fmean(turn.periods) for turn in turns.ours]
    their_means = [statistics.fmean(turn.periods) for turn in turns.theirs]
    our_cpu_s, their_cpu_s = [turn.cpu_s for turn in turns.ours], [turn.cpu_s for turn in turns.theirs]
    in_ratios = {
        f"mean step time / {peer}": compute_ratios(our_means, their_means),
        f"processor time per step / {peer}": compute_ratios(our_cpu_s, their_cpu_s),
    }
    in_seconds = {
        "step time, elastane": our_medians,
        f"step time, {peer}": their_medians,
        "processor time per step, elastane": our_cpu_s,
        f"processor time per step, {peer}": their_cpu_s,
    }
    medians = compute_ratios(our_medians, their_medians)
    return [
        make_figure(f"step time / {peer}", workload, medians, "ratio", target),
        *(make_figure(name, workload, values, "ratio") for name, values in in_ratios.items()),
        *(
            make_figure(name, workload, [v * 1e3 for v in values], "ms")
            for name, values in in_seconds.items()
        ),
    ]


def _in_ms(values_s: Sequence[float]) -> list[float]:
    return [value_s * 1e3 for value_s in values_s]


def _medians(turns: Sequence[Turn]) -> list[float]:
    return [statistics.median(turn.periods) for turn in turns]


def compute_steps_between(stamps: Sequence[float]) -> list[float]:
    """Return the times between neighbouring stamps, in seconds."""
    return [later - earlier for earlier, later in itertools.pairwise(stamps)]


def measure_call_s(call: Callable[[], object]) -> float:
    """Return how long a call took, in seconds."""
    begun_s = time.monotonic()
    call()
    return time.monotonic() - begun_s
