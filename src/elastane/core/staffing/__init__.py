"""Decide which worker processes a node should start and which it should end.

Level-triggered: from what the job wants, who is there on all nodes, and which processes this node runs, comes
what is missing and what is too much. A crash of an agent, a lost exit notice or a changed mind of the user
needs no path of its own: the next look closes the difference. Read `plan.py` first.
"""

from elastane.core.staffing.closing import is_saving
from elastane.core.staffing.history import observe_exit, observe_processes, observe_progress, read_history
from elastane.core.staffing.nouns import (
    DeviceHistory,
    End,
    FailureKind,
    FailureLimits,
    Force,
    NodeState,
    StaffingPlan,
    StaffingSettings,
    Start,
    WorkerProcess,
)
from elastane.core.staffing.plan import plan_staffing
from elastane.core.staffing.roster import make_roster
from elastane.core.staffing.vacancies import Seat, Vacancies, find_present, find_serving, plan_vacancies

__all__ = [
    "DeviceHistory",
    "End",
    "FailureKind",
    "FailureLimits",
    "Force",
    "NodeState",
    "Seat",
    "StaffingPlan",
    "StaffingSettings",
    "Start",
    "Vacancies",
    "WorkerProcess",
    "find_present",
    "find_serving",
    "is_saving",
    "make_roster",
    "observe_exit",
    "observe_processes",
    "observe_progress",
    "plan_staffing",
    "plan_vacancies",
    "read_history",
]
