"""What the autoscaler does with a job whose throughput at every size is known.

For choosing settings before a run, and for measuring the autoscaler itself: the real `decide_size` is driven
by a recorded curve, with the time that measuring, joining and switching takes. The clock is a number that is
added to.
"""

from collections.abc import Callable
from dataclasses import dataclass

from elastane.core.autoscaler import AutoscaleSettings, Observation, Search, decide_size


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedJob:
    """Describe a job.

    Attributes:
        throughput: samples per second by number of workers.
        batch: samples of a step.
        samples: to be trained in all.
        join_s: newcomers prepare for so long while the others train on; they are paid for.
        grow_stop_s, shrink_stop_s: nobody trains for so long at a switch.
    """

    throughput: Callable[[int], float]
    batch: int
    samples: float
    join_s: float = 0.0
    grow_stop_s: float = 0.0
    shrink_stop_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Hold one change of size: when, to which, and why."""

    at_s: float
    size: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """Hold how a job went.

    Attributes:
        total_s: until the last sample.
        worker_s: sum over all workers of the time they were held.
        moves: changes of size.
        settled: the size at the end of the first search; None if the job ended before.
        settled_at_s, settled_after_steps, settled_after_moves: when that was.
    """

    total_s: float
    worker_s: float
    moves: tuple[Move, ...]
    settled: int | None
    settled_at_s: float = 0.0
    settled_after_steps: int = 0
    settled_after_moves: int = 0


def replay_static(job: ReplayedJob, size: int) -> Replay:
    """Return how the job goes with `size` workers all along."""
    total_s = job.samples / job.throughput(size)
    return Replay(total_s=total_s, worker_s=size * total_s, moves=(), settled=size)


def replay_autoscale(job: ReplayedJob, start: int, settings: AutoscaleSettings) -> Replay:
    """Return how the job goes with the autoscaler, from `start` workers on."""
    run = _Run(job, start)
    search, found = Search(), Replay(total_s=0.0, worker_s=0.0, moves=(), settled=None)
    fresh = False
    while run.left > 0:
        run.train(settings.skipped_steps if fresh else 0)
        run.train(settings.interval_steps)
        decision = decide_size(search, run.observe(), settings)
        search, fresh = decision.search, decision.size != run.size
        if fresh and run.left > 0:
            run.change(decision.size, decision.reason)
        if search.settled is not None and found.settled is None:
            found = Replay(
                total_s=0.0,
                worker_s=0.0,
                moves=(),
                settled=search.settled,
                settled_at_s=run.now_s,
                settled_after_steps=run.steps,
                settled_after_moves=len(run.moves),
            )
    return Replay(
        total_s=run.now_s,
        worker_s=run.worker_s,
        moves=tuple(run.moves),
        settled=found.settled,
        settled_at_s=found.settled_at_s,
        settled_after_steps=found.settled_after_steps,
        settled_after_moves=found.settled_after_moves,
    )


class _Run:
    """Add up time, samples and workers."""

    def __init__(self, job: ReplayedJob, start: int) -> None:
        self._job = job
        self.size = start
        self.left = job.samples
        self.now_s = self.worker_s = 0.0
        self.steps = 0
        self.moves: list[Move] = []

    def observe(self) -> Observation:
        return Observation(
            now_s=self.now_s,
            size=self.size,
            throughput=self._job.throughput(self.size),
            elapsed_s=self.now_s,
            remaining_samples=max(0.0, self.left),
            step_time_s=self._job.batch / self._job.throughput(self.size),
        )

    def train(self, steps: int) -> None:
        step_s = self._job.batch / self._job.throughput(self.size)
        # The last step of the job may be cut.
        done = min(float(steps), max(0.0, self.left) / self._job.batch)
        self.steps += steps
        self.left -= done * self._job.batch
        self._hold(self.size, done * step_s)

    def change(self, size: int, reason: str) -> None:
        if size > self.size:
            trained = min(self.left, self._job.join_s * self._job.throughput(self.size))
            self.left -= trained
            self.steps += int(trained / self._job.batch)
            self._hold(size, trained / self._job.throughput(self.size))
        self._hold(
            max(size, self.size), self._job.grow_stop_s if size > self.size else self._job.shrink_stop_s
        )
        self.size = size
        self.moves.append(Move(at_s=self.now_s, size=size, reason=reason))

    def _hold(self, workers: int, time_s: float) -> None:
        self.now_s += time_s
        self.worker_s += workers * time_s
