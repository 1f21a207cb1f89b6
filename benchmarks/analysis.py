"""What the logs of a job say about one change of its workers. Pure: commits in, durations out.

A job's log holds the wall clock of every commit. The time between two neighbouring commits is a period. A
change comes between the commits of two steps, so their period is longer by the time in which nothing was
trained: the stop.
"""

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Hold when a step was committed, and by how many workers."""

    step: int
    at_s: float
    workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Hold what one change cost the workers that were training already.

    Attributes:
        gap_s: between the commits before and after the change.
        before_s: median period before the change was asked for.
        after_s: median period after it.
    """

    gap_s: float
    before_s: float
    after_s: float

    @property
    def stop_s(self) -> float:
        """Return the time without progress: the gap, less the step that was trained within it."""
        return self.gap_s - self.after_s

    @property
    def steps(self) -> float:
        """Return the stop in step times, of the shorter of both step times."""
        return self.stop_s / min(self.before_s, self.after_s)


def compute_periods(commits: Sequence[Commit]) -> list[float]:
    """Return the times between neighbouring commits, in seconds."""
    return [later.at_s - earlier.at_s for earlier, later in itertools.pairwise(commits)]


def compute_stop(commits: Sequence[Commit], switch_step: int, requested_at_s: float, window: int) -> Stop:
    """Return what the change that came before `switch_step` cost.

    Args:
        commits: of consecutive steps.
        switch_step: first step after the change.
        requested_at_s: wall clock of the request; periods from then on are disturbed by a new worker that
            prepares itself, and are not used as the step time before.
        window: how many periods on either side give the step time.

    Raises:
        ValueError: the log does not reach far enough to either side.
    """
    first = commits[0].step
    before = [c for c in commits if c.step < switch_step and c.at_s < requested_at_s][-window - 1 :]
    after = [c for c in commits if c.step >= switch_step][: window + 1]
    if len(before) < 2 or len(after) < 2 or switch_step <= first:
        raise ValueError(f"the log has too few steps around step {switch_step} to tell the step times")
    last, next_ = commits[switch_step - first - 1], commits[switch_step - first]
    return Stop(
        gap_s=next_.at_s - last.at_s,
        before_s=statistics.median(compute_periods(before)),
        after_s=statistics.median(compute_periods(after)),
    )


def count_steps(commits: Sequence[Commit], begin_s: float, end_s: float) -> float:
    """Return how many steps were trained between two moments, with their fractions.

    Raises:
        ValueError: the log does not reach over both moments.
    """
    return _progress(commits, end_s) - _progress(commits, begin_s)


def _progress(commits: Sequence[Commit], at_s: float) -> float:
    for earlier, later in itertools.pairwise(commits):
        if earlier.at_s <= at_s <= later.at_s:
            return earlier.step + (at_s - earlier.at_s) / (later.at_s - earlier.at_s)
    raise ValueError(f"no step was under way at {at_s:.3f}")


def compute_lost_s(commits: Sequence[Commit], switch_step: int, requested_at_s: float, stop: Stop) -> float:
    """Return how much later than without disturbance the job was at the change's first commit.

    That is the stop, and what a preparing worker takes from the others on a shared machine.
    """
    during = [c for c in commits if c.step < switch_step and c.at_s >= requested_at_s]
    before = [c for c in commits if c.step < switch_step and c.at_s < requested_at_s]
    first_after = next(c for c in commits if c.step == switch_step)
    elapsed_s = first_after.at_s - before[-1].at_s
    return elapsed_s - len(during) * stop.before_s - stop.after_s


def find_first_commit(commits: Sequence[Commit], workers: int, after_s: float) -> Commit:
    """Return the first commit after the wall clock `after_s` with so many workers.

    Raises:
        ValueError: there is none.
    """
    for commit in commits:
        if commit.workers == workers and commit.at_s > after_s:
            return commit
    raise ValueError(f"no step was committed by {workers} workers after {after_s:.3f}")
