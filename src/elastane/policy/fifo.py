"""Serve jobs in order of arrival at the size they asked for; nothing is ever preempted.

Three variants that are often called by one name, and differ by a factor of two to three in mean completion
time: the head of the queue blocks (`fifo`), jobs that fit go past it (`fifo-skip`, "fit job first" in the
Tiresias simulator), or go past it only if they cannot delay it (`fifo-backfill`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from elastane.model.cluster import KEEP, Plan
from elastane.policy.base import start_all
from elastane.policy.fill import select_skipping, select_strict
from elastane.policy.view import View


@dataclass(frozen=True, slots=True, kw_only=True)
class Fifo:
    """Start jobs strictly in order of arrival: while the head does not fit, nobody starts."""

    name: ClassVar[str] = "fifo"
    clairvoyant: ClassVar[bool] = False

    def plan(self, view: View, now: float) -> Plan:
        """Start from the front of the queue while jobs fit."""
        waiting = view.waiting
        if not view.free or not len(waiting) or view.jobs.requested[waiting[0]] > view.free:
            return KEEP
        # Each job takes at least one device, so no more than `free` of them can start.
        front = waiting[: view.free]
        chosen = front[: select_strict(view.jobs.requested[front], view.free)]
        return Plan(changes=tuple(start_all(view, chosen, "next in order of arrival")))


@dataclass(frozen=True, slots=True, kw_only=True)
class FifoSkip:
    """Walk the queue in order of arrival and start whatever fits."""

    name: ClassVar[str] = "fifo-skip"
    clairvoyant: ClassVar[bool] = False

    def plan(self, view: View, now: float) -> Plan:
        """Start every waiting job that fits what is left when its turn comes."""
        if not view.free or not len(view.waiting):
            return KEEP
        chosen = view.waiting[select_skipping(view.jobs.requested[view.waiting], view.free)]
        return Plan(changes=tuple(start_all(view, chosen, "first in order of arrival that fits")))
