"""Tell from measured compute times which workers are persistently slow.

Two published detectors behind one interface. Both compare each worker's own compute time per virtual worker
with the typical one of the same step: waiting for others is never counted, since in a synchronous step a
slow peer makes everybody's step equally long; and a worker with more virtual workers is not slow for that.

*Typical* is the median over the workers; of an even number of workers the faster one of the two in the
middle. So of two workers the slower is compared with the faster: against the mean of both it would have to be
1.5 times as slow before a limit of 1.2 is passed. A lone worker is never slow, nor are all together.

What is done about a slow worker: `core.relief`. Knows no processes and no clock.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean, median, median_low
from typing import Protocol

from elastane.model.ids import WorkerId


class Method(StrEnum):
    """Name a detector."""

    STREAK = "streak"
    """Slower than 1.2 times the median for 10 steps in a row (EDL, section 4.3)."""
    AVERAGE = "average"
    """Weighted mean of throughput / median throughput below 0.8 (Or et al., MLSys 2020, Algorithm 1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorSettings:
    """Hold the constants of both detectors.

    Attributes:
        method: which detector.
        streak_limit, streak_steps: EDL's 1.2 and 10.
        smoothed_steps: a step counts as the median of so many, so that one pause, of the slow worker or of
            those it is compared with, breaks no streak; costs half as many steps. 1 is EDL as published.
        average_weight, average_limit: Or et al.'s alpha = 0.1 and threshold = 0.8. A worker that falls to
            75 % of the typical speed is found after 16 steps, to half after 5.
        skipped_steps: steps after a switch that are not counted: caches and allocators are cold, and the
            first step may contain the wait for a newcomer.
        speed_steps: newest steps whose median is a worker's measured speed; half of them must be there.
    """

    method: Method = Method.STREAK
    streak_limit: float = 1.2
    streak_steps: int = 10
    smoothed_steps: int = 5
    average_weight: float = 0.1
    average_limit: float = 0.8
    skipped_steps: int = 3
    speed_steps: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """Name a worker that is persistently slow.

    Attributes:
        worker: its id.
        slowness: how many times as long it takes as the typical worker.
        evidence: on what ground, in plain words.
    """

    worker: WorkerId
    slowness: float
    evidence: str


class Detector(Protocol):
    """Find slow workers from one step's compute times after another."""

    def observe(self, slowness: Mapping[WorkerId, float]) -> None:
        """Take one step's time of each worker, in units of the typical one; who is not named has gone."""
        ...

    def suspects(self) -> list[Suspect]:
        """Return who is slow by now."""
        ...


class StreakDetector:
    """Suspect who was slower than `limit` times the median for `steps` steps in a row."""

    def __init__(self, limit: float, steps: int) -> None:
        self._limit = limit
        self._steps = steps
        self._streaks: dict[WorkerId, deque[float]] = {}

    def observe(self, slowness: Mapping[WorkerId, float]) -> None:
        """Count on for who is slow in this step, begin anew for all others."""
        before, self._streaks = self._streaks, {}
        for worker, ratio in slowness.items():
            if ratio > self._limit:
                streak = before.get(worker) or deque(maxlen=self._steps)
                streak.append(ratio)
                self._streaks[worker] = streak

    def suspects(self) -> list[Suspect]:
        """Return whose streak is complete."""
        ground = f"more than {self._limit:g} times the median in each of the last {self._steps} steps"
        return [
            Suspect(worker=worker, slowness=fmean(streak), evidence=ground)
            for worker, streak in self._streaks.items()
            if len(streak) == self._steps
        ]


class AverageDetector:
    """Suspect whose weighted mean of throughput / median throughput is below `limit`.

    A worker begins with the mean of a healthy one; what it did at first is forgotten by (1 - weight) a step.
    """

    def __init__(self, weight: float, limit: float) -> None:
        self._weight = weight
        self._limit = limit
        self._means: dict[WorkerId, float] = {}

    def observe(self, slowness: Mapping[WorkerId, float]) -> None:
        """Move everybody's mean on; forget who has gone."""
        self._means = {
            worker: self._means.get(worker, 1.0) + self._weight * (1 / ratio - self._means.get(worker, 1.0))
            for worker, ratio in slowness.items()
        }

    def suspects(self) -> list[Suspect]:
        """Return whose mean is too low."""
        return [
            Suspect(
                worker=worker,
                slowness=1 / mean,
                evidence=f"its mean throughput is {mean:.2f} of the median, below {self._limit:g}",
            )
            for worker, mean in self._means.items()
            if mean < self._limit
        ]


def make_detector(settings: DetectorSettings) -> Detector:
    """Return a detector that has seen nothing yet."""
    if settings.method is Method.STREAK:
        return StreakDetector(settings.streak_limit, settings.streak_steps)
    return AverageDetector(settings.average_weight, settings.average_limit)


class StragglerWatch:
    """Watch the members of one job: who is slow, and how fast everybody is.

    Call `restart` at every switch and `observe` after every committed step of the new generation.
    """

    def __init__(self, settings: DetectorSettings) -> None:
        self._settings = settings
        self.restart()

    def restart(self) -> None:
        """Forget everything: another placement has begun."""
        self._to_skip = self._settings.skipped_steps
        self._detector = make_detector(self._settings)
        self._newest: dict[WorkerId, deque[float]] = {}

    def observe(self, seconds: Mapping[WorkerId, float]) -> None:
        """Take one step's own compute time per virtual worker of each worker, in seconds."""
        if self._to_skip:
            self._to_skip -= 1
            return
        usable = {worker: time_s for worker, time_s in seconds.items() if time_s > 0}
        if len(usable) < len(seconds):
            return  # a clock too coarse for this step says nothing of anybody
        for worker, time_s in usable.items():
            window = self._newest.setdefault(worker, deque(maxlen=self._settings.speed_steps))
            window.append(time_s)
        self._detector.observe(compute_slowness(self._smooth(usable)))

    def _smooth(self, seconds: Mapping[WorkerId, float]) -> Mapping[WorkerId, float]:
        if self._settings.method is Method.AVERAGE:
            return seconds  # it smooths by itself
        newest = self._settings.smoothed_steps
        return {worker: median(list(self._newest[worker])[-newest:]) for worker in seconds}

    def suspects(self) -> tuple[Suspect, ...]:
        """Return who is persistently slow, the slowest first."""
        return tuple(sorted(self._detector.suspects(), key=lambda s: (-s.slowness, s.worker)))

    def speeds(self) -> dict[WorkerId, float]:
        """Return the virtual workers per second of each worker; empty until enough steps were seen."""
        enough = (self._settings.speed_steps + 1) // 2
        if any(len(window) < enough for window in self._newest.values()):
            return {}
        return {worker: 1 / median(window) for worker, window in self._newest.items()}


def compute_slowness(seconds: Mapping[WorkerId, float]) -> dict[WorkerId, float]:
    """Return each worker's time in units of the typical one (see the module's text); a lone worker's is 1."""
    typical_s = median_low(seconds.values()) if seconds else 1.0
    return {worker: time_s / typical_s for worker, time_s in seconds.items()}


def level_speeds(speeds: Sequence[float], tolerance: float = 0.05) -> list[float]:
    """Return the speeds with those made equal that differ by noise only.

    Measured speeds are never quite equal, and a placement that follows their noise is worse than an even
    one: it needs more partial gradients. From the slowest up, each group spans at most `tolerance` and takes
    its median. 5 % is twice the scatter of the median of ten steps that vary by 8 %.
    """
    order = sorted(range(len(speeds)), key=lambda worker: speeds[worker])
    levelled = list(speeds)
    while order:
        slowest = speeds[order[0]]
        group = [worker for worker in order if speeds[worker] <= slowest * (1 + tolerance)]
        for worker in group:
            levelled[worker] = median(speeds[member] for member in group)
        order = order[len(group) :]
    return levelled
