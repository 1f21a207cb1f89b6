"""Tiresias with the Gittins index (Gu et al., NSDI 2019, section 3.2): the odds of ending soon, from samples.

With S the service of a random job and a the attained one,
G(a) = P(S <= a + D | S > a) / E[min(S - a, D) | S > a]; larger first, queue by queue as in `tiresias`. (The
published simulator adds whole sample sizes in the denominator; the definition wants what is left of them.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from elastane.model.cluster import Plan
from elastane.model.errors import ConfigError
from elastane.policy.fill import compute_order, select_places, switch_to
from elastane.policy.levels import (
    check_queue_limits,
    compute_levels,
    compute_next_demotion_s,
    compute_service,
)
from elastane.policy.tiresias import LIMITS
from elastane.policy.view import Floats, View

# Middle values of twenty equal parts of the 109,532 jobs of Microsoft's Philly trace (device-seconds).
PHILLY_SERVICE = (
    *(25.0, 49.0, 63.0, 71.0, 91.0, 180.0, 324.0, 561.0, 817.0, 1_123.0, 1_491.0, 1_919.0, 2_405.0, 2_759.0),
    *(3_827.0, 5_409.0, 9_097.0, 21_534.0, 77_911.0, 584_917.0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gittins:
    """Order by queue, then by the index that `samples` of past jobs' services (device-seconds) give.

    `quantum` is D in device-seconds: 3,250 in the published simulator.
    """

    name: ClassVar[str] = "gittins"
    clairvoyant: ClassVar[bool] = False

    limits: tuple[float, ...] = LIMITS
    samples: tuple[float, ...] = PHILLY_SERVICE
    quantum: float = 3250.0

    def __post_init__(self) -> None:
        check_queue_limits(self.limits)
        if not self.samples or min(self.samples) <= 0.0 or self.quantum <= 0.0:
            raise ConfigError("gittins needs samples of service and a quantum, all above 0 device-seconds")

    def plan(self, view: View, now: float) -> Plan:
        """Give the jobs of the largest index their size, queue by queue."""
        rows, jobs = view.live, view.jobs
        service = compute_service(view, rows)
        levels = compute_levels(service, self.limits)
        index = compute_gittins_index(service, self.samples, self.quantum)
        # The index lies in [0, 1 / smallest sample]: scaled into (0, 1) it orders inside a queue.
        keys = levels - index / (1.0 + index)
        order = compute_order(keys)
        places = order[select_places(view, rows[order])]
        return Plan(
            changes=switch_to(view, rows[places], "largest odds of ending soon"),
            ask_again_s=compute_next_demotion_s(
                now, service[places], levels[places], jobs.requested[rows[places]], self.limits
            ),
        )


def compute_gittins_index(attained: Floats, samples: tuple[float, ...], quantum: float) -> Floats:
    """Return G(a) for each attained service; 0 beyond the largest sample."""
    known = np.sort(np.asarray(samples))
    sums = np.concatenate([[0.0], np.cumsum(known)])
    low = np.searchsorted(known, attained, side="right")
    high = np.searchsorted(known, attained + quantum, side="right")
    ending = high - low
    # Of the samples above a: those within the quantum give what is left of them, the others give D.
    spent = sums[high] - sums[low] - attained * ending + quantum * (len(known) - high)
    return np.asarray(np.divide(ending, spent, out=np.zeros_like(spent), where=spent > 0.0))
