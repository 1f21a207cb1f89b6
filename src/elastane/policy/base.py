"""The interface of a policy, and the checks that every caller makes before it carries out a plan.

A policy is one frozen object; `plan` is a pure function of the view and the time. It cannot break anything:
`check_plan` refuses what the cluster or the jobs' limits do not allow.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import ClassVar, Protocol

import numpy as np

from elastane.model.cluster import NOTHING, Allocation, Change, Plan
from elastane.model.errors import PlanError
from elastane.policy.view import GONE, JobColumns, Rows, View


class Policy(Protocol):
    """Decide who holds how many devices.

    `name` is what users type; `clairvoyant` policies see true remaining times (bounds, not for live use).
    """

    name: ClassVar[str]
    clairvoyant: ClassVar[bool]

    def plan(self, view: View, now: float) -> Plan:
        """Return the changes to make at `now`; jobs that are not mentioned keep what they hold."""
        ...


@lru_cache(maxsize=8192)
def devices(count: int) -> Allocation:
    """Return the allocation of `count` devices from whichever pools fit best."""
    return Allocation(devices=count) if count else NOTHING


def change_all(view: View, rows: Iterable[int], count: int, reason: str) -> list[Change]:
    """Return one change for each row: `count` devices, for the same reason."""
    allocation = devices(count)
    number = view.jobs.number
    return [Change(int(number[row]), allocation, reason) for row in rows]


def start_all(view: View, rows: Rows, reason: str) -> list[Change]:
    """Return one change for each row that grants its requested devices."""
    jobs = view.jobs
    pairs = zip(jobs.number[rows].tolist(), jobs.requested[rows].tolist(), strict=True)
    return [Change(number, devices(count), reason) for number, count in pairs]


def check_plan(plan: Plan, jobs: JobColumns, row_of: dict[int, int], pool_free: np.ndarray) -> None:
    """Raise PlanError unless every change keeps to the job's limits and the whole fits the pools.

    `row_of` maps the numbers of live jobs to rows.
    """
    unknown = [number for number, _ in plan.notes if number not in row_of]
    if unknown:
        raise PlanError(f"the plan notes something for job {unknown[0]}, which is not in the system")
    balance = int(pool_free.sum())
    free = pool_free.copy() if len(pool_free) > 1 else None
    changed: set[int] = set()
    for change in plan.changes:
        row = row_of.get(change.job)
        if row is None or jobs.state[row] == GONE:
            raise PlanError(f"the plan changes job {change.job}, which is not in the system")
        if change.job in changed:
            raise PlanError(f"the plan changes job {change.job} twice; give one final allocation")
        changed.add(change.job)
        check_limits(change, jobs, row)
        balance += int(jobs.held[row]) - change.allocation.devices
        if free is not None and (change.allocation.pools or not change.allocation.devices):
            free += jobs.pools[row]
            for pool, count in change.allocation.pools:
                free[pool] -= count
    if balance < 0:
        raise PlanError(f"the plan hands out {-balance} devices more than the cluster has")
    if free is not None and free.min() < 0:
        pool = int(free.argmin())
        raise PlanError(f"the plan hands out {-int(free[pool])} devices more than pool {pool} has")


def check_limits(change: Change, jobs: JobColumns, row: int) -> None:
    """Raise PlanError if an allocation is outside the job's limits or does not add up."""
    count = change.allocation.devices
    if count and not jobs.smallest[row] <= count <= jobs.largest[row]:
        raise PlanError(
            f"the plan gives job {change.job} {count} devices; it may run on {jobs.smallest[row]} to "
            f"{jobs.largest[row]}"
        )
    pools = change.allocation.pools
    if pools and (sum(n for _, n in pools) != count or min(n for _, n in pools) < 1):
        raise PlanError(f"the plan's pools {pools} for job {change.job} do not add up to {count} devices")
