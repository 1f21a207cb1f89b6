"""Compute the figures of a finished run from its per-job columns and its cluster series.

Pure functions on numpy columns. Finish-time fairness is that of Themis (NSDI 2020):
rho = (finish - submission) / (time alone in a 1/n cluster), where n is the mean number of jobs in the
system during the job's life and "alone" means at the requested size, or fewer if the share is smaller.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from elastane.sim.result import ClusterSeries, JobColumns, Metrics

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

UNFAIR_RHO = 1.05
"""A job is counted as treated unfairly above this rho (Themis and Shockwave count from 1; 5 % is noise)."""


def compute_mean_live(submit_s: Floats, finish_s: Floats) -> Floats:
    """Return for each job the mean number of jobs in the system between its submission and its finish."""
    times = np.concatenate([submit_s, finish_s])
    steps = np.concatenate([np.ones(len(submit_s)), -np.ones(len(finish_s))])
    order = np.argsort(times, kind="stable")
    times, live = times[order], np.cumsum(steps[order])
    area = np.concatenate([[0.0], np.cumsum(live[:-1] * np.diff(times))])
    span = finish_s - submit_s
    covered = np.interp(finish_s, times, area) - np.interp(submit_s, times, area)
    return np.asarray(np.maximum(np.divide(covered, span, out=np.ones_like(span), where=span > 0), 1.0))


def compute_rho(
    jobs: tuple[Floats, Floats, Floats, Floats],
    curves: Sequence[Sequence[float]],
    profile: Ints,
    capacity: int,
) -> Floats:
    """Return finish-time fairness of `jobs` = (submit_s, finish_s, requested, work_s).

    `curves[j][p]` is th(p) of profile j. Below one device the speed is proportional to the share.
    """
    submit_s, finish_s, requested, work_s = jobs
    share = np.minimum(capacity / compute_mean_live(submit_s, finish_s), requested)
    alone_s = np.empty_like(work_s)
    for index, curve in enumerate(curves):
        mine = profile == index
        speed = np.interp(share[mine], np.arange(len(curve)), curve)
        full = np.asarray(curve)[requested[mine].astype(np.int64)]
        alone_s[mine] = work_s[mine] * full / speed
    return np.asarray((finish_s - submit_s) / alone_s)


def compute_metrics(jobs: JobColumns, series: ClusterSeries, capacity: int) -> Metrics:
    """Return the figures of a run; `capacity` is the number of devices of the cluster."""
    jct = jobs.jct_s
    count = len(jct)
    start, end = float(jobs.submit_s.min()), float(jobs.finish_s.max())
    offered = capacity * (end - start)
    busy, lost = float(jobs.busy_device_s.sum()), float(jobs.lost_device_s.sum())
    efficient = float(jobs.efficient_device_s.sum())
    median, p95, p99 = (float(value) for value in np.percentile(jct, (50, 95, 99)))
    return Metrics(
        jobs=count,
        jct_mean_s=float(jct.mean()),
        jct_median_s=median,
        jct_p95_s=p95,
        jct_p99_s=p99,
        delay_mean_s=float(jobs.delay_s.mean()),
        wait_mean_s=float(jobs.wait_s.mean()),
        makespan_s=end - start,
        utilisation=(busy + lost) / offered,
        cluster_efficiency=efficient / offered,
        device_efficiency=efficient / (busy + lost),
        rho_worst=float(jobs.rho.max()),
        rho_unfair_share=float((jobs.rho > UNFAIR_RHO).mean()),
        resizes_per_job=float(jobs.resizes.mean()),
        preemptions_per_job=float(jobs.preemptions.mean()),
        lost_device_s=lost,
        lost_share=lost / (busy + lost),
    )


def compute_digest(jobs: JobColumns) -> str:
    """Return a SHA-256 of what happened to every job, in a fixed byte order."""
    digest = hashlib.sha256("\n".join(jobs.id).encode())
    for column in (jobs.start_s, jobs.finish_s, jobs.busy_device_s, jobs.lost_device_s):
        digest.update(np.ascontiguousarray(column, dtype="<f8").tobytes())
    for counts in (jobs.resizes, jobs.preemptions):
        digest.update(np.ascontiguousarray(counts, dtype="<i8").tobytes())
    return digest.hexdigest()
