"""Turn the rows of a trace into jobs for a cluster: speed profiles, limits, elasticity, load.

A trace that names no models gets one drawn for each job from a set of measured profiles, with a seed, as the
papers did. What cannot run on the cluster is left out and counted. Pure apart from loading profile files:
equal inputs and seeds give equal workloads on every machine.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from elastane.model.cluster import Cluster, JobSpec, Profile, Workload
from elastane.model.errors import ConfigError
from elastane.perf.curve import compute_curve
from elastane.sim.profiles import DEFAULT_SET, SOURCES, ProfileSet, load_profile_set
from elastane.sim.readers.rows import LeftOut, LeftOutCounter, Trace, TraceRow

_REFERENCE_DEVICES = 4096
"""Curves are looked up to this many devices; beyond the last measured point they are flat anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadOptions:
    """Choose how rows become jobs.

    `profiles` names a set (None: the one that knows most of the trace's models). `elastic_share` of the jobs
    may change their size, the others are rigid; who is which is drawn with `seed`, as are models. `load`
    divides all submission times: 2.0 brings the same jobs in half the time. `max_growth` bounds an elastic
    job to that many times its request (None: to where its profile stops gaining).
    """

    seed: int = 0
    profiles: str | None = None
    elastic_share: float = 1.0
    load: float = 1.0
    max_growth: float | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.elastic_share <= 1.0:
            raise ConfigError(f"elastic share is {self.elastic_share}; it must be between 0 and 1")
        if not 0.0 < self.load < float("inf"):
            raise ConfigError(f"load is {self.load}; it must be more than 0, 1 is the trace as it is")
        if self.max_growth is not None and not self.max_growth >= 1.0:
            raise ConfigError(f"largest growth is {self.max_growth}; it must be at least 1")


AS_IT_IS = WorkloadOptions()
"""The trace's own load, all jobs elastic, seed 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """Hold the workload made from a trace for one cluster, and what was assumed or left out on the way.

    `offered_load` is the jobs' device-seconds at their requested sizes over what the cluster offers while
    jobs arrive: above 1 the queue grows for as long as they do. `drawn_jobs` got their profile at random.
    """

    workload: Workload
    profile_set: str
    left_out: tuple[LeftOut, ...]
    assumptions: tuple[str, ...]
    offered_load: float
    drawn_jobs: int = 0


def prepare_workload(trace: Trace, cluster: Cluster, options: WorkloadOptions) -> Preparation:
    """Return the jobs of `trace` as `cluster` would see them.

    Raises ConfigError if not one job can run, or if options name unknown profiles.
    """
    profile_set = load_profile_set(options.profiles or choose_profile_set(trace))
    build = _Build(profile_set, cluster.capacity, options)
    jobs = [job for row in trace.rows if (job := build.job(row)) is not None]
    if not jobs:
        reasons = "; ".join(f"{entry.count:,} x {entry.reason}" for entry in build.left_out.summary())
        raise ConfigError(
            f"{trace.name}: none of the {len(trace.rows):,} jobs can run on {cluster.capacity} devices: "
            f"{reasons}. Give a larger --cluster or other --profiles."
        )
    used = {job.profile for job in jobs}
    workload = Workload(
        name=trace.name,
        jobs=tuple(jobs),
        profiles={name: profile for name, profile in profile_set.profiles.items() if name in used},
    )
    return Preparation(
        workload=workload,
        profile_set=profile_set.name,
        left_out=build.left_out.summary(),
        assumptions=build.assumptions(len(jobs)),
        offered_load=compute_offered_load(workload, cluster.capacity),
        drawn_jobs=build.drawn,
    )


def choose_profile_set(trace: Trace) -> str:
    """Return the set that the trace's format belongs to, else the one that knows most of its models."""
    named: Counter[str | None] = Counter(row.model for row in trace.rows if row.model is not None)
    if trace.profile_set is not None:
        return trace.profile_set
    if not named:
        return DEFAULT_SET
    known = {name: _count_known(load_profile_set(name), named) for name in SOURCES}
    best = max(known, key=lambda name: known[name])
    return best if known[best] else DEFAULT_SET


def compute_offered_load(workload: Workload, capacity: int) -> float:
    """Return requested device-seconds over capacity x time between the first and the last submission."""
    span_s = workload.jobs[-1].submit_s - workload.jobs[0].submit_s
    device_s = sum(job.requested * job.work_s for job in workload.jobs)
    return device_s / (capacity * span_s) if span_s > 0 else float("inf")


