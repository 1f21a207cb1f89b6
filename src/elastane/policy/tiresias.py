"""Tiresias (Gu et al., NSDI 2019): least attained service first, in a few queues.

Discretised two-dimensional LAS. Jobs are ordered queue by queue; the walk gives each that fits its
requested devices, skips the others, and preempts running ones that it does not reach. Knows nothing of
speedups.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from elastane.model.cluster import Plan
from elastane.policy.fill import compute_order, select_places, switch_to
from elastane.policy.levels import (
    check_queue_limits,
    compute_arrival_keys,
    compute_first_start_keys,
    compute_levels,
    compute_next_demotion_s,
    compute_queue_keys,
    compute_service,
    find_promoted,
    note_promotions,
)
from elastane.policy.view import Floats, Ints, View

LIMITS = (3250.0, 7200.0, 18000.0)
"""Queue limits in GPU-seconds of the authors' published simulator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiresias:
    """Order by queue, inside a queue as `order` says.

    `published`: as the authors' simulator does, running jobs before waiting ones, a job that moves down at
    the end of its new queue. `first-start`: by first start; older jobs then displace younger ones. `arrival`:
    by submission, running or not, as Pollux's simulator does.
    `promote_knob` > 0: a job that has waited that many times as long as it ran since its last promotion goes
    back to the first queue; 0, the published default: never.
    """

    name: ClassVar[str] = "tiresias"
    clairvoyant: ClassVar[bool] = False

    limits: tuple[float, ...] = LIMITS
    order: Literal["published", "first-start", "arrival"] = "published"
    promote_knob: float = 0.0

    def __post_init__(self) -> None:
        check_queue_limits(self.limits)

    def plan(self, view: View, now: float) -> Plan:
        """Give the first jobs of the order their size, preempt the others, wake at the next demotion."""
        rows = view.live
        service = compute_service(view, rows)
        promoted, promotion_s = find_promoted(view, service, self.limits, self.promote_knob)
        service[promoted] = 0.0
        levels = compute_levels(service, self.limits)
        order = compute_order(self._compute_keys(view, service, levels))
        places = order[select_places(view, rows[order])]
        chosen = rows[places]
        demotion_s = compute_next_demotion_s(
            now, service[places], levels[places], view.jobs.requested[chosen], self.limits
        )
        return Plan(
            changes=switch_to(view, chosen, "least attained service"),
            ask_again_s=min(promotion_s, demotion_s),
            notes=note_promotions(view, rows[promoted]),
        )

    def _compute_keys(self, view: View, service: Floats, levels: Ints) -> Floats:
        if self.order == "published":
            return compute_queue_keys(view, service, levels, self.limits)
        if self.order == "first-start":
            return compute_first_start_keys(view, levels)
        return compute_arrival_keys(view, levels)
