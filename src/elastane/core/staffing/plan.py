"""The whole of an agent's look at its job: compare what is wanted with what is there, on all nodes.

Theory of operation. First who must go here (`ends`). Then how the job ends, should nobody else be able to
say so (`closing`). Then the job's vacancies, shared out among all nodes by one rule (`vacancies`), and of
these the ones of this node (`starts`). A device whose worker failed is left alone for a while that grows
with each failure (`history`); meanwhile its vacancy is another device's, on whatever node.
"""

from collections.abc import Sequence

from elastane.core.staffing.closing import plan_status
from elastane.core.staffing.ends import find_given_up, plan_ends
from elastane.core.staffing.nouns import NodeState, StaffingPlan, StaffingSettings
from elastane.core.staffing.roster import with_own_knowledge
from elastane.core.staffing.starts import find_served_wishes, plan_starts
from elastane.core.staffing.vacancies import plan_vacancies
from elastane.core.view import JobView


def plan_staffing(view: JobView, node: NodeState, now_s: float, settings: StaffingSettings) -> StaffingPlan:
    """Compare what the job wants with what this node runs; return what to do about it."""
    view = with_own_knowledge(view, node, now_s, settings)
    ends, deadlines = plan_ends(view, node, now_s, settings)
    if view.status.phase.ended:
        return StaffingPlan(ends=ends, wake_at_s=_earliest(deadlines, now_s))
    vacancies = plan_vacancies(view, find_given_up(node) | {end.worker for end in ends})
    status = plan_status(view, node, vacancies, settings)
    if status is not None:
        return StaffingPlan(ends=ends, status=status, wake_at_s=now_s)
    openings = plan_starts(view, node, vacancies, now_s, settings)
    return StaffingPlan(
        starts=openings.starts,
        ends=ends,
        served=find_served_wishes(view, node),
        waiting=openings.waiting,
        wake_at_s=_earliest([*deadlines, *openings.rested_at_s], now_s),
    )


def _earliest(times: Sequence[float], now_s: float) -> float | None:
    return max(min(times), now_s) if times else None