def _count_known(profile_set: ProfileSet, named: Counter[str | None]) -> int:
    return sum(count for model, count in named.items() if model in profile_set.profiles)


class _Build:
    """Make jobs one after another; holds the random draws and the counts."""

    def __init__(self, profile_set: ProfileSet, capacity: int, options: WorkloadOptions) -> None:
        self.left_out = LeftOutCounter()
        self._set, self._capacity, self._options = profile_set, capacity, options
        # Two streams, so that changing the elastic share does not change who gets which model.
        self._models, self._kinds = (
            np.random.Generator(np.random.PCG64(child))
            for child in np.random.SeedSequence(options.seed).spawn(2)
        )
        self._speeds = {name: _speeds(profile) for name, profile in profile_set.profiles.items()}
        self._best = {name: int(speeds.argmax()) for name, speeds in self._speeds.items()}
        self._names = sorted(profile_set.profiles)
        self._fitting: dict[int, list[str]] = {}
        self.drawn = 0
        self._unknown: Counter[str] = Counter()

    def job(self, row: TraceRow) -> JobSpec | None:
        """Return the job of a row, or None after counting why there is none."""
        # Drawn for every row, used or not: the draws of later rows must not depend on the cluster.
        drawn, kind = self._models.random(), self._kinds.random()
        if row.devices > self._capacity:
            self.left_out.add(
                f"asks for more than the cluster's {self._capacity} devices",
                f"line {row.line} ({row.devices} devices)",
            )
            return None
        profile = self._profile(row, drawn)
        work_s = self._work_s(row, profile)
        if work_s is None:
            self.left_out.add(
                "its running time is not known for this model", f"line {row.line} ({row.model})"
            )
            return None
        return JobSpec(
            id=row.job_id,
            submit_s=row.submit_s / self._options.load,
            requested=row.devices,
            work_s=work_s,
            profile=profile,
            min_devices=row.min_devices or 1,
            max_devices=self._largest(row, profile),
            elasticity="elastic" if kind < self._options.elastic_share else "rigid",
            tenant=row.tenant,
        )

    def assumptions(self, jobs: int) -> tuple[str, ...]:
        """Return in words what was assumed about the jobs, for the report."""
        made: list[str] = []
        source = SOURCES.get(self._set.name, "the user's file")
        made.append(f"speed on other numbers of devices: {self._set.name} ({source})")
        if self.drawn:
            made.append(
                f"{self.drawn:,} of {jobs:,} jobs name no known model: each got one of the set's "
                f"{len(self._names)} at random (seed {self._options.seed}), among those that still gain at "
                "the job's size"
            )
        if self._unknown:
            names = ", ".join(name for name, _ in self._unknown.most_common(5))
            made.append(f"models without a profile: {names}")
        if self._options.elastic_share < 1.0:
            made.append(
                f"{self._options.elastic_share:.0%} of the jobs, drawn at random, can change their size"
            )
        if self._options.load != 1.0:
            made.append(f"submission times divided by {self._options.load:g}")
        return tuple(made)

    def _profile(self, row: TraceRow, drawn: float) -> str:
        if row.model is not None:
            if row.model in self._speeds:
                return row.model
            self._unknown[row.model] += 1
        self.drawn += 1
        fitting = self._fitting.get(row.devices)
        if fitting is None:
            fitting = self._fitting[row.devices] = self._find_fitting(row.devices)
        return fitting[int(drawn * len(fitting))]

    def _find_fitting(self, devices: int) -> list[str]:
        """Return the profiles that still gain at `devices`: nobody asks for devices that do harm."""
        fitting = [name for name in self._names if self._best[name] >= devices]
        largest = max(self._best.values())
        return fitting or [name for name in self._names if self._best[name] == largest]

    def _work_s(self, row: TraceRow, profile: str) -> float | None:
        if row.duration_s is not None:
            return row.duration_s
        if row.model != profile:
            return None
        samples = row.work_samples or self._set.works.get(profile)
        speed = float(self._speeds[profile][min(row.devices, _REFERENCE_DEVICES)])
        return samples / speed if samples and speed > 0 else None

    def _largest(self, row: TraceRow, profile: str) -> int:
        """Return the most devices that the job may hold, never less than it asks for."""
        largest = row.max_devices or self._best[profile]
        if self._options.max_growth is not None:
            largest = min(largest, int(row.devices * self._options.max_growth))
        return max(row.devices, min(largest, self._capacity))


def _speeds(profile: Profile) -> np.ndarray:
    return compute_curve(profile, _REFERENCE_DEVICES).packed
