"""Which sizes of a job are measured, in which order, when one was seen enough, and what a profile fits."""

import msgspec
import pytest

from elastane.core.profiling import (
    AllocationMeter,
    MeasuredSteps,
    check_plan,
    check_profile,
    compute_needed_steps,
    find_next,
    fingerprint_model,
    make_plan,
)
from elastane.model.errors import ConfigError, ProfileMismatchError
from elastane.model.profile import AllocationPoint, MeasuredProfile
from elastane.model.records import ModelSignature, ProfilePlan

SIGNATURE = ModelSignature(virtual_workers=8, entries=(("weight", "float32 [2, 2]"), ("optimizer", "SGD")))
POINT = AllocationPoint(
    workers=1,
    samples_per_s=10.0,
    efficiency=1.0,
    steps=5,
    samples_per_step=8,
    step_time_s=0.8,
    step_time_low_s=0.7,
    step_time_high_s=0.9,
    rss_bytes=1,
)
PROFILE = MeasuredProfile(
    elastane="0.1.0",
    name="digits",
    script="digits.py",
    made_at="2026-11-30 12:00:00 UTC",
    model=fingerprint_model(SIGNATURE),
    virtual_workers=8,
    device_type="cpu",
    machine="x86_64",
    skipped_steps=3,
    points=(POINT,),
)


def test_all_sizes_are_measured_from_the_largest_down() -> None:
    assert make_plan(2, 5, None, 20) == ProfilePlan(allocations=(5, 4, 3, 2), steps=20)
    assert make_plan(3, 3, None, 5) == ProfilePlan(allocations=(3,), steps=5)


def test_a_list_names_the_sizes_in_any_order_and_each_counts_once() -> None:
    assert make_plan(1, 1, " 1, 8,2,8", 20) == ProfilePlan(allocations=(8, 2, 1), steps=20)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((0, 4, None, 20), "--min 0: a job runs with at least 1 worker"),
        ((5, 4, None, 20), "--min 5 is more than --max 4; sizes are measured from the largest down"),
        ((1, 20_000, None, 20), "20000 workers are more than any job can have (10000)"),
        ((1, 4, None, 4), "--steps 4 are too few to tell how much steps vary; count 5 or more"),
        ((1, 4, "1,2;4", 20), "--allocations '1,2;4' is no list of numbers of workers; write 1,2,4,8"),
        ((1, 4, "", 20), "--allocations '' is no list of numbers of workers; write 1,2,4,8"),
        ((1, 4, "2,0", 20), "--allocations 2,0: a job runs with at least 1 worker"),
        ((1, 4, "1,99999", 20), "99999 workers are more than any job can have (10000)"),
    ],
)
def test_what_cannot_be_measured_is_refused(given: tuple[int, int, str | None, int], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        make_plan(*given)
    assert str(raised.value) == message


def test_a_plan_must_fit_the_devices_and_the_virtual_workers_if_they_are_known() -> None:
    plan = make_plan(1, 8, None, 20)
    check_plan(plan, 8, 8)
    check_plan(plan, 8, None)
    with pytest.raises(ConfigError, match="8 workers need 8 devices, one each, and 2 may be used here"):
        check_plan(plan, 2, 8)
    with pytest.raises(ConfigError, match="8 workers cannot share 4 virtual workers; measure up to 4"):
        check_plan(plan, 8, 4)


def test_the_next_size_depends_on_the_present_one_alone() -> None:
    plan = make_plan(1, 1, "8,4,2", 20)
    assert [find_next(plan, size) for size in (8, 7, 4, 3, 2, 1)] == [4, 4, 2, 2, None, None]


def test_a_job_needs_steps_for_all_sizes_and_for_the_switches_between_them() -> None:
    plan = ProfilePlan(allocations=(2, 1), steps=10, skipped_steps=3)
    assert compute_needed_steps(plan, 0.0) == 2 * 13 + 1
    assert compute_needed_steps(plan, 0.05) == 2 * 13 + 1 + 4
    assert compute_needed_steps(plan, 0.05, 1) == 13


def feed(meter: AllocationMeter, generation: int, workers: int, steps: range) -> list[MeasuredSteps]:
    answers = [meter.observe(generation, workers, step) for step in steps]
    return [answer for answer in answers if answer is not None]


def test_the_first_steps_of_a_generation_do_not_count_and_enough_are_told_once() -> None:
    meter = AllocationMeter(ProfilePlan(allocations=(4, 2), steps=5, skipped_steps=3))
    assert feed(meter, 1, 4, range(7)) == []
    assert feed(meter, 1, 4, range(7, 30)) == [MeasuredSteps(generation=1, workers=4, first=3, last=7)]
    assert feed(meter, 2, 2, range(30, 60)) == [MeasuredSteps(generation=2, workers=2, first=33, last=37)]


def test_a_generation_that_ends_early_is_not_measured() -> None:
    meter = AllocationMeter(ProfilePlan(allocations=(4,), steps=5, skipped_steps=3))
    assert feed(meter, 1, 4, range(7)) == []
    assert feed(meter, 2, 4, range(7, 14)) == []
    assert feed(meter, 2, 4, range(14, 15)) == [MeasuredSteps(generation=2, workers=4, first=10, last=14)]


def test_a_size_that_nobody_asked_about_is_not_measured() -> None:
    assert feed(AllocationMeter(make_plan(1, 1, "4,2", 5)), 1, 3, range(50)) == []


def test_a_profile_fits_the_model_it_was_measured_with() -> None:
    check_profile(PROFILE, SIGNATURE)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"entries": (("weight", "float32 [2, 3]"), ("optimizer", "SGD"))}, "another model or optimizer"),
        ({"virtual_workers": 4}, "has 8 virtual workers, this job 4"),
        (
            {"batch": "FixedGlobal(64)"},
            "was taken with virtual workers and no batch policy, this job has the batch policy FixedGlobal",
        ),
    ],
)
def test_a_profile_of_another_model_or_way_of_running_it_is_refused(
    changes: dict[str, object], message: str
) -> None:
    with pytest.raises(ProfileMismatchError, match=message) as raised:
        check_profile(PROFILE, msgspec.structs.replace(SIGNATURE, **changes))
    assert "'digits', measured 2026-11-30 12:00:00 UTC," in str(raised.value)


def test_the_order_of_parameters_belongs_to_the_fingerprint_and_virtual_workers_do_not() -> None:
    swapped = msgspec.structs.replace(SIGNATURE, entries=SIGNATURE.entries[::-1])
    fewer = msgspec.structs.replace(SIGNATURE, virtual_workers=2)
    assert fingerprint_model(swapped) != fingerprint_model(SIGNATURE) == fingerprint_model(fewer)
