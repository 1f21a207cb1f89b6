"""Optimus (Peng et al., EuroSys 2018): devices go where they cut the most remaining time.

Every job gets its minimum in order of arrival; then one device at a time to the largest drop of
remaining time, until nobody gains. It needs remaining times (Optimus fits them from loss curves; here they
are exact), so it declares itself clairvoyant.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from elastane.model.cluster import Plan
from elastane.policy.fill import select_skipping
from elastane.policy.resize import ask_later, resize_to
from elastane.policy.view import Floats, Ints, Rows, View


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimus:
    """Minimise the sum of remaining times greedily.

    `interval_s` > 0: all sizes are chosen anew only at multiples of it, as in Optimus' 10-minute rounds.
    """

    name: ClassVar[str] = "optimus"
    clairvoyant: ClassVar[bool] = True

    interval_s: float = 0.0

    def plan(self, view: View, now: float) -> Plan:
        """Choose every size anew, or wait for the next round."""
        if self.interval_s and now % self.interval_s:
            return ask_later(now, self.interval_s)
        rows, jobs = view.live, view.jobs
        target = np.zeros_like(rows)
        chosen = select_skipping(jobs.smallest[rows], view.capacity)
        target[chosen] = jobs.smallest[rows[chosen]]
        work = view.remaining_s(rows) * view.speedup(rows, jobs.requested[rows])
        _spread(view, rows, target, work)
        changes = resize_to(view, rows, target, "cuts most remaining time")
        return Plan(changes=changes, ask_again_s=ask_later(now, self.interval_s).ask_again_s)


def _spread(view: View, rows: Rows, target: Ints, work: Floats) -> None:
    """Raise the targets of jobs that have any, one device at a time, by largest drop of remaining time."""
    jobs, curves = view.jobs, view.speedups
    room = view.capacity - int(target.sum())
    heap: list[tuple[float, int]] = []

    def offer(place: int) -> None:
        size, row = int(target[place]), int(rows[place])
        if size < jobs.largest[row]:
            curve = curves[jobs.profile[row]]
            drop = float(work[place] / curve[size] - work[place] / curve[size + 1])
            if drop > 0.0:
                heapq.heappush(heap, (-drop, place))

    for place in np.flatnonzero(target).tolist():
        offer(place)
    while room > 0 and heap:
        _, place = heapq.heappop(heap)
        target[place] += 1
        room -= 1
        offer(place)
