"""Speed curves: interpolation, spread, device types, envelopes and whole pieces."""

import itertools

import numpy as np
import pytest

from elastane.model.cluster import Profile, SpeedPoint
from elastane.perf.curve import (
    compute_capabilities,
    compute_curve,
    compute_envelope_slopes,
    compute_largest_useful,
    compute_mixed_speed,
    compute_speedups,
)


def make_profile(*points: tuple[int, float], **other: object) -> Profile:
    measured = tuple(SpeedPoint(devices=n, samples_per_s=speed, **other) for n, speed in points)
    return Profile(name="p", points=measured)


def test_speed_is_straight_between_points_proportional_below_and_flat_beyond() -> None:
    curve = compute_curve(make_profile((2, 10.0), (4, 16.0)), 6)
    np.testing.assert_allclose(curve.packed, [0, 5, 10, 13, 16, 16, 16])


def test_the_order_of_measured_points_does_not_matter() -> None:
    forward = compute_curve(make_profile((1, 4.0), (2, 7.0), (4, 9.0)), 5)
    backward = compute_curve(make_profile((4, 9.0), (1, 4.0), (2, 7.0)), 5)
    np.testing.assert_array_equal(forward.packed, backward.packed)


def test_a_job_spread_over_more_machines_is_slowed_by_the_measured_ratio() -> None:
    points = (
        SpeedPoint(devices=4, samples_per_s=10.0, nodes=1),
        SpeedPoint(devices=4, samples_per_s=8.0, nodes=2),
        SpeedPoint(devices=4, samples_per_s=4.0, nodes=4),
    )
    curve = compute_curve(Profile(name="p", points=points), 4)
    assert [curve.spread_factor(extra) for extra in range(5)] == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.4])


def test_spread_is_relative_to_the_fewest_machines_that_were_measured() -> None:
    points = (
        SpeedPoint(devices=8, samples_per_s=10.0, nodes=2),
        SpeedPoint(devices=8, samples_per_s=9.0, nodes=3),
    )
    curve = compute_curve(Profile(name="p", points=points), 8)
    assert curve.packed[8] == 10.0
    assert curve.spread_factor(1) == pytest.approx(0.9)


def test_a_profile_without_spread_points_is_not_slowed() -> None:
    assert compute_curve(make_profile((1, 1.0)), 1).spread_factor(7) == 1.0


def test_unlike_device_types_have_their_own_curves_and_unknown_ones_the_first() -> None:
    points = (
        SpeedPoint(devices=1, samples_per_s=10.0, device_type="v100"),
        SpeedPoint(devices=1, samples_per_s=4.0, device_type="k80"),
    )
    profile = Profile(name="p", points=points)
    curve = compute_curve(profile, 1)
    assert curve.reference == "v100"
    assert curve.throughput("k80")[1] == 4.0
    assert curve.throughput("t4")[1] == 10.0
    np.testing.assert_allclose(compute_capabilities([profile], ["k80", "v100", "t4"]), [[0.4, 1.0, 1.0]])


def test_speedups_are_relative_to_one_device() -> None:
    table = compute_speedups([make_profile((1, 5.0), (2, 8.0)), make_profile((1, 1.0), (2, 2.0))], 2)
    np.testing.assert_allclose(table, [[0, 1, 1.6], [0, 1, 2]])


def test_the_largest_useful_size_is_the_first_that_reaches_the_highest_speed() -> None:
    table = compute_speedups([make_profile((1, 1.0), (4, 3.0), (6, 2.0)), make_profile((1, 1.0))], 6)
    assert compute_largest_useful(table).tolist() == [4, 1]


def test_envelope_slopes_of_a_concave_curve_are_its_own_steps() -> None:
    np.testing.assert_allclose(compute_envelope_slopes(np.array([0.0, 4, 7, 9, 10])), [4, 3, 2, 1])


def test_envelope_slopes_share_a_late_step_among_the_devices_that_lead_to_it() -> None:
    staircase = np.array([0.0, 1, 1, 1, 4, 4])
    np.testing.assert_allclose(compute_envelope_slopes(staircase), [1, 1, 1, 1, 0])


def test_envelope_slopes_are_zero_where_more_devices_slow_the_job_down() -> None:
    np.testing.assert_allclose(compute_envelope_slopes(np.array([0.0, 3, 5, 4, 1])), [3, 2, 0, 0])


@pytest.mark.parametrize(
    ("counts", "abilities", "pieces", "speed"),
    [
        ([4], [1.0], 4, 4.0),
        ([2], [1.0], 4, 2.0),
        ([3], [1.0], 4, 2.0),  # a staircase: one device still has two pieces
        ([1], [1.0], 4, 1.0),
        ([1, 1], [2.0, 1.0], 3, 3.0),  # two pieces on the fast one, one on the slow one
        ([0, 2], [2.0, 1.0], 4, 2.0),
        ([], [], 4, 0.0),
        ([0, 0], [1.0, 1.0], 4, 0.0),
    ],
)
def test_whole_pieces_on_unlike_devices(
    counts: list[int], abilities: list[float], pieces: int, speed: float
) -> None:
    assert compute_mixed_speed(counts, abilities, pieces) == pytest.approx(speed)


def test_whole_pieces_agree_with_trying_every_split() -> None:
    for counts, abilities, pieces in itertools.product(
        ([1, 2], [2, 2], [3, 1]), ([1.0, 0.4], [2.0, 1.5], [1.0, 1.0]), (1, 3, 5)
    ):
        devices = [ability for n, ability in zip(counts, abilities, strict=True) for _ in range(n)]
        fastest = min(
            max(held / ability for held, ability in zip(split, devices, strict=True))
            for split in itertools.product(range(pieces + 1), repeat=len(devices))
            if sum(split) == pieces
        )
        assert compute_mixed_speed(counts, abilities, pieces) == pytest.approx(pieces / fastest)
