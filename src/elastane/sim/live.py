"""The live jobs of a simulated run: their columns, their progress, and what they have used so far.

Owns the columns that policies read. Progress is settled only when a job's allocation changes: between two
changes it follows a closed form, so time passes without touching any job. Knows no events and no policies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from elastane.model.cluster import JobSpec
from elastane.perf.overhead import Overhead, Pause
from elastane.policy.view import GONE, NEVER, RUNNING, WAITING, JobColumns
from elastane.sim.placing import place
from elastane.sim.speeds import Speeds


@dataclass(slots=True)
class Outcomes:
    """Hold what each job of the workload has used so far, by job number."""

    start_s: np.ndarray
    finish_s: np.ndarray
    ran_s: np.ndarray
    held_device_s: np.ndarray
    lost_device_s: np.ndarray
    efficient_device_s: np.ndarray
    resizes: np.ndarray
    preemptions: np.ndarray

    @classmethod
    def of(cls, jobs: int) -> Outcomes:
        """Return zeros for `jobs` jobs, with start and finish not yet known."""
        unknown = (np.full(jobs, math.nan), np.full(jobs, math.nan))
        zeros = (np.zeros(jobs), np.zeros(jobs), np.zeros(jobs), np.zeros(jobs))
        return cls(*unknown, *zeros, np.zeros(jobs, dtype=np.int64), np.zeros(jobs, dtype=np.int64))


class LiveJobs:
    """Keep the columns of the jobs in the system, and account for every device-second they hold."""

    def __init__(self, jobs: tuple[JobSpec, ...], speeds: Speeds, overhead: Overhead) -> None:
        pools = len(speeds.pool_types)
        self.columns = JobColumns(256, pools)
        self.row_of: dict[int, int] = {}
        self.outcomes = Outcomes.of(len(jobs))
        self.efficient_devices = 0.0
        self.running = 0
        self._jobs = jobs
        self._speeds = speeds
        self._overhead = overhead
        # Whole pieces of virtual workers make the speed depend on more than a table of counts.
        self.placed = pools > 1 or any(job.virtual_workers for job in jobs)
        self._starts = 0
        self._tenants = {name: i for i, name in enumerate(sorted({job.tenant for job in jobs}))}

    def add(self, number: int, now: float) -> None:
        """Append job `number`, which waits."""
        columns = self.columns
        if columns.rows == len(columns.number):
            self._make_room()
        row = columns.rows
        job = self._jobs[number]
        columns.rows = row + 1
        columns.number[row] = number
        columns.state[row] = WAITING
        columns.submit_s[row] = job.submit_s
        columns.started_s[row] = math.inf
        columns.changed_s[row] = columns.settled_s[row] = now
        columns.deadline_s[row] = math.inf if job.deadline_s is None else job.deadline_s
        columns.left_s[row] = job.work_s
        columns.requested[row] = job.requested
        columns.smallest[row] = job.smallest
        columns.largest[row] = job.largest
        columns.start_order[row] = NEVER
        columns.profile[row] = self._speeds.profile_index[job.profile]
        columns.tenant[row] = self._tenants[job.tenant]
        columns.priority[row] = job.priority
        columns.virtual_workers[row] = job.virtual_workers
        for name in ("service", "ran_s", "note", "held", "rate", "slow_rate", "training"):
            getattr(columns, name)[row] = 0
        columns.join_until_s[row] = columns.stop_until_s[row] = now
        if self.placed:
            columns.pools[row] = 0
        self.row_of[number] = row

    def finish(self, number: int, now: float) -> int:
        """Take out a job whose work is done; return how many devices it gives back."""
        row = self.row_of.pop(number)
        self._settle(number, row, now)
        columns = self.columns
        held = int(columns.held[row])
        self._leave_devices(row, held)
        columns.state[row] = GONE
        columns.held[row] = 0
        self.outcomes.finish_s[number] = now
        return held

    def change(self, number: int, devices: int, counts: np.ndarray | None, now: float) -> float:
        """Give a job `devices` devices (`counts` by pool); return when it will finish, or infinity."""
        row = self.row_of[number]
        columns = self.columns
        self._settle(number, row, now)
        old = columns.held.item(row)
        self._leave_devices(row, old)
        rate = self._compute_rate(row, devices, counts)
        self._charge(row, (old, devices), rate, now)
        self._count_change(number, row, (old, devices), now)
        columns.rate[row] = rate
        columns.held[row] = devices
        columns.changed_s[row] = now
        columns.state[row] = RUNNING if devices else WAITING
        if counts is not None:
            columns.pools[row] = counts
        self._take_devices(row, devices)
        return self._compute_finish(row)

    def _charge(self, row: int, sizes: tuple[int, int], rate: float, now: float) -> None:
        """Set when the changed job trains again, and how fast it goes while others join.

        A change before the last one was through never makes up for that one: joining starts anew, a stop is
        served to its end, and devices that were to join are not in use any earlier because some others left.
        """
        columns = self.columns
        old, new = sizes
        join_until, stop_until = columns.join_until_s.item(row), columns.stop_until_s.item(row)
        joining, stopped = now < join_until, join_until <= now < stop_until
        started = columns.start_order.item(row) != NEVER
        pause = self._overhead.compute_pause(old, new, started=started)
        training = columns.training.item(row) if joining else old
        if joining and training < new < old:
            pause = Pause(join_until - now, stop_until - join_until)
        if stopped or not old:
            training = 0
        if stopped and old and new:
            pause = Pause(pause.join_s, max(pause.stop_s, stop_until - now - pause.join_s))
        columns.training[row] = min(training, new)
        if not training:
            columns.slow_rate[row] = 0.0
        elif not joining:
            columns.slow_rate[row] = columns.rate.item(row)
        if new <= training:
            columns.slow_rate[row] = min(columns.slow_rate.item(row), rate)
        columns.join_until_s[row] = now + pause.join_s
        columns.stop_until_s[row] = now + pause.join_s + pause.stop_s

    def place(self, number: int, devices: int, free: np.ndarray) -> np.ndarray:
        """Return counts by pool for a job whose policy named only a number."""
        return place(self.columns.pools[self.row_of[number]], free, devices)

    def compact(self) -> None:
        """Close the holes that finished jobs left, once they are as many as the live jobs."""
        if self.columns.rows > 2 * len(self.row_of) + 64:
            self._rebuild(len(self.columns.number))

    def _make_room(self) -> None:
        self._rebuild(max(256, 2 * len(self.columns.number)))

    def _rebuild(self, room: int) -> None:
        """Move the live rows, in order, into columns of `room` rows."""
        old, new = self.columns, JobColumns(0, 0)
        keep = np.flatnonzero(old.state[: old.rows])
        for name in (*JobColumns.FLOAT_NAMES, *JobColumns.INT_NAMES, "pools"):
            column = getattr(old, name)
            fresh = np.zeros((room, *column.shape[1:]), dtype=column.dtype)
            fresh[: len(keep)] = column[keep]
            setattr(new, name, fresh)
        for name in JobColumns.__slots__:
            setattr(old, name, getattr(new, name))
        old.rows = len(keep)
        self.row_of = {number: row for row, number in enumerate(old.number[: old.rows].tolist())}

    def _settle(self, number: int, row: int, now: float) -> None:
        """Book work, service and losses between the last settling and now."""
        columns = self.columns
        since = columns.settled_s.item(row)
        span = now - since
        if span <= 0.0:
            return
        columns.settled_s[row] = now
        held = columns.held.item(row)
        if not held:
            return
        slow = max(min(columns.join_until_s.item(row), now) - since, 0.0)
        fast = max(now - max(columns.stop_until_s.item(row), since), 0.0)
        done = columns.slow_rate.item(row) * slow + columns.rate.item(row) * fast
        columns.left_s[row] -= done
        columns.service[row] += held * span
        columns.ran_s[row] += span
        outcomes = self.outcomes
        outcomes.ran_s[number] += span
        outcomes.held_device_s[number] += held * span
        busy = held * fast + columns.training.item(row) * slow
        outcomes.lost_device_s[number] += held * span - busy
        outcomes.efficient_device_s[number] += busy * self._efficiency(row, held)

    def _efficiency(self, row: int, held: int) -> float:
        return float(self._speeds.efficiency[self.columns.profile.item(row)][held])

    def _compute_rate(self, row: int, devices: int, counts: np.ndarray | None) -> float:
        if not devices:
            return 0.0
        columns = self.columns
        profile, requested = columns.profile.item(row), columns.requested.item(row)
        if counts is None:
            return self._speeds.compute_rate(profile, requested, devices)
        virtual_workers = columns.virtual_workers.item(row)
        return self._speeds.compute_placed_rate(profile, requested, counts, virtual_workers)

    def _count_change(self, number: int, row: int, sizes: tuple[int, int], now: float) -> None:
        old, new = sizes
        columns, outcomes = self.columns, self.outcomes
        if columns.start_order[row] == NEVER:
            columns.start_order[row] = self._starts
            columns.started_s[row] = outcomes.start_s[number] = now
            self._starts += 1
        elif old and new:
            outcomes.resizes[number] += 1
        elif old:
            outcomes.preemptions[number] += 1

    def _leave_devices(self, row: int, held: int) -> None:
        if held:
            self.running -= 1
            self.efficient_devices -= held * self._efficiency(row, held)

    def _take_devices(self, row: int, held: int) -> None:
        if held:
            self.running += 1
            self.efficient_devices += held * self._efficiency(row, held)

    def _compute_finish(self, row: int) -> float:
        """Return when the work will be done if nothing changes any more."""
        columns = self.columns
        rate = columns.rate.item(row)
        if not rate:
            return math.inf
        left, now = columns.left_s.item(row), columns.settled_s.item(row)
        slow_rate = columns.slow_rate.item(row)
        joining = slow_rate * (columns.join_until_s.item(row) - now)
        if left <= joining:
            return float(now + left / slow_rate)
        return float(columns.stop_until_s.item(row) + (left - joining) / rate)
