"""Run the jobs that will end soonest: bounds that need to know the future.

At every event all jobs, running ones too, are ordered by true remaining time (`srtf`) or remaining time
times devices (`srsf`); the walk gives each that fits its requested size and preempts the rest. These are the
clairvoyant baselines of the Tiresias simulator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from elastane.model.cluster import Plan
from elastane.policy.fill import compute_order, plan_by_order
from elastane.policy.view import View


@dataclass(frozen=True, slots=True, kw_only=True)
class Srtf:
    """Order by remaining time at the requested size."""

    name: ClassVar[str] = "srtf"
    clairvoyant: ClassVar[bool] = True

    def plan(self, view: View, now: float) -> Plan:
        """Give the shortest remaining jobs their size, preempt the others."""
        rows = view.live
        return plan_by_order(view, rows[compute_order(view.remaining_s(rows))], "shortest remaining time")


@dataclass(frozen=True, slots=True, kw_only=True)
class Srsf:
    """Order by remaining time x requested devices: the remaining service. Of equals the narrower first."""

    name: ClassVar[str] = "srsf"
    clairvoyant: ClassVar[bool] = True

    def plan(self, view: View, now: float) -> Plan:
        """Give the jobs with the least remaining service their size, preempt the others."""
        rows = view.live
        requested = view.jobs.requested[rows]
        service = view.remaining_s(rows) * requested
        # The order is stable, so sorting by width first makes width the second key.
        narrow = np.argsort(requested, kind="stable")
        order = narrow[compute_order(service[narrow])]
        return plan_by_order(view, rows[order], "least remaining service")
