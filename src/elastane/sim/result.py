"""What one simulated run returns: columns by job, the cluster over time, metrics, counters, a digest.

Everything is numpy columns or plain numbers, so that reports, CSV and plots need no further pass over
the engine. Nothing here simulates; `elastane.sim.metrics` computes the figures.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobColumns:
    """Hold one row for each job of the workload, in its order. Times are seconds of the simulated clock.

    `start_s`: first devices granted. `wait_s`: time without any device, after preemptions too.
    `busy_device_s`: device-seconds that made progress. `lost_device_s`: held but stopped or joining.
    `rho`: finish-time fairness (see `elastane.sim.metrics`). `devices_mean`: mean devices while holding any.
    """

    id: tuple[str, ...]
    tenant: tuple[str, ...]
    profile: tuple[str, ...]
    submit_s: Floats
    start_s: Floats
    finish_s: Floats
    requested: Ints
    work_s: Floats
    wait_s: Floats
    busy_device_s: Floats
    lost_device_s: Floats
    efficient_device_s: Floats
    devices_mean: Floats
    resizes: Ints
    preemptions: Ints
    rho: Floats

    @property
    def jct_s(self) -> Floats:
        """Return the job completion time: finish minus submission."""
        return self.finish_s - self.submit_s

    @property
    def delay_s(self) -> Floats:
        """Return the queueing delay: first start minus submission."""
        return self.start_s - self.submit_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSeries:
    """Hold the cluster after each moment at which anything changed; values hold until the next `time_s`.

    `used`: devices held by jobs. `efficiency`: sum of the held devices' GPU efficiency, in devices.
    """

    time_s: Floats
    used: Floats
    efficiency: Floats
    running: Floats
    waiting: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Hold the figures by which policies are compared: seconds, shares (0..1) and counts, as named."""

    jobs: int
    jct_mean_s: float
    jct_median_s: float
    jct_p95_s: float
    jct_p99_s: float
    delay_mean_s: float
    wait_mean_s: float
    makespan_s: float
    utilisation: float
    cluster_efficiency: float
    device_efficiency: float
    rho_worst: float
    rho_unfair_share: float
    resizes_per_job: float
    preemptions_per_job: float
    lost_device_s: float
    lost_share: float

    def as_dict(self) -> dict[str, float]:
        """Return the figures by name, in the order of declaration."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Count what the engine did; `peak_live` is the largest number of jobs in the system at once."""

    events: int
    plans: int
    changes: int
    starts: int
    resizes: int
    preemptions: int
    peak_live: int
    peak_waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SimResult:
    """Hold all that one run of one policy over one workload gave.

    `settings` are the policy's own settings, `digest` is a SHA-256 of all per-job outcomes: equal inputs
    give equal digests on every machine and under every hash seed.
    """

    policy: str
    settings: dict[str, Any]
    workload: str
    capacity: int
    overhead: str
    jobs: JobColumns
    series: ClusterSeries
    metrics: Metrics
    counters: Counters
    digest: str
