"""GPU and cluster efficiency as EDL defines them."""

import numpy as np
import pytest

from elastane.perf.efficiency import (
    compute_active_efficiency,
    compute_cluster_efficiency,
    compute_device_efficiency,
)


def test_a_device_is_fully_efficient_at_the_size_with_the_highest_speed_per_device() -> None:
    # th(1)/1 = 10, th(2)/2 = 12 (the best), th(3)/3 = 9.
    efficiency = compute_device_efficiency(np.array([0.0, 10.0, 24.0, 27.0]))
    np.testing.assert_allclose(efficiency, [0.0, 10 / 12, 1.0, 0.75])


def test_a_job_that_scales_ideally_is_efficient_at_every_size() -> None:
    np.testing.assert_allclose(compute_device_efficiency(np.arange(5) * 3.0), [0, 1, 1, 1, 1])


def test_an_idle_device_counts_nothing_in_the_cluster_and_not_at_all_among_the_active() -> None:
    held, efficiency = np.array([4.0, 2.0]), np.array([1.0, 0.5])
    assert compute_cluster_efficiency(held, efficiency, 10) == pytest.approx(0.5)
    assert compute_active_efficiency(held, efficiency) == pytest.approx(5 / 6)


def test_an_empty_cluster_has_no_efficiency() -> None:
    nobody = np.zeros(0)
    assert compute_cluster_efficiency(nobody, nobody, 8) == 0.0
    assert compute_active_efficiency(nobody, nobody) == 0.0
