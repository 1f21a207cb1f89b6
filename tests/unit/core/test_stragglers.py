"""Both detectors on quiet, noisy and slow workers; the noise model is in `healthy_times`."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice, repeat

import pytest
from healthy_times import CALM, ROUGH, Noise, step_times
from hypothesis import given, settings
from hypothesis import strategies as st

from elastane.core.stragglers import (
    AverageDetector,
    DetectorSettings,
    Method,
    StragglerWatch,
    StreakDetector,
    Suspect,
    compute_slowness,
    level_speeds,
)
from elastane.model.ids import WorkerId

A, B, C = WorkerId("a"), WorkerId("b"), WorkerId("c")
STREAK, AVERAGE = Method.STREAK, Method.AVERAGE


def watch(method: Method = STREAK, **more: int) -> StragglerWatch:
    return StragglerWatch(DetectorSettings(method=method, **more))


def feed(watching: StragglerWatch, steps: Iterable[dict[WorkerId, float]]) -> int | None:
    """Observe the steps; return after how many of them somebody was suspected first."""
    for number, seconds in enumerate(steps, start=1):
        watching.observe(seconds)
        if watching.suspects():
            return number
    return None


def slow_from(at: int, factor: float) -> Callable[[int, int], float]:
    return lambda worker, step: factor if worker == 1 and step >= at else 1.0


def delay(method: Method, seed: int, workers: int, model: Noise, factor: float) -> int:
    """Return after how many slow steps worker 1, slow from step 50 on, is found."""
    watching = watch(method)
    times = step_times(seed, workers, model, slow_from(50, factor))
    assert feed(watching, islice(times, 50)) is None
    found = feed(watching, islice(times, 200))
    assert found is not None
    assert [s.worker for s in watching.suspects()] == ["w1"]
    return found


# --- false alarms and delays ----------------------------------------------------------------------


@pytest.mark.parametrize("workers", [2, 3, 8])
@pytest.mark.parametrize(("method", "model"), [(STREAK, ROUGH), (STREAK, CALM), (AVERAGE, CALM)])
def test_nobody_is_suspected_in_a_thousand_quiet_steps(method: Method, model: Noise, workers: int) -> None:
    for seed in range(15):
        assert feed(watch(method), islice(step_times(seed, workers, model), 1000)) is None, seed


@pytest.mark.parametrize("workers", [2, 4, 16])
def test_a_worker_at_three_quarters_of_the_speed_is_found_within_fifteen_steps(workers: int) -> None:
    assert max(delay(STREAK, seed, workers, CALM, 1 / 0.75) for seed in range(40)) <= 15


@pytest.mark.parametrize("method", [STREAK, AVERAGE])
@pytest.mark.parametrize("workers", [2, 4, 16])
def test_a_worker_at_half_speed_is_found_within_fifteen_steps_even_on_a_rough_machine(
    method: Method, workers: int
) -> None:
    assert max(delay(method, seed, workers, ROUGH, 2.0) for seed in range(40)) <= 15


def constant(**seconds: float) -> Iterator[dict[WorkerId, float]]:
    return repeat({WorkerId(name): time_s for name, time_s in seconds.items()})


@pytest.mark.parametrize(
    ("factor", "steps"),
    [(4.0, 3), (2.0, 5), (1 / 0.75, 16)],  # 0.9^n (1 - 1 / factor) + 1 / factor < 0.8
)
def test_the_average_takes_as_many_steps_as_its_formula_says(factor: float, steps: int) -> None:
    watching = watch(AVERAGE, skipped_steps=0)
    assert feed(watching, islice(constant(a=1.0, b=1.0, c=factor), 100)) == steps


def test_the_streak_takes_its_steps_whatever_the_slowness() -> None:
    for factor in (1.21, 2.0, 100.0):
        assert feed(watch(skipped_steps=0), islice(constant(a=1.0, b=1.0, c=factor), 100)) == 10
    assert feed(watch(skipped_steps=0), islice(constant(a=1.0, b=1.0, c=1.2), 1000)) is None


# --- what is no straggler -------------------------------------------------------------------------


@pytest.mark.parametrize("method", [STREAK, AVERAGE])
def test_workers_that_are_all_equally_slow_are_no_stragglers(method: Method) -> None:
    watching = watch(method)
    assert feed(watching, islice(constant(a=1.0, b=1.0, c=1.0), 50)) is None
    assert feed(watching, islice(constant(a=9.0, b=9.0, c=9.0), 100)) is None


@pytest.mark.parametrize("method", [STREAK, AVERAGE])
def test_a_lone_worker_is_no_straggler(method: Method) -> None:
    times = ({A: 1.0 if step % 20 < 5 else 7.0} for step in range(200))
    assert feed(watch(method), times) is None


@pytest.mark.parametrize("method", [STREAK, AVERAGE])
def test_of_two_workers_the_slower_is_compared_with_the_faster(method: Method) -> None:
    watching = watch(method)
    assert feed(watching, islice(constant(a=1.0, b=1.4), 60)) is not None
    assert [(s.worker, round(s.slowness, 2) > 1.2) for s in watching.suspects()] == [(B, True)]


def test_two_of_four_can_be_slow() -> None:
    watching = watch()
    feed(watching, islice(constant(a=1.0, b=1.5, c=1.3, d=1.0), 13))
    assert [(s.worker, round(s.slowness, 2)) for s in watching.suspects()] == [("b", 1.5), ("c", 1.3)]


def test_two_of_three_set_the_measure() -> None:
    assert feed(watch(), islice(constant(a=1.0, b=1.5, c=1.5), 100)) is None


@pytest.mark.parametrize("method", [STREAK, AVERAGE])
def test_one_long_pause_now_and_then_is_no_slowness_and_breaks_no_streak(method: Method) -> None:
    paused = ({A: 1.0, B: 1.0, C: 5.0 if step % 40 == 20 else 1.0} for step in range(400))
    assert feed(watch(method), paused) is None
    of_the_others = ({A: 5.0 if step % 4 == 1 else 1.0, B: 1.0, C: 1.5} for step in range(400))
    assert (feed(watch(method), of_the_others) or 99) <= 20


# --- switches -------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [STREAK, AVERAGE])
def test_the_first_steps_after_a_switch_are_not_counted(method: Method) -> None:
    watching = watch(method, skipped_steps=3)
    slow = constant(a=1.0, b=1.0, c=4.0)
    first = feed(watching, islice(slow, 100))
    watching.restart()
    assert watching.suspects() == ()
    assert watching.speeds() == {}
    assert feed(watching, islice(slow, 100)) == first
    unskipped = watch(method, skipped_steps=0)
    assert feed(unskipped, islice(slow, 100)) == (first or 0) - 3


def test_who_has_gone_is_forgotten() -> None:
    for detector in (StreakDetector(1.2, 2), AverageDetector(1.0, 0.8)):
        detector.observe({A: 1.0, B: 2.0})
        detector.observe({A: 1.0, B: 2.0})
        assert [s.worker for s in detector.suspects()] == [B]
        detector.observe({A: 1.0})
        assert detector.suspects() == []


def test_a_step_that_was_too_short_for_the_clock_is_left_out() -> None:
    watching = watch(skipped_steps=0)
    for _ in range(20):
        watching.observe({A: 0.0, B: 1.0})
    assert (watching.suspects(), watching.speeds()) == ((), {})


# --- speeds ---------------------------------------------------------------------------------------


def test_speeds_are_virtual_workers_per_second_by_the_median_of_the_newest_steps() -> None:
    watching = watch(skipped_steps=0, speed_steps=5)
    for step in range(20):
        watching.observe({A: 0.5 if step < 10 else 0.25, B: 9.0 if step == 18 else 0.5})
    assert watching.speeds() == {A: 4.0, B: 2.0}


def test_speeds_are_unknown_before_half_of_the_steps_were_seen() -> None:
    watching = watch(skipped_steps=2, speed_steps=6)
    for _ in range(4):
        watching.observe({A: 0.5, B: 0.25})
        assert watching.speeds() == {}
    watching.observe({A: 0.5, B: 0.25})
    assert watching.speeds() == {A: 2.0, B: 4.0}


def test_evidence_is_in_plain_words() -> None:
    watching = watch(skipped_steps=0)
    feed(watching, islice(constant(a=1.0, b=1.0, c=1.5), 10))
    assert watching.suspects() == (
        Suspect(
            worker=C, slowness=1.5, evidence="more than 1.2 times the median in each of the last 10 steps"
        ),
    )
    watching = watch(AVERAGE, skipped_steps=0)
    feed(watching, islice(constant(a=1.0, b=1.0, c=2.0), 5))
    (suspect,) = watching.suspects()
    assert suspect.evidence == "its mean throughput is 0.80 of the median, below 0.8"


def test_slowness_is_measured_by_the_faster_of_the_two_in_the_middle() -> None:
    assert compute_slowness({A: 3.0}) == {A: 1.0}
    assert compute_slowness({A: 1.0, B: 3.0}) == {A: 1.0, B: 3.0}
    assert compute_slowness({A: 1.0, B: 2.0, C: 6.0}) == {A: 0.5, B: 1.0, C: 3.0}
    assert compute_slowness({}) == {}


@pytest.mark.parametrize(
    ("speeds", "levelled"),
    [
        ([], []),
        ([1.0], [1.0]),
        ([1.02, 1.0, 1.01], [1.01, 1.01, 1.01]),
        ([1.0, 0.5, 1.04, 0.51], [1.02, 0.505, 1.02, 0.505]),
        ([1.0, 1.06], [1.0, 1.06]),
    ],
)
def test_speeds_that_differ_by_noise_only_are_made_equal(speeds: list[float], levelled: list[float]) -> None:
    assert level_speeds(speeds) == pytest.approx(levelled)


@settings(deadline=None)
@given(st.lists(st.floats(0.01, 100.0), max_size=12))
def test_levelled_speeds_keep_their_order_and_differ_by_the_tolerance_at_most(speeds: list[float]) -> None:
    levelled = level_speeds(speeds)
    assert all(abs(new - old) <= 0.0501 * old for new, old in zip(levelled, speeds, strict=True))
    by_old = [new for _, new in sorted(zip(speeds, levelled, strict=True))]
    assert by_old == sorted(by_old)
