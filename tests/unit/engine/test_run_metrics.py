"""Figures of a finished run, by hand."""

import numpy as np
import pytest

from elastane.model.cluster import Cluster, JobSpec, Workload
from elastane.policy.fifo import Fifo
from elastane.sim.engine import simulate
from elastane.sim.metrics import compute_mean_live, compute_rho


def test_the_mean_number_of_live_jobs_over_each_life() -> None:
    submit, finish = np.array([0.0, 5.0, 100.0]), np.array([10.0, 15.0, 100.0])
    # Half of each of the first two lives is shared by two; the third has no length and was alone.
    assert compute_mean_live(submit, finish).tolist() == [1.5, 1.5, 1.0]


def test_rho_compares_with_a_job_alone_on_its_share() -> None:
    submit, finish = np.array([0.0, 0.0]), np.array([30.0, 30.0])
    requested, work = np.array([4.0, 1.0]), np.array([10.0, 10.0])
    curves = [[0.0, 1.0, 2.0, 3.0, 4.0]]
    profile = np.zeros(2, dtype=np.int64)
    # Two jobs on four devices: a share of two each. The wide job alone would take 10 x 4 / 2 = 20 s there.
    rho = compute_rho((submit, finish, requested, work), curves, profile, 4)
    assert rho.tolist() == [1.5, 3.0]
    # On one device the share is half a device, and alone means twice the time of one device.
    assert compute_rho((submit, finish, requested, work), curves, profile, 1).tolist() == [30 / 80, 1.5]


def test_the_figures_of_a_small_run() -> None:
    jobs = (
        JobSpec(id="a", submit_s=0.0, requested=2, work_s=100.0),
        JobSpec(id="b", submit_s=0.0, requested=2, work_s=50.0),
        JobSpec(id="c", submit_s=0.0, requested=4, work_s=50.0),
    )
    result = simulate(Workload(name="w", jobs=jobs), Cluster.of(1, 4), Fifo())
    metrics = result.metrics
    assert result.jobs.finish_s.tolist() == [100.0, 50.0, 150.0]
    assert metrics.jobs == 3
    assert metrics.jct_mean_s == pytest.approx(100.0)
    assert metrics.jct_median_s == 100.0
    assert metrics.delay_mean_s == pytest.approx(100.0 / 3)
    assert metrics.wait_mean_s == pytest.approx(100.0 / 3)
    assert metrics.makespan_s == 150.0
    assert metrics.utilisation == pytest.approx(500.0 / 600.0)
    assert metrics.cluster_efficiency == pytest.approx(500.0 / 600.0)
    assert metrics.device_efficiency == pytest.approx(1.0)
    assert metrics.resizes_per_job == metrics.preemptions_per_job == metrics.lost_share == 0.0
    assert list(metrics.as_dict())[:2] == ["jobs", "jct_mean_s"]
