"""Compute what plots and tables show from finished runs: numbers only, no drawing.

Series are averaged over equal slices of time, weighted by how long each value held, so that a plot of a
hundred thousand events shows the same areas as the events.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elastane.sim.result import ClusterSeries, JobColumns

Floats = npt.NDArray[np.float64]

SIZE_CLASSES: tuple[tuple[str, int, int], ...] = (
    ("1 device", 1, 1),
    ("2-4", 2, 4),
    ("5-8", 5, 8),
    ("9-16", 9, 16),
    ("17-32", 17, 32),
    ("over 32", 33, 1 << 60),
)
"""Classes of jobs by requested devices: up to half a node, a node, two, four."""

CHANGE_CLASSES: tuple[tuple[str, float, float], ...] = (
    ("less than half the time", 0.0, 0.5),
    ("sooner", 0.5, 0.9),
    ("about the same (within 10 %)", 0.9, 1.1),
    ("later", 1.1, 2.0),
    ("more than twice the time", 2.0, float("inf")),
)
"""Classes of jobs by completion time relative to the baseline's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slices:
    """Hold one series averaged over equal slices of time; `edge_s` has one value more than `value`."""

    edge_s: Floats
    value: Floats


def average_over_slices(time_s: Floats, value: Floats, edges_s: Floats) -> Slices:
    """Return the mean of a step function (`value[i]` holds from `time_s[i]` on) in each slice.

    Before the first time the value is 0, after the last one the last value.
    """
    area = np.concatenate([[0.0], np.cumsum(value[:-1] * np.diff(time_s))])
    at_edges = np.interp(edges_s, time_s, area) + value[-1] * np.maximum(edges_s - time_s[-1], 0.0)
    return Slices(edge_s=edges_s, value=np.diff(at_edges) / np.diff(edges_s))


def compute_edges(start_s: float, end_s: float, slices: int) -> Floats:
    """Return `slices` + 1 equally spaced times from start to end, of which no two are equal."""
    return np.linspace(start_s, max(end_s, start_s + 1.0), slices + 1)


def slice_series(series: ClusterSeries, name: str, edges_s: Floats) -> Slices:
    """Return the column `name` of a cluster's series averaged over slices."""
    return average_over_slices(series.time_s, getattr(series, name), edges_s)


def compute_cdf(values: Floats, points: int) -> tuple[Floats, Floats]:
    """Return sorted values and the share of values up to each, thinned to at most `points`."""
    ordered = np.sort(values)
    share = np.arange(1, len(ordered) + 1) / len(ordered)
    if len(ordered) <= points:
        return ordered, share
    chosen = np.unique(np.linspace(0, len(ordered) - 1, points).round().astype(int))
    return ordered[chosen], share[chosen]


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeClass:
    """Hold the mean completion time and wait of the jobs of one size class."""

    label: str
    jobs: int
    jct_mean_s: float
    wait_mean_s: float


def compute_size_classes(jobs: JobColumns) -> tuple[SizeClass, ...]:
    """Return the classes that have jobs."""
    classes = []
    for label, least, most in SIZE_CLASSES:
        mine = (jobs.requested >= least) & (jobs.requested <= most)
        if mine.any():
            classes.append(
                SizeClass(
                    label=label,
                    jobs=int(mine.sum()),
                    jct_mean_s=float(jobs.jct_s[mine].mean()),
                    wait_mean_s=float(jobs.wait_s[mine].mean()),
                )
            )
    return tuple(classes)


def compute_change_shares(jobs: JobColumns, baseline: JobColumns) -> tuple[float, ...]:
    """Return the share of jobs in each of CHANGE_CLASSES; both runs have the same jobs in the same order."""
    ratio = jobs.jct_s / baseline.jct_s
    return tuple(float(((ratio >= low) & (ratio < high)).mean()) for _, low, high in CHANGE_CLASSES)


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantRow:
    """Hold one tenant's jobs, device-hours, and mean completion time under each policy in order."""

    tenant: str
    jobs: int
    device_hours: float
    jct_mean_s: tuple[float, ...]


def compute_tenants(runs: tuple[JobColumns, ...], most: int) -> tuple[TenantRow, ...]:
    """Return the `most` tenants with the most requested device-hours; none if there is only one tenant."""
    first = runs[0]
    names, index = np.unique(np.array(first.tenant, dtype=object).astype(str), return_inverse=True)
    if len(names) < 2:
        return ()
    hours = np.bincount(index, weights=first.requested * first.work_s) / 3600.0
    counts = np.bincount(index)
    means = [np.bincount(index, weights=jobs.jct_s) / counts for jobs in runs]
    return tuple(
        TenantRow(
            tenant=str(names[i]),
            jobs=int(counts[i]),
            device_hours=float(hours[i]),
            jct_mean_s=tuple(float(mean[i]) for mean in means),
        )
        for i in np.argsort(-hours, kind="stable")[:most]
    )
