"""Our own rule: every device goes where it ends most work soon, judged by what each job has had so far.

Sizes maximise the sum of weight x U(speedup) over all jobs. U is between throughput and proportional
fairness: throughput alone starves jobs that scale badly, fairness alone wastes devices on them. Run times
have a heavy tail, so the odds that a job ends within the next device-second fall with its attained service
W: its weight is (W + c) ** -(alpha x crowding squared), in steps, with crowding = jobs / devices up to 1:
whom to serve first matters only as far as devices are short. Whoever waits gets his minimum before anybody
grows, and only changes that are worth their cost are made. Knows nothing about the future.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from elastane.model.cluster import Plan
from elastane.model.errors import ConfigError
from elastane.policy.price import MOST_LEVELS, Weighing, compute_ideal_sizes
from elastane.policy.resize import resize_to
from elastane.policy.view import Floats, Ints, Rows, View


@dataclass(frozen=True, slots=True, kw_only=True)
class Elastane:
    """Share the cluster by weighted marginal utility.

    `fairness`: see `Weighing`. `alpha`, `base` (c, device-seconds): the weight; `step`: it falls each time
    W + c has grown by this factor. `cooldown_s`: a running job grows only that long after its last change.
    `slack`: a job grows at others' expense only by more than this share of what it holds.
    """

    name: ClassVar[str] = "elastane"
    clairvoyant: ClassVar[bool] = False

    # Chosen on the traces in docs/elasticity-map.md.
    fairness: float = 0.75
    alpha: float = 0.5
    base: float = 500.0
    step: float = 2.0
    cooldown_s: float = 60.0
    slack: float = 0.25

    def __post_init__(self) -> None:
        if not (self.alpha >= 0.0 and self.base > 0.0 and self.step > 1.0):
            raise ConfigError(
                f"alpha {self.alpha}, base {self.base}, step {self.step}: needed are alpha >= 0, "
                "base > 0 and step > 1"
            )

    def plan(self, view: View, now: float) -> Plan:
        """Find everybody's ideal size, then make the changes that are worth it."""
        rows, jobs = view.live, view.jobs
        served = view.attained(rows) + self.base
        levels = np.floor(np.log(served / self.base) / math.log(self.step) + 1e-9).astype(np.int64)
        urgency = np.clip(levels - jobs.priority[rows] + MOST_LEVELS // 4, 0, MOST_LEVELS - 1)
        exponent = -self.alpha * min(1.0, len(rows) / view.capacity) ** 2
        # The last factor keeps the order of levels where the exponent is as good as 0.
        level = np.arange(MOST_LEVELS, dtype=np.float64)
        weight_of_level = self.step ** (exponent * level) * (1.0 - 1e-6) ** level
        weighing = Weighing(weight_of_level=weight_of_level, fairness=self.fairness)
        ideal = compute_ideal_sizes(view, rows, urgency, weighing)
        target, resting = self._settle(view, rows, ideal)
        # Nobody is in such a hurry to lose weight that it must be noticed between two rests.
        again_s = max(self._find_next_step_s(now, served, levels, target), now + self.cooldown_s)
        if resting:
            again_s = now + self.cooldown_s
        return Plan(changes=resize_to(view, rows, target, "most weighted speedup"), ask_again_s=again_s)

    def _settle(self, view: View, rows: Rows, ideal: Ints) -> tuple[Ints, bool]:
        """Return the sizes of this moment, and whether some job must rest before it may grow.

        Jobs that start take what they need from those above their ideal size. Rested jobs then grow: far
        below their ideal into idle devices and those of jobs far above theirs, else into idle devices only.
        """
        jobs = view.jobs
        held, least = jobs.held[rows], jobs.smallest[rows]
        target = np.where(held > 0, held, ideal)
        _take_back(target, np.minimum(ideal, target), least, int(target.sum()) - view.capacity)
        rested = view.now - jobs.changed_s[rows] >= self.cooldown_s
        under = (held > 0) & (target == held) & (ideal > held)
        far = np.abs(ideal - held) > self.slack * held
        floors = np.where(far & rested, np.minimum(ideal, target), target)
        _grow(target, ideal, np.flatnonzero(under & rested & far), view.capacity - int(floors.sum()))
        _take_back(target, np.minimum(floors, target), least, int(target.sum()) - view.capacity)
        room = view.capacity - int(target.sum())
        _grow(target, ideal, np.flatnonzero(under & rested & (target == held)), room)
        return target, room > 0 and bool((under & ~rested).any())

    def _find_next_step_s(self, now: float, served: Floats, levels: Ints, target: Ints) -> float:
        """Return when the first running job's weight will fall by a step."""
        running = np.flatnonzero(target)
        if not len(running):
            return math.inf
        limit = self.base * self.step ** (levels[running] + 1.0)
        wait_s = float(((limit - served[running]) / target[running]).min())
        return max(now + wait_s, math.nextafter(now, math.inf))


def _take_back(target: Ints, floors: Ints, least: Ints, devices: int) -> None:
    """Lower targets towards `floors` until `devices` are free, largest excess first, so that few jobs change.

    A job that would be left with less than its minimum gives all.
    """
    if devices <= 0:
        return
    excess = target - floors
    order = np.argsort(-excess, kind="stable")
    before = np.cumsum(excess[order]) - excess[order]
    taken = np.clip(devices - before, 0, excess[order])
    target[order] -= taken
    target[target < least] = 0


def _grow(target: Ints, ideal: Ints, places: Rows, devices: int) -> None:
    """Raise the targets of `places` to their ideal while `devices` last, largest step first."""
    if devices <= 0 or not len(places):
        return
    steps = ideal[places] - target[places]
    order = places[np.argsort(-steps, kind="stable")]
    wanted = ideal[order] - target[order]
    before = np.cumsum(wanted) - wanted
    target[order] += np.clip(devices - before, 0, wanted)
