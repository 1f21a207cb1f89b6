"""The figures of a measured profile, and the speed profile it is handed on as."""

import msgspec
import pytest

from elastane.model.cluster import Profile, SpeedPoint
from elastane.model.profile import AllocationPoint, MeasuredProfile
from elastane.perf.measured import compare_points, compute_point, make_speed_profile

TWO = compute_point(2, [32] * 5, [1.0, 2.0, 2.0, 4.0, 16.0], 700, None)


def test_speed_and_step_time_are_medians_and_the_middle_half_is_told() -> None:
    assert compute_point(4, [32, 32, 32, 32, 8], [1.0, 2.0, 2.0, 4.0, 16.0], 700, 300) == AllocationPoint(
        workers=4,
        samples_per_s=16.0,
        efficiency=1.0,
        steps=5,
        samples_per_step=32,
        step_time_s=2.0,
        step_time_low_s=2.0,
        step_time_high_s=4.0,
        rss_bytes=700,
        device_bytes=300,
    )


def test_efficiency_is_relative_to_the_best_speed_per_worker() -> None:
    one, eight = (msgspec.structs.replace(TWO, workers=n, samples_per_s=s) for n, s in ((1, 6.0), (8, 32.0)))
    compared = compare_points([eight, TWO, one])
    assert [(point.workers, point.efficiency) for point in compared] == [(1, 0.75), (2, 1.0), (8, 0.5)]
    assert compared[1] == TWO


def test_of_two_points_of_one_size_the_later_counts() -> None:
    again = msgspec.structs.replace(TWO, samples_per_s=99.0)
    assert compare_points([TWO, again]) == (again,)
    assert compare_points([]) == ()


def test_a_speed_profile_has_a_device_for_each_worker() -> None:
    measured = MeasuredProfile(
        elastane="0.1.0",
        name="digits",
        script="/x/digits.py",
        made_at="2026-11-30 12:00:00 UTC",
        model="",
        virtual_workers=8,
        device_type="NVIDIA H200",
        machine="x86_64, 2 cores, Linux",
        skipped_steps=3,
        points=(TWO,),
    )
    assert make_speed_profile(measured) == Profile(
        name="digits",
        points=(SpeedPoint(devices=2, samples_per_s=16.0, device_type="NVIDIA H200"),),
        source="elastane profile of /x/digits.py, 2026-11-30 12:00:00 UTC, x86_64, 2 cores, Linux",
    )


def test_steps_and_samples_must_be_of_the_same_steps() -> None:
    with pytest.raises(ValueError, match="zip"):
        compute_point(2, [32], [1.0, 2.0], 1, None)
