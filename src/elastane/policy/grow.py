"""Hand out idle devices one at a time to whom gains most, and take devices from those that lose least.

The marginal rules R1 and R2 of EDL (TPDS 2021, section 5.1) on columns. s(k) is a job's throughput on k
devices over that on one. Pure arithmetic; who may grow or shrink at all is the caller's decision.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from elastane.policy.view import Floats, Ints, Rows, View

NO_GAIN = 1e-9
"""Gains in speedup below this are none: the flat end of a curve, up to rounding."""


@dataclass(slots=True)
class Sizes:
    """Hold a plan in the making: `target[i]` devices for the job in `rows[i]`, limits, and speedups."""

    view: View
    rows: Rows
    target: Ints

    def compute_gain(self, places: Rows) -> Floats:
        """Return s(k+1) - s(k) for running places; s(min) / min for those that hold nothing."""
        jobs, view = self.view.jobs, self.view
        rows, now = self.rows[places], self.target[places]
        first = jobs.smallest[rows]
        grown = np.where(now > 0, now + 1, first)
        gain = view.speedup(rows, grown) - view.speedup(rows, now)
        return np.asarray(gain / np.where(now > 0, 1, first))

    def compute_loss(self, places: Rows) -> Floats:
        """Return s(k) - s(k-1), what each of the (running) places loses with its next device."""
        rows, now = self.rows[places], self.target[places]
        return np.asarray(self.view.speedup(rows, now) - self.view.speedup(rows, now - 1))


def grow(sizes: Sizes, places: Rows, levels: Ints, room: int) -> int:
    """Raise targets of `places` while devices are left and somebody gains; return the room that is left.

    The largest gain first, ties to the higher queue, then to those that hold nothing, then to the earlier
    place. A job with nothing gets its minimum at once.
    """
    if room <= 0 or not len(places):
        return room
    gain = sizes.compute_gain(places)
    useful = gain > NO_GAIN
    places, gain = places[useful], gain[useful]
    if len(places) > room:
        # Nobody outside the `room` largest first gains can be served before these are; ties are kept.
        bound = np.partition(gain, len(gain) - room)[len(gain) - room]
        places, gain = places[gain >= bound], gain[gain >= bound]
    grows = (sizes.target[places] > 0).tolist()
    heap = list(zip((-gain).tolist(), levels[places].tolist(), grows, places.tolist(), strict=True))
    heapq.heapify(heap)
    jobs, curves = sizes.view.jobs, sizes.view.speedups
    while room > 0 and heap:
        _, level, _, place = heapq.heappop(heap)
        row, now = int(sizes.rows[place]), int(sizes.target[place])
        step = 1 if now else int(jobs.smallest[row])
        if step > room:
            continue
        sizes.target[place] = now + step
        room -= step
        if now + step < jobs.largest[row]:
            curve = curves[jobs.profile[row]]
            next_gain = float(curve[now + step + 1] - curve[now + step])
            if next_gain > NO_GAIN:
                heapq.heappush(heap, (-next_gain, level, True, place))
    return room


def shed(sizes: Sizes, places: Rows, floors: Ints, devices: int) -> int:
    """Lower targets of `places` towards `floors`, least loss first, until `devices` are free.

    One device at a time; `floors` has one entry for each of the places. Return how many were freed.
    """
    able = sizes.target[places] > floors
    places, floors = places[able], floors[able]
    heap = list(zip(sizes.compute_loss(places).tolist(), places.tolist(), floors.tolist(), strict=True))
    heapq.heapify(heap)
    profile, curves = sizes.view.jobs.profile, sizes.view.speedups
    freed = 0
    while freed < devices and heap:
        _, place, floor = heapq.heappop(heap)
        size = int(sizes.target[place]) - 1
        sizes.target[place] = size
        freed += 1
        if size > floor:
            curve = curves[profile[sizes.rows[place]]]
            heapq.heappush(heap, (float(curve[size] - curve[size - 1]), place, floor))
    return freed
