"""Turn target sizes into a plan: the last step of policies that choose every job's size anew.

Works on columns; knows nothing about how the sizes were chosen.
"""

from __future__ import annotations

import math

import numpy as np

from elastane.model.cluster import Change, Plan
from elastane.policy.base import devices
from elastane.policy.view import Ints, Rows, View


def resize_to(view: View, rows: Rows, target: Ints, reason: str) -> tuple[Change, ...]:
    """Return the changes from what `rows` hold to `target` devices each."""
    held = view.jobs.held[rows]
    changed = np.flatnonzero(target != held)
    triples = zip(
        view.jobs.number[rows[changed]].tolist(),
        held[changed].tolist(),
        target[changed].tolist(),
        strict=True,
    )
    return tuple(
        Change(job, devices(new), f"{_name_change(old, new)}: {reason}") for job, old, new in triples
    )


def ask_later(now: float, interval_s: float) -> Plan:
    """Return the plan that keeps all and asks for the next multiple of `interval_s` (0: for nothing)."""
    return Plan(ask_again_s=(now // interval_s + 1) * interval_s if interval_s else math.inf)


def _name_change(old: int, new: int) -> str:
    if not new:
        return "preempted"
    return "started" if not old else "grown" if new > old else "shrunk"
