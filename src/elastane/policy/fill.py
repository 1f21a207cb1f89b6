"""Walk jobs in an order and take those that fit: the step that most policies share.

Works on whole columns: a prefix sum finds how far the walk goes without a misfit, so its cost is that of
a few numpy passes, not of one step for each job. Knows nothing about why the order is what it is.
"""

from __future__ import annotations

import numpy as np

from elastane.model.cluster import Change, Plan
from elastane.policy.base import change_all, start_all
from elastane.policy.view import RUNNING, Floats, Ints, Rows, View


def compute_order(keys: Floats) -> Rows:
    """Return the positions by rising key; equal keys keep their order (that of submission).

    Stable, so that ties fall in the same way on every processor; keys are mostly sorted already (rows stand
    in order of submission), which the stable sort uses.
    """
    return np.argsort(keys, kind="stable")


def select_strict(need: Ints, room: int) -> int:
    """Return how many jobs from the front fit into `room` devices when the first misfit blocks the rest."""
    return int(np.searchsorted(np.cumsum(need), room, side="right"))


def select_skipping(need: Ints, room: int) -> Rows:
    """Return the positions taken by a walk that skips what does not fit the room that is left."""
    fitting = select_strict(need, room)
    if fitting == len(need):
        return np.arange(fitting)
    taken = [np.arange(fitting)]
    room -= int(need[:fitting].sum())
    places = np.arange(fitting + 1, len(need))
    while room > 0 and len(places):
        places = places[need[places] <= room]
        fitting = select_strict(need[places], room)
        taken.append(places[:fitting])
        room -= int(need[places[:fitting]].sum())
        # The job after the prefix did not fit, so each round drops at least one.
        places = places[fitting + 1 :]
    return np.concatenate(taken)


def select_places(view: View, ordered: Rows) -> Rows:
    """Return the places in `ordered` of the rows that get their requested devices when it is walked."""
    return select_skipping(view.jobs.requested[ordered], view.capacity)


def switch_to(view: View, chosen: Rows, reason: str) -> tuple[Change, ...]:
    """Return the changes after which exactly the `chosen` rows run, at the size they requested.

    Chosen jobs that run already are not touched.
    """
    jobs = view.jobs
    keep = np.zeros(jobs.rows, dtype=bool)
    keep[chosen] = True
    stopped = view.running[~keep[view.running]]
    started = chosen[jobs.state[chosen] != RUNNING]
    if not len(stopped) and not len(started):
        return ()
    return (
        *change_all(view, stopped.tolist(), 0, f"preempted: {reason}"),
        *start_all(view, started, reason),
    )


def plan_by_order(view: View, ordered: Rows, reason: str) -> Plan:
    """Return the plan that walks `ordered`, gives each job that fits its size, and preempts the rest."""
    return Plan(changes=switch_to(view, ordered[select_places(view, ordered)], reason))
