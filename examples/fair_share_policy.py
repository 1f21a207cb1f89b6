"""A scheduling policy of one's own: every job gets an equal part of the cluster.

Run it against a policy that comes along, on the built-in sample:
    elastane sim --policy fifo-skip --policy examples/fair_share_policy.py:FairShare
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from elastane.model.cluster import Allocation, Change, Plan
from elastane.policy.view import View


@dataclass(frozen=True, slots=True, kw_only=True)
class FairShare:
    """Split the devices evenly; leave a job alone while its size is off by less than `slack`."""

    name: ClassVar[str] = "fair-share"
    clairvoyant: ClassVar[bool] = False  # it never asks how long a job still takes

    slack: float = 0.25

    def plan(self, view: View, now: float) -> Plan:
        """Return the changes to make now; the caller checks them and carries them out."""
        rows, jobs = view.live, view.jobs  # rows of all jobs in the system, the oldest first
        held = jobs.held[rows]  # devices that each job holds now, 0 if it waits

        share = max(1, view.capacity // len(rows))
        ideal = np.clip(share, jobs.smallest[rows], jobs.largest[rows])

        # Each change costs a stop, so small differences are not worth one - if all still fit.
        nearly = (held > 0) & (abs(ideal - held) <= self.slack * held)
        target = np.where(nearly, held, ideal)
        if target.sum() > view.capacity:
            target = ideal

        # Serve the oldest jobs; those that no longer fit wait.
        target = np.where(np.cumsum(target) <= view.capacity, target, 0)

        changes = [
            Change(int(jobs.number[row]), Allocation(devices=int(size)), "an equal share")
            for row, size in zip(rows, target, strict=True)
            if size != jobs.held[row]
        ]
        return Plan(changes=tuple(changes))
