"""The rule of EDL's testbed (TPDS 2021, section 6.3): least loaded machine, split evenly, use what is idle.

A new job goes to the machine with the fewest jobs; a machine's devices are split evenly among its jobs, and
what a job may not or need not use goes to the others as long as that does not lower their throughput. A
job stays on its machine. A machine is a pool: use a cluster pooled by node (one pool is one machine).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from elastane.model.cluster import Allocation, Change, Plan
from elastane.perf.curve import compute_largest_useful
from elastane.policy.view import Ints, View


@dataclass(frozen=True, slots=True, kw_only=True)
class Even:
    """Place on the machine with the fewest jobs and split each machine evenly."""

    name: ClassVar[str] = "even"
    clairvoyant: ClassVar[bool] = False

    def plan(self, view: View, now: float) -> Plan:
        """Admit waiting jobs in order of arrival, then split every machine anew."""
        members = _place_jobs(view)
        useful = compute_largest_useful(view.speedups)
        changes: list[Change] = []
        for pool, rows in enumerate(members):
            if rows:
                changes += _split(view, pool, np.array(rows), useful)
        return Plan(changes=tuple(changes))


def _place_jobs(view: View) -> list[list[int]]:
    """Return the rows of each pool's jobs, waiting ones put where fewest jobs are and their minimum fits."""
    jobs = view.jobs
    members: list[list[int]] = [[] for _ in view.pool_devices]
    room = view.pool_devices.copy()
    several = len(room) > 1
    for row in view.running.tolist():
        pool = int(np.argmax(jobs.pools[row])) if several else 0
        members[pool].append(row)
        room[pool] -= jobs.smallest[row]
    for row in view.waiting.tolist():
        fitting = np.flatnonzero(room >= jobs.smallest[row])
        if not len(fitting):
            # Later jobs do not go past one that waits: the testbed's queue is strict.
            break
        pool = min(fitting.tolist(), key=lambda place: len(members[place]))
        members[pool].append(row)
        room[pool] -= jobs.smallest[row]
    return members


def _split(view: View, pool: int, rows: Ints, useful: Ints) -> list[Change]:
    """Return the changes that give each job of a pool an even share, within its limits."""
    jobs = view.jobs
    least = jobs.smallest[rows]
    most = np.maximum(np.minimum(jobs.largest[rows], useful[jobs.profile[rows]]), least)
    shares = compute_even_shares(int(view.pool_devices[pool]), least, most)
    changes = []
    for row, share in zip(rows.tolist(), shares.tolist(), strict=True):
        if share != jobs.held[row]:
            allocation = Allocation(devices=share, pools=((pool, share),))
            changes.append(Change(int(jobs.number[row]), allocation, f"even share of pool {pool}"))
    return changes


def compute_even_shares(devices: int, least: Ints, most: Ints) -> Ints:
    """Return shares between `least` and `most`, as even as these allow; earlier jobs get the odd ones."""
    low, high = 0, devices
    while low < high:
        middle = (low + high + 1) // 2
        fits = int(np.clip(middle, least, most).sum()) <= devices
        low, high = (middle, high) if fits else (low, middle - 1)
    shares = np.clip(low, least, most)
    odd = np.flatnonzero((shares == low) & (shares < most))[: devices - int(shares.sum())]
    shares[odd] += 1
    return np.asarray(shares)
