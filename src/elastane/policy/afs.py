"""Apathetic Future Share (Hwang et al., NSDI 2021): each device to the job whose gain pays the others most.

Devices are handed out one at a time. Two jobs compete by comparing relative gains: with l the one that
would finish first at its current share and h the other, h gets the device only if it gains relatively more,
(T_h(k'+1) - T_h(k')) / T_h(k'+1) > (T_l(k+1) - T_l(k)) / T_l(k), because ending l early frees all its
devices for h. `afs-l` knows the lengths. `afs-p` does not: the largest relative gain wins, and counters of
attained service keep wide jobs from starving the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from elastane.model.cluster import Plan
from elastane.policy.fill import select_skipping
from elastane.policy.resize import ask_later, resize_to
from elastane.policy.view import Floats, Ints, Rows, View


@dataclass(frozen=True, slots=True, kw_only=True)
class AfsL:
    """Share by the tournament above with known lengths; `interval_s` > 0: at its multiples only."""

    name: ClassVar[str] = "afs-l"
    clairvoyant: ClassVar[bool] = True

    interval_s: float = 0.0

    def plan(self, view: View, now: float) -> Plan:
        """Choose every size anew, or wait for the next round."""
        if self.interval_s and now % self.interval_s:
            return ask_later(now, self.interval_s)
        rows, jobs = view.live, view.jobs
        # Work in seconds on one device; with nobody holding anything the shorter job wins.
        work = view.remaining_s(rows) * view.speedup(rows, jobs.requested[rows])
        order = np.argsort(work, kind="stable")
        target = _seed(view, rows, order)
        _Tournament(view, rows, target, work).run()
        changes = resize_to(view, rows, target, "wins the comparison of relative gains")
        return Plan(changes=changes, ask_again_s=ask_later(now, self.interval_s).ask_again_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class AfsP:
    """Share by relative gains alone; `interval_s` > 0: at its multiples only.

    Jobs with the least attained service get their minimum first: the counters against starvation.
    `quantum` device-seconds of service count as equal, so that shares do not flap.
    """

    name: ClassVar[str] = "afs-p"
    clairvoyant: ClassVar[bool] = False

    interval_s: float = 0.0
    # Not given in the paper's text at hand; one hour on one device.
    quantum: float = 3600.0

    def plan(self, view: View, now: float) -> Plan:
        """Choose every size anew, or wait for the next round."""
        if self.interval_s and now % self.interval_s:
            return ask_later(now, self.interval_s)
        rows, jobs = view.live, view.jobs
        counters = np.floor(view.attained(rows) / self.quantum)
        running_first = (jobs.held[rows] == 0).astype(np.int64)
        target = _seed(view, rows, np.lexsort((rows, running_first, counters)))
        _grow_by_relative_gain(view, rows, target)
        interval_s = self.interval_s or self.quantum
        changes = resize_to(view, rows, target, "gains relatively most")
        return Plan(changes=changes, ask_again_s=ask_later(now, interval_s).ask_again_s)


def _seed(view: View, rows: Rows, order: Rows) -> Ints:
    """Return targets with every job's minimum, in the given order, as far as the devices reach."""
    target = np.zeros_like(rows)
    smallest = view.jobs.smallest[rows]
    chosen = order[select_skipping(smallest[order], view.capacity)]
    target[chosen] = smallest[chosen]
    return target


def _grow_by_relative_gain(view: View, rows: Rows, target: Ints) -> None:
    room = view.capacity - int(target.sum())
    gain = _compute_relative_gains(view, rows, target)
    while room > 0 and len(gain):
        place = int(np.argmax(gain))
        if gain[place] <= 0.0:
            return
        target[place] += 1
        room -= 1
        gain[place] = _compute_relative_gains(view, rows[place : place + 1], target[place : place + 1])[0]


def _compute_relative_gains(view: View, rows: Rows, target: Ints) -> Floats:
    """Return (T(k+1) - T(k)) / T(k+1), 0 for jobs that hold nothing or may not grow."""
    more = view.speedup(rows, target + 1)
    able = (target > 0) & (target < view.jobs.largest[rows])
    return np.where(able, (more - view.speedup(rows, target)) / more, 0.0)


class _Tournament:
    """Hand out devices one at a time, each to the winner of the pairwise comparisons."""

    def __init__(self, view: View, rows: Rows, target: Ints, work: Floats) -> None:
        self._target, self._work = target, work
        self._places = [int(place) for place in np.flatnonzero(target)]
        self._curves = {place: view.speedups[view.jobs.profile[rows[place]]] for place in self._places}
        self._largest = {place: int(view.jobs.largest[rows[place]]) for place in self._places}
        self._room = view.capacity - int(target.sum())

    def run(self) -> None:
        """Give out the room while anybody gains."""
        while self._room > 0:
            able = [place for place in self._places if self._gain(place) > 0.0]
            if not able:
                return
            winner = able[0]
            for place in able[1:]:
                winner = self._compare(winner, place)
            self._target[winner] += 1
            self._room -= 1

    def _gain(self, place: int) -> float:
        size = int(self._target[place])
        curve = self._curves[place]
        return float(curve[size + 1] - curve[size]) if size < self._largest[place] else 0.0

    def _compare(self, one: int, other: int) -> int:
        """Return which of two jobs gets the next device."""
        first, second = (one, other) if self._length(one) <= self._length(other) else (other, one)
        size, later = int(self._target[first]), int(self._target[second])
        gain_first = self._gain(first) / float(self._curves[first][size])
        gain_second = self._gain(second) / float(self._curves[second][later + 1])
        return first if gain_first >= gain_second else second

    def _length(self, place: int) -> float:
        """Return the remaining time at the share of the moment."""
        return float(self._work[place] / self._curves[place][self._target[place]])
