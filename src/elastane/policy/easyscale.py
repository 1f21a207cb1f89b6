"""EasyScale's two schedulers (Li et al., SC'23, section 3.4): plans inside a job, greedy grants between jobs.

A job has V virtual workers that are spread over its devices in whole pieces. Inside a job: speed of a plan
by Eq. 1, perf = V / max_i (A_i / C_i), plans that waste more than 30 % rejected. Between jobs: each proposes
to grow by one device type, at most doubling; proposals go by (speed-up per device, devices) and are granted
while they fit. Each job is guaranteed its minimum, taken back from those who hold more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from elastane.model.cluster import Allocation, Change, Plan
from elastane.perf.curve import compute_mixed_speed
from elastane.policy.grow import NO_GAIN
from elastane.policy.view import Ints, View

WASTE_LIMIT = 0.3
"""Share of held capability that a plan may waste (EasyScale, section 3.4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EasyScale:
    """Guarantee minima in order of arrival, then grant proposals.

    `cooldown_s`: a job proposes only that long after its last change. `unlike`: a job may mix device types.
    """

    name: ClassVar[str] = "easyscale"
    clairvoyant: ClassVar[bool] = False

    # The production system refills within 5 minutes; a minute covers the reconfiguration itself.
    cooldown_s: float = 60.0
    unlike: bool = True

    def plan(self, view: View, now: float) -> Plan:
        """Secure the minima, then let rested jobs grow into what is free."""
        grants = _Grants(view, unlike=self.unlike)
        grants.secure_minima()
        jobs = view.jobs
        resting = [row for row in view.running.tolist() if now - jobs.changed_s[row] < self.cooldown_s]
        grants.grow([row for row in grants.held if row not in set(resting)])
        again_s = now + self.cooldown_s if resting and grants.free.any() else math.inf
        return Plan(changes=grants.build_changes(), ask_again_s=again_s)


@dataclass(frozen=True, slots=True)
class _Proposal:
    """Propose `devices` more of one pool for a job; compared by gain per device, then by devices."""

    gain_per_device: float
    devices: int
    row: int
    pool: int


class _Grants:
    """Hold what each job will have by pool (`held`), and what is left in the pools (`free`)."""

    def __init__(self, view: View, *, unlike: bool) -> None:
        self._view, self._unlike = view, unlike
        self._several = len(view.pool_free) > 1
        self.free: Ints = view.pool_free.copy() if self._several else np.array([view.free])
        self.held: dict[int, Ints] = {row: self._get_counts(row) for row in view.running.tolist()}

    def secure_minima(self) -> None:
        """Give waiting jobs their minimum in order of arrival, taken back from jobs that hold more."""
        jobs = self._view.jobs
        for row in self._view.waiting.tolist():
            need = int(jobs.smallest[row])
            spare = {other: int(c.sum() - jobs.smallest[other]) for other, c in self.held.items()}
            if need > int(self.free.sum()) + sum(spare.values()):
                return
            while int(self.free.sum()) < need:
                giver = max(spare, key=lambda other: (spare[other], other))
                spare[giver] -= 1
                self._take_back(giver)
            self.held[row] = self._pick(row, need)

    def grow(self, rows: list[int]) -> None:
        """Grant the jobs' proposals round by round until none is left that fits and gains."""
        while self.free.any():
            proposals = [proposal for row in rows if (proposal := self._propose(row)) is not None]
            proposals.sort(key=lambda p: (-p.gain_per_device, -p.devices, p.row))
            for proposal in proposals:
                if proposal.devices <= self.free[proposal.pool]:
                    self.held[proposal.row][proposal.pool] += proposal.devices
                    self.free[proposal.pool] -= proposal.devices
            if not proposals:
                return

    def build_changes(self) -> tuple[Change, ...]:
        """Return the changes from what is held to what was granted."""
        changes = []
        for row, counts in self.held.items():
            if not np.array_equal(self._get_counts(row), counts):
                pools = tuple((int(pool), int(counts[pool])) for pool in np.flatnonzero(counts))
                allocation = Allocation(devices=int(counts.sum()), pools=pools)
                changes.append(Change(int(self._view.jobs.number[row]), allocation, "best gain per device"))
        return tuple(changes)

    def _get_counts(self, row: int) -> Ints:
        jobs = self._view.jobs
        return jobs.pools[row].copy() if self._several else jobs.held[row : row + 1].copy()

    def _take_back(self, row: int) -> None:
        """Free one device of the job, of the slowest kind that it holds."""
        counts, ability = self.held[row], self._view.capabilities[self._view.jobs.profile[row]]
        used = np.flatnonzero(counts)
        pool = int(used[np.argmin(ability[used])])
        counts[pool] -= 1
        self.free[pool] += 1

    def _pick(self, row: int, need: int) -> Ints:
        """Take `need` free devices for a new job: of one pool if one has enough, the fastest kind first."""
        ability = self._view.capabilities[self._view.jobs.profile[row]]
        counts = np.zeros_like(self.free)
        enough = self.free >= need
        for pool in sorted(range(len(ability)), key=lambda p: (not enough[p], -ability[p], p)):
            taken = min(need, int(self.free[pool]))
            counts[pool] += taken
            self.free[pool] -= taken
            need -= taken
        return counts

    def _propose(self, row: int) -> _Proposal | None:
        """Return the job's best growth by one device type, or None if nothing that fits gains."""
        counts = self.held[row]
        total, now = int(counts.sum()), self._compute_speed(row, counts)
        # At most doubling; looking past the next device matters because whole pieces make the speed a
        # staircase: 4 pieces go no faster on 3 devices than on 2.
        longest = min(total, int(self._view.jobs.largest[row]) - total)
        best: _Proposal | None = None
        for pool in np.flatnonzero(self.free).tolist():
            if not self._unlike and total > counts[pool]:
                continue
            for devices in range(1, min(longest, int(self.free[pool])) + 1):
                grown = counts.copy()
                grown[pool] += devices
                gain = (self._compute_speed(row, grown) - now) / devices
                better = best is None or (gain, devices) > (best.gain_per_device, best.devices)
                if gain > NO_GAIN and better and self._compute_waste(row, grown) <= WASTE_LIMIT:
                    best = _Proposal(gain, devices, row, pool)
        return best

    def _compute_speed(self, row: int, counts: Ints) -> float:
        """Return the speed on `counts` by pool, in speeds of one reference device."""
        jobs, view = self._view.jobs, self._view
        ability = view.capabilities[jobs.profile[row]]
        pieces = int(jobs.virtual_workers[row])
        if pieces:
            return compute_mixed_speed(counts.tolist(), ability.tolist(), pieces)
        total = min(int(counts.sum()), view.speedups.shape[1] - 1)
        return float(view.speedups[jobs.profile[row], total] * ability[counts > 0].min(initial=np.inf))

    def _compute_waste(self, row: int, counts: Ints) -> float:
        """Return the share of the held capability that whole pieces leave unused (Eq. 1), or 0."""
        view = self._view
        if not view.jobs.virtual_workers[row]:
            return 0.0
        capability = float(np.dot(counts, view.capabilities[view.jobs.profile[row]]))
        return 1.0 - self._compute_speed(row, counts) / capability
