"""The autoscaler on curves of both papers' shapes: what it finds, when, and what the search costs."""

import pytest

from elastane.core.autoscale_replay import Move, Replay, ReplayedJob, replay_autoscale, replay_static
from elastane.core.autoscaler import AutoscaleSettings
from elastane.core.throughput import SizeMeter


def rising_then_flat(size: int) -> float:
    return min(size, 48) * 100.0 + size * 0.1


def falling(size: int) -> float:
    return 1000.0 - 8.0 * size


def job(throughput: object, steps: int = 20_000) -> ReplayedJob:
    # The published stop times of a transition on ImageNet (Or et al., table 1).
    return ReplayedJob(
        throughput=throughput,  # type: ignore[arg-type]
        batch=1024,
        samples=1024.0 * steps,
        join_s=40.0,
        grow_stop_s=6.8,
        shrink_stop_s=4.4,
    )


@pytest.mark.parametrize("start", [32, 40, 48, 56, 64])
def test_where_speed_rises_and_then_is_flat_the_search_ends_where_it_becomes_flat(start: int) -> None:
    settings = AutoscaleSettings(minimum=32, maximum=64, step=4)
    result = replay_autoscale(job(rising_then_flat), start, settings)
    assert result.settled == 48
    assert result.settled_after_moves <= 10
    best = min(replay_static(job(rising_then_flat), size).total_s for size in range(32, 65))
    assert result.total_s <= 1.03 * best


@pytest.mark.parametrize("start", [4, 8, 12, 16, 20, 24])
def test_where_speed_falls_from_the_start_the_search_ends_at_the_minimum(start: int) -> None:
    result = replay_autoscale(job(falling), start, AutoscaleSettings(minimum=4, maximum=24, step=4))
    assert result.settled == 4
    assert result.settled_after_moves <= 10
    best = replay_static(job(falling), 4)
    assert result.total_s <= 1.03 * best.total_s
    assert result.worker_s <= 1.1 * best.worker_s


def test_time_and_workers_are_counted_as_they_are_held() -> None:
    # 100 samples/s per worker up to 2; steps of 100 samples; 10 steps are measured, the first is not.
    small = ReplayedJob(
        throughput=lambda size: 100.0 * min(size, 2),
        batch=100,
        samples=10_000.0,
        join_s=4.0,
        grow_stop_s=1.0,
        shrink_stop_s=0.5,
    )
    result = replay_autoscale(small, 1, AutoscaleSettings(maximum=3, stability_s=1e9))
    # 10 steps with 1 worker: 10 s. Joining: 4 s in which 4 steps are trained, 1 s stop, 2 held.
    # 11 steps with 2: 5.5 s. Joining: 4 s, 8 steps, 1 s, 3 held. 11 with 3: 5.5 s. Back to 2: 0.5 s, 3 held.
    # That are 44 steps; 56 more with 2: 28 s.
    assert result == Replay(
        total_s=10 + 5 + 5.5 + 5 + 5.5 + 0.5 + 28,
        worker_s=10 * 1 + 5 * 2 + 5.5 * 2 + 5 * 3 + 5.5 * 3 + 0.5 * 3 + 28 * 2,
        moves=(
            Move(at_s=15.0, size=2, reason="one size says nothing; try 2"),
            Move(at_s=25.5, size=3, reason="1 -> 2 workers paid: efficiency 1.00 > 0.1; try 3"),
            Move(
                at_s=31.5, size=2, reason="2 -> 3 workers did not pay: efficiency 0.00 not > 0.1; 2 is kept"
            ),
        ),
        settled=2,
        settled_at_s=31.5,
        settled_after_steps=44,
        settled_after_moves=3,
    )


def test_a_job_that_ends_before_the_search_does_has_settled_nowhere() -> None:
    result = replay_autoscale(job(falling, steps=15), 8, AutoscaleSettings(maximum=16))
    assert (result.settled, result.settled_after_moves, len(result.moves)) == (None, 0, 1)


def test_a_size_is_measured_by_the_median_of_its_steps_without_the_first() -> None:
    meter = SizeMeter(interval_steps=3, skipped_steps=1)
    fed = [(7, 10, 9.0), (7, 10, 1.0), (7, 10, 2.0), (7, 10, 5.0), (7, 10, 1.0), (7, 10, 1.0), (7, 10, 1.0)]
    assert [meter.observe(*step) for step in fed] == [None, None, None, 5.0, None, None, 10.0]


def test_a_switch_begins_the_measurement_anew() -> None:
    meter = SizeMeter(interval_steps=2, skipped_steps=1)
    fed = [(7, 10, 1.0), (7, 10, 1.0), (8, 10, 1.0), (8, 10, 2.0), (8, 10, 2.0)]
    assert [meter.observe(*step) for step in fed] == [None, None, None, None, 5.0]


def test_a_step_that_took_no_time_is_not_counted() -> None:
    meter = SizeMeter(interval_steps=1, skipped_steps=0)
    assert meter.observe(1, 10, 0.0) is None
    assert meter.observe(1, 10, 1.0) == 10.0
