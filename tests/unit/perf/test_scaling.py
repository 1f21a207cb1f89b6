"""The model of a job's scaling: it finds what made the measurements, and predicts nothing absurd."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastane.perf.scaling import ScalingModel, compute_largest_share, fit_scaling


def measure(model: ScalingModel, *sizes: int) -> dict[int, float]:
    return {size: model.predict_throughput(size) for size in sizes}


@pytest.mark.parametrize(
    ("workers", "virtual_workers", "share"),
    [(1, 0, 1.0), (4, 0, 0.25), (3, 8, 3 / 8), (5, 8, 0.25), (8, 8, 0.125)],
)
def test_the_busiest_worker_has_the_largest_share(workers: int, virtual_workers: int, share: float) -> None:
    assert compute_largest_share(workers, virtual_workers) == share


def test_one_measurement_is_taken_to_scale_as_well_as_can_be() -> None:
    model = fit_scaling({2: 100.0})
    assert [model.predict_throughput(k) for k in (1, 2, 4)] == pytest.approx([50.0, 100.0, 200.0])


def test_two_measurements_show_what_is_not_shared_out() -> None:
    model = fit_scaling({1: 100.0, 2: 150.0})
    assert model == ScalingModel(fixed_s=pytest.approx(1 / 300), shared_s=pytest.approx(1 / 150), each_s=0.0)
    assert model.predict_throughput(1000) == pytest.approx(300.0, rel=0.01)


def test_a_curve_that_rises_and_falls_is_found_from_three_of_its_points() -> None:
    truth = ScalingModel(fixed_s=0.001, shared_s=0.01, each_s=0.0005)
    model = fit_scaling(measure(truth, 1, 2, 8))
    assert [model.predict_throughput(k) for k in (3, 4, 5, 16)] == pytest.approx(
        [truth.predict_throughput(k) for k in (3, 4, 5, 16)]
    )
    assert model.predict_throughput(16) < model.predict_throughput(4)


def test_between_divisors_of_n_more_workers_do_not_help() -> None:
    truth = ScalingModel(fixed_s=0.001, shared_s=0.01, each_s=0.0, virtual_workers=8)
    model = fit_scaling(measure(truth, 1, 2, 4), virtual_workers=8)
    speeds = [model.predict_throughput(k) for k in range(4, 9)]
    assert speeds[:4] == [speeds[0]] * 4
    assert speeds[4] > speeds[0]


def test_more_workers_that_make_it_slower_are_not_predicted_to_help() -> None:
    model = fit_scaling({1: 100.0, 2: 80.0, 3: 70.0})
    assert model.predict_throughput(4) < 70.0


@given(st.dictionaries(st.integers(1, 64), st.floats(1.0, 1e6, allow_nan=False), min_size=1, max_size=8))
def test_no_part_of_the_time_is_below_zero_and_all_speeds_are_above(measured: dict[int, float]) -> None:
    model = fit_scaling(measured)
    assert min(model.fixed_s, model.shared_s, model.each_s) >= 0
    assert all(model.predict_throughput(k) > 0 for k in (1, 7, 128))


@given(st.floats(1e-5, 1.0), st.floats(1e-5, 1.0), st.floats(0.0, 1e-2))
def test_what_the_model_made_is_predicted_by_the_model(
    fixed_s: float, shared_s: float, each_s: float
) -> None:
    truth = ScalingModel(fixed_s=fixed_s, shared_s=shared_s, each_s=each_s)
    sizes = (1, 2, 3, 4, 6, 8)
    model = fit_scaling(measure(truth, *sizes))
    assert [model.predict_throughput(k) for k in sizes] == pytest.approx(
        [truth.predict_throughput(k) for k in sizes], rel=1e-3
    )
    assert all(a > 0 and b > 0 for a, b in pairwise(map(model.predict_throughput, sizes)))
