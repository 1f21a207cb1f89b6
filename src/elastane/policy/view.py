"""What a policy sees: the live jobs as numpy columns, the cluster's pools, and the jobs' speedups.

The caller (simulator or daemon) owns the columns and keeps them up to date; a policy only reads them. A
row is a place in the columns; rows stand in order of submission, and finished jobs leave holes, so a policy
starts from `view.waiting`, `view.running` or `view.live`. Nothing here decides anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from elastane.model.errors import PlanError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Rows = npt.NDArray[np.int64]

GONE, WAITING, RUNNING = 0, 1, 2

NEVER = 1 << 31
"""Start order of a job that never held a device: after every job that did."""


class JobColumns:
    """Hold one row for each live job. All times are absolute seconds on the caller's clock.

    `number`: the name a `Change` uses. `held`: devices now. `started_s`, `start_order`: first start (infinity
    and a huge number: never started). `changed_s`: last change of allocation (submission at first).
    `service`: device-seconds attained until `settled_s`. `ran_s`: time with devices until `settled_s`.
    `left_s`, `slow_rate`, `join_until_s`, `rate`, `stop_until_s`: true progress (see `View.remaining_s`);
    `training`: devices at work while others join, until `join_until_s`.
    `note`: the number the policy asked to keep. `profile`: row of the speedup table.
    """

    FLOAT_NAMES = (
        "submit_s",
        "started_s",
        "changed_s",
        "settled_s",
        "service",
        "ran_s",
        "left_s",
        "slow_rate",
        "join_until_s",
        "rate",
        "stop_until_s",
        "deadline_s",
        "note",
    )
    INT_NAMES = (
        "number",
        "state",
        "requested",
        "smallest",
        "largest",
        "held",
        "training",
        "start_order",
        "profile",
        "tenant",
        "priority",
        "virtual_workers",
    )
    __slots__ = (*FLOAT_NAMES, *INT_NAMES, "pools", "rows")

    submit_s: Floats
    started_s: Floats
    changed_s: Floats
    settled_s: Floats
    service: Floats
    ran_s: Floats
    left_s: Floats
    slow_rate: Floats
    join_until_s: Floats
    rate: Floats
    stop_until_s: Floats
    deadline_s: Floats
    note: Floats
    number: Ints
    state: Ints
    requested: Ints
    smallest: Ints
    largest: Ints
    held: Ints
    training: Ints
    start_order: Ints
    profile: Ints
    tenant: Ints
    priority: Ints
    virtual_workers: Ints
    pools: Ints
    rows: int

    def __init__(self, room: int, pools: int = 1) -> None:
        for name in self.FLOAT_NAMES:
            setattr(self, name, np.zeros(room, dtype=np.float64))
        for name in self.INT_NAMES:
            setattr(self, name, np.zeros(room, dtype=np.int64))
        self.pools = np.zeros((room, pools), dtype=np.int64)
        self.rows = 0


@dataclass(kw_only=True)
class View:
    """Show one moment of the cluster to a policy.

    `pool_free[i]` of `pool_devices[i]` devices of pool i, of type `pool_types[i]`, are free. `speedups[j, p]`
    is s(p) = th(p) / th(1) of profile j on packed devices of the reference type, `capabilities[j, i]` the
    speed of profile j on one device of pool i relative to that type. `clairvoyant` views know the truth about
    remaining time; others refuse to tell.
    """

    now: float
    jobs: JobColumns
    pool_free: Ints
    pool_devices: Ints
    pool_types: tuple[str, ...]
    speedups: Floats
    capabilities: Floats
    clairvoyant: bool = False
    free: int = 0
    capacity: int = field(init=False)

    def __post_init__(self) -> None:
        self.capacity = int(self.pool_devices.sum())

    def refresh(self, now: float, free: int) -> None:
        """Forget what was derived from the columns: the caller has changed them."""
        self.now = now
        self.free = free
        for name in ("waiting", "running", "live"):
            self.__dict__.pop(name, None)

    @cached_property
    def waiting(self) -> Rows:
        """Return the rows of jobs that hold nothing, in order of submission."""
        return np.flatnonzero(self.jobs.state[: self.jobs.rows] == WAITING)

    @cached_property
    def running(self) -> Rows:
        """Return the rows of jobs that hold devices, in order of submission."""
        return np.flatnonzero(self.jobs.state[: self.jobs.rows] == RUNNING)

    @cached_property
    def live(self) -> Rows:
        """Return the rows of all jobs in the system, in order of submission."""
        return np.flatnonzero(self.jobs.state[: self.jobs.rows])

    def attained(self, rows: Rows) -> Floats:
        """Return the attained service in device-seconds, pauses included, up to now."""
        jobs = self.jobs
        return np.asarray(jobs.service[rows] + jobs.held[rows] * (self.now - jobs.settled_s[rows]))

    def ran_s(self, rows: Rows) -> Floats:
        """Return for how long each job has held devices, up to now."""
        jobs = self.jobs
        return np.asarray(jobs.ran_s[rows] + (jobs.held[rows] > 0) * (self.now - jobs.settled_s[rows]))

    def remaining_s(self, rows: Rows) -> Floats:
        """Return the true remaining run time at the requested size; clairvoyant policies only.

        Since `settled_s` a job went at `slow_rate` until `join_until_s` and at `rate` from `stop_until_s`.
        """
        if not self.clairvoyant:
            raise PlanError(
                "the true remaining time is shown to policies that declare themselves clairvoyant"
            )
        jobs = self.jobs
        settled = jobs.settled_s[rows]
        slow = np.minimum(jobs.join_until_s[rows], self.now) - settled
        fast = self.now - np.maximum(jobs.stop_until_s[rows], settled)
        done = jobs.slow_rate[rows] * np.maximum(slow, 0.0) + jobs.rate[rows] * np.maximum(fast, 0.0)
        return np.asarray(jobs.left_s[rows] - done)

    def speedup(self, rows: Rows, devices: Ints) -> Floats:
        """Return s(p) of each job at its own p; beyond the table the last value."""
        return np.asarray(
            self.speedups[self.jobs.profile[rows], np.minimum(devices, self.speedups.shape[1] - 1)]
        )
