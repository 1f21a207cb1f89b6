"""Replay a workload on a cluster under a policy, in continuous time.

The engine owns the clock, asks the policy at every moment at which something happened, checks its plan,
carries it out, and charges each change. At one moment completions come first, then arrivals, then one plan.
The cost of a moment depends on the live jobs only. The engine knows no policy by name and reads no files.
"""

from __future__ import annotations

import heapq
import math
from array import array
from collections.abc import Callable
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

import numpy as np

from elastane.model.cluster import Change, Cluster, Plan, Workload
from elastane.model.errors import ConfigError, PlanError
from elastane.perf.overhead import PRESETS, Overhead
from elastane.policy.base import Policy, check_plan
from elastane.policy.view import View
from elastane.sim.live import LiveJobs
from elastane.sim.metrics import compute_digest, compute_metrics, compute_rho
from elastane.sim.result import ClusterSeries, Counters, JobColumns, SimResult
from elastane.sim.speeds import Speeds

CONSERVATION_SLACK = 1e-6
"""Relative error allowed between the two ways of counting device-seconds: float sums over 10^6 terms."""

PROGRESS_EVERY = 256
"""Moments between two reports of progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimOptions:
    """Choose how a run is made.

    `round_s` > 0: the policy is asked at whole multiples of it only, as round-based schedulers are; 0: at
    every arrival, completion and time it asked for.
    """

    round_s: float = 0.0


def simulate(
    workload: Workload,
    cluster: Cluster,
    policy: Policy,
    *,
    overhead: Overhead = PRESETS["none"],
    options: SimOptions = SimOptions(),
    on_progress: Callable[[float], None] | None = None,
) -> SimResult:
    """Return what `policy` makes of `workload` on `cluster`, every change charged by `overhead`.

    `on_progress` is called now and then with the share of finished jobs. Raises ConfigError if a job can
    never fit, PlanError if the policy proposes the impossible or leaves jobs waiting for ever.
    """
    return Engine(workload, cluster, policy, overhead, options).run(on_progress)


class Engine:
    """Hold the state of one run; `simulate` is the way to use it."""

    def __init__(
        self, workload: Workload, cluster: Cluster, policy: Policy, overhead: Overhead, options: SimOptions
    ) -> None:
        _check_fit(workload, cluster)
        self._workload, self._cluster, self._policy = workload, cluster, policy
        self._overhead, self._options = overhead, options
        self._speeds = Speeds(workload, cluster)
        self._live = LiveJobs(workload.jobs, self._speeds, overhead)
        pools = cluster.pools
        self._pool_free = np.array([pool.devices for pool in pools], dtype=np.int64)
        self._placed = self._live.placed
        self._free = cluster.capacity
        self._submit = [job.submit_s for job in workload.jobs]
        self._arrived = 0
        self._finishes: list[tuple[float, int, int]] = []
        self._due = [0] * len(workload.jobs)
        self._insertions = 0
        self._wake = math.inf
        self._now = self._submit[0]
        self._idle_device_s = 0.0
        self._counts = {"events": 0, "plans": 0, "changes": 0, "peak_live": 0, "peak_waiting": 0}
        self._series = tuple(array("d") for _ in range(5))
        self._view = View(
            now=self._now,
            jobs=self._live.columns,
            pool_free=self._pool_free,
            pool_devices=self._pool_free.copy(),
            pool_types=self._speeds.pool_types,
            speedups=self._speeds.speedups,
            capabilities=self._speeds.capabilities,
            clairvoyant=policy.clairvoyant,
        )

    def run(self, on_progress: Callable[[float], None] | None = None) -> SimResult:
        """Run until every job has finished."""
        jobs = len(self._submit)
        counts = self._counts
        while self._arrived < jobs or self._live.row_of:
            self._advance()
            self._complete()
            self._arrive()
            self._replan()
            self._record()
            counts["events"] += 1
            if on_progress is not None and counts["events"] % PROGRESS_EVERY == 0:
                on_progress((self._arrived - len(self._live.row_of)) / jobs)
        return self._conclude()

    def _advance(self) -> None:
        """Move the clock to the next moment at which anything happens."""
        finishes, due = self._finishes, self._due
        while finishes and due[finishes[0][2]] != finishes[0][1]:
            heapq.heappop(finishes)
        arrival = self._submit[self._arrived] if self._arrived < len(self._submit) else math.inf
        following = min(arrival, self._wake, finishes[0][0] if finishes else math.inf)
        if math.isinf(following):
            raise PlanError(
                f"policy {self._policy.name!r} leaves {len(self._live.row_of)} jobs waiting for ever at "
                f"{self._now} s with {self._free} free devices and nothing running"
            )
        self._idle_device_s += self._free * (following - self._now)
        self._now = following

    def _complete(self) -> None:
        finishes, due, now = self._finishes, self._due, self._now
        while finishes and finishes[0][0] <= now:
            _, insertion, number = heapq.heappop(finishes)
            if due[number] != insertion:
                continue
            if self._placed:
                self._pool_free += self._live.columns.pools[self._live.row_of[number]]
            self._free += self._live.finish(number, now)
        self._live.compact()

    def _arrive(self) -> None:
        submit, now = self._submit, self._now
        while self._arrived < len(submit) and submit[self._arrived] <= now:
            self._live.add(self._arrived, now)
            self._arrived += 1
        self._counts["peak_live"] = max(self._counts["peak_live"], len(self._live.row_of))

    def _replan(self) -> None:
        """Ask the policy, unless it is not its turn; carry out what it says."""
        self._wake = math.inf
        if not self._live.row_of:
            return
        now, round_s = self._now, self._options.round_s
        if round_s > 0.0 and now % round_s:
            self._wake = (now // round_s + 1) * round_s
            return
        self._view.refresh(now, self._free)
        plan = self._policy.plan(self._view, now)
        self._counts["plans"] += 1
        self._apply(plan)
        self._wake = (now // round_s + 1) * round_s if round_s > 0.0 else plan.ask_again_s
        if self._wake <= now:
            raise PlanError(
                f"policy {self._policy.name!r} asks to be asked again at {self._wake} s, now is {now} s"
            )

    def _apply(self, plan: Plan) -> None:
        """Carry out a plan: what gives devices back first, then what names its pools, then the rest."""
        live = self._live
        columns, row_of = live.columns, live.row_of
        if not plan.changes and not plan.notes:
            return
        check_plan(plan, columns, row_of, self._pool_free if self._placed else np.array([self._free]))
        for number, note in plan.notes:
            columns.note[row_of[number]] = note
        giving = [c for c in plan.changes if c.allocation.devices < columns.held[row_of[c.job]]]
        taking = [c for c in plan.changes if c.allocation.devices >= columns.held[row_of[c.job]]]
        taking.sort(key=lambda change: not change.allocation.pools)
        for change in (*giving, *taking):
            self._apply_change(change)

    def _apply_change(self, change: Change) -> None:
        live, number, devices = self._live, change.job, change.allocation.devices
        row = live.row_of[number]
        counts = self._find_pools(change) if self._placed else None
        held = live.columns.held.item(row)
        if devices == held and (counts is None or (counts == live.columns.pools[row]).all()):
            return
        if counts is not None:
            self._pool_free += live.columns.pools[row] - counts
        self._free += held - devices
        finish_s = live.change(number, devices, counts, self._now)
        self._insertions += 1
        self._due[number] = self._insertions
        self._counts["changes"] += 1
        if finish_s < math.inf:
            heapq.heappush(self._finishes, (finish_s, self._insertions, number))

    def _find_pools(self, change: Change) -> np.ndarray:
        """Return the counts by pool of a change, from its own words or by packing."""
        if not change.allocation.pools and change.allocation.devices:
            return self._live.place(change.job, change.allocation.devices, self._pool_free)
        counts = np.zeros_like(self._pool_free)
        for pool, count in change.allocation.pools:
            counts[pool] += count
        return counts

    def _record(self) -> None:
        live = self._live
        waiting = len(live.row_of) - live.running
        self._counts["peak_waiting"] = max(self._counts["peak_waiting"], waiting)
        used = self._cluster.capacity - self._free
        row = (self._now, used, live.efficient_devices, live.running, waiting)
        for column, value in zip(self._series, row, strict=True):
            column.append(value)

    def _conclude(self) -> SimResult:
        self._check_conservation()
        jobs = self._build_columns()
        time_s, used, efficiency, running, waiting = (np.array(column) for column in self._series)
        series = ClusterSeries(
            time_s=time_s, used=used, efficiency=efficiency, running=running, waiting=waiting
        )
        return SimResult(
            policy=self._policy.name,
            settings=_describe(self._policy),
            workload=self._workload.name,
            capacity=self._cluster.capacity,
            overhead=self._overhead.name,
            jobs=jobs,
            series=series,
            metrics=compute_metrics(jobs, series, self._cluster.capacity),
            counters=Counters(
                **self._counts,
                starts=len(self._submit),
                resizes=int(jobs.resizes.sum()),
                preemptions=int(jobs.preemptions.sum()),
            ),
            digest=compute_digest(jobs),
        )

    def _check_conservation(self) -> None:
        """Assert busy + changing + idle = capacity x time; idle is counted apart from the jobs."""
        offered = self._cluster.capacity * (self._now - self._submit[0])
        held = float(self._live.outcomes.held_device_s.sum())
        error = abs(held + self._idle_device_s - offered)
        assert error <= CONSERVATION_SLACK * offered, (held, self._idle_device_s, offered)

    def _build_columns(self) -> JobColumns:
        jobs, outcomes, speeds = self._workload.jobs, self._live.outcomes, self._speeds
        submit_s = np.array(self._submit, dtype=np.float64)
        requested = np.array([job.requested for job in jobs], dtype=np.int64)
        work_s = np.array([job.work_s for job in jobs], dtype=np.float64)
        profile = np.array([speeds.profile_index[job.profile] for job in jobs], dtype=np.int64)
        lived = (submit_s, outcomes.finish_s, requested.astype(np.float64), work_s)
        ran_s = outcomes.ran_s
        return JobColumns(
            id=tuple(job.id for job in jobs),
            tenant=tuple(job.tenant for job in jobs),
            profile=tuple(job.profile for job in jobs),
            submit_s=submit_s,
            start_s=outcomes.start_s,
            finish_s=outcomes.finish_s,
            requested=requested,
            work_s=work_s,
            wait_s=outcomes.finish_s - submit_s - ran_s,
            busy_device_s=outcomes.held_device_s - outcomes.lost_device_s,
            lost_device_s=outcomes.lost_device_s,
            efficient_device_s=outcomes.efficient_device_s,
            devices_mean=outcomes.held_device_s / ran_s,
            resizes=outcomes.resizes,
            preemptions=outcomes.preemptions,
            rho=compute_rho(lived, speeds.curve, profile, self._cluster.capacity),
        )


def _check_fit(workload: Workload, cluster: Cluster) -> None:
    """Raise ConfigError for an empty workload and for jobs that can never hold what they request."""
    if not workload.jobs:
        raise ConfigError(f"workload {workload.name!r} has no jobs; there is nothing to simulate")
    for job in workload.jobs:
        if job.requested > cluster.capacity:
            raise ConfigError(
                f"job {job.id!r} requests {job.requested} devices, the cluster has {cluster.capacity}; "
                "enlarge the cluster or leave the job out"
            )


def _describe(policy: Policy) -> dict[str, Any]:
    """Return a policy's settings for the report; policies are frozen dataclasses."""
    return asdict(policy) if is_dataclass(policy) and not isinstance(policy, type) else {}
