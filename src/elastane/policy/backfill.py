"""FIFO with EASY backfilling (Lifka, 1995): the head of the queue has a reservation nobody may delay.

The reservation is the earliest time at which enough running jobs will have ended. A later job may start at
once if it ends before that, or needs no device that the head will need. It needs run times: exact ones
here, so it declares itself clairvoyant; batch systems use what users claim.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from elastane.model.cluster import KEEP, Plan
from elastane.policy.base import start_all
from elastane.policy.fill import select_strict
from elastane.policy.view import Rows, View


@dataclass(frozen=True, slots=True, kw_only=True)
class FifoBackfill:
    """Start in order of arrival; fill holes with jobs that do not delay the first one waiting."""

    name: ClassVar[str] = "fifo-backfill"
    clairvoyant: ClassVar[bool] = True

    def plan(self, view: View, now: float) -> Plan:
        """Start the front of the queue, then whatever fits beside the head's reservation."""
        waiting, need = view.waiting, view.jobs.requested
        if not view.free or not len(waiting):
            return KEEP
        fitting = select_strict(need[waiting[: view.free]], view.free)
        chosen, behind = waiting[:fitting], waiting[fitting:]
        room = view.free - int(need[chosen].sum())
        filled = self._backfill(view, behind, chosen, room) if room and len(behind) else []
        return Plan(
            changes=(
                *start_all(view, chosen, "next in order of arrival"),
                *start_all(
                    view, np.array(filled, dtype=np.int64), "backfill: does not delay the first waiting"
                ),
            )
        )

    def _backfill(self, view: View, behind: Rows, started: Rows, room: int) -> list[int]:
        """Return which of the jobs `behind` the head may start in the `room` devices that are idle."""
        need = view.jobs.requested
        shadow_s, spare = self._reserve(view, int(need[behind[0]]), started, room)
        later = behind[1:]
        later = later[need[later] <= room]
        left_s = view.remaining_s(later)
        chosen = []
        for row, width, length_s in zip(later.tolist(), need[later].tolist(), left_s.tolist(), strict=True):
            harmless = length_s <= shadow_s
            if width <= room and (harmless or width <= spare):
                chosen.append(row)
                room -= width
                spare -= 0 if harmless else width
        return chosen

    def _reserve(self, view: View, head: int, started: Rows, room: int) -> tuple[float, int]:
        """Return in how many seconds the head can start, and how many devices will be spare then."""
        jobs = view.jobs
        rows = np.concatenate([view.running, started])
        left_s = view.remaining_s(rows)
        order = np.argsort(left_s, kind="stable")
        free = room + np.cumsum(jobs.requested[rows[order]])
        place = int(np.searchsorted(free, head))
        return float(left_s[order[place]]), int(free[place]) - head
