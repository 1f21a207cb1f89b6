"""Numbers behind the plots, and numbers as people say them."""

from __future__ import annotations

import numpy as np
import pytest
from sim_fakes import small_comparison

from elastane.sim.recording import ChangeLog
from elastane.sim.report.allocation_map import IDLE, draw_allocation
from elastane.sim.report.figures import (
    CHANGE_CLASSES,
    average_over_slices,
    compute_cdf,
    compute_change_shares,
    compute_edges,
    compute_size_classes,
    compute_tenants,
    slice_series,
)
from elastane.sim.report.human import say_change, say_duration, say_number, say_share


def test_a_step_function_is_averaged_by_how_long_each_value_holds() -> None:
    slices = average_over_slices(
        np.array([0.0, 1.0, 3.0]), np.array([4.0, 10.0, 0.0]), np.array([0.0, 2.0, 4.0, 6.0])
    )
    assert slices.value.tolist() == [7.0, 5.0, 0.0]


def test_before_the_first_moment_nothing_is_held_and_after_the_last_its_value_stays() -> None:
    slices = average_over_slices(np.array([2.0, 4.0]), np.array([1.0, 6.0]), np.array([0.0, 2.0, 4.0, 6.0]))
    assert slices.value.tolist() == [0.0, 1.0, 6.0]


def test_slices_keep_the_area_of_a_whole_run() -> None:
    result = small_comparison().runs[2].result
    end_s = float(result.jobs.finish_s.max())
    used = slice_series(result.series, "used", compute_edges(0.0, end_s, 37))
    area = float((used.value * np.diff(used.edge_s)).sum())
    held = float(result.jobs.busy_device_s.sum() + result.jobs.lost_device_s.sum())
    assert area == pytest.approx(held, rel=1e-9)


def test_a_distribution_is_thinned_but_keeps_its_ends() -> None:
    x, y = compute_cdf(np.arange(10_000.0)[::-1], 100)
    assert (len(x), x[0], x[-1], y[-1]) == (100, 0.0, 9999.0, 1.0)
    assert compute_cdf(np.array([3.0, 1.0]), 100)[1].tolist() == [0.5, 1.0]


def test_size_classes_cover_all_jobs_once() -> None:
    classes = compute_size_classes(small_comparison().runs[0].result.jobs)
    assert [(entry.label, entry.jobs) for entry in classes] == [("1 device", 6), ("2-4", 12), ("5-8", 6)]


def test_shares_of_sooner_and_later_jobs_add_up_and_are_all_same_against_oneself() -> None:
    runs = small_comparison().runs
    assert sum(compute_change_shares(runs[2].result.jobs, runs[0].result.jobs)) == pytest.approx(1.0)
    assert compute_change_shares(runs[0].result.jobs, runs[0].result.jobs) == (0.0, 0.0, 1.0, 0.0, 0.0)
    assert len(CHANGE_CLASSES) == 5


def test_tenants_come_by_device_hours_and_a_single_one_is_no_table() -> None:
    jobs = small_comparison().runs[0].result.jobs
    rows = compute_tenants((jobs, jobs), 12)
    assert {row.tenant for row in rows} == {"vision", "speech & text"}
    assert rows[0].device_hours > rows[1].device_hours
    assert rows[0].jct_mean_s[0] == rows[0].jct_mean_s[1]
    assert len(compute_tenants((jobs,), 1)) == 1


def log(*changes: tuple[float, int, int]) -> ChangeLog:
    time_s, job, devices = zip(*changes, strict=True)
    return ChangeLog(time_s=np.array(time_s), job=np.array(job), devices=np.array(devices))


def test_the_map_shows_jobs_side_by_side_growing_shrinking_and_ending() -> None:
    changes = log((0.0, 0, 2), (10.0, 1, 2), (20.0, 0, 1), (20.0, 1, 3))
    pixels = draw_allocation(changes, np.array([30.0, 40.0]), 4, np.array([5.0, 15.0, 25.0, 35.0, 45.0]))
    columns = [pixels[:, i].tolist() for i in range(5)]
    assert columns[0] == [0, 0, IDLE, IDLE]
    assert columns[1] == [0, 0, 1, 1]
    assert sorted(columns[2]) == [0, 1, 1, 1]
    assert sorted(columns[3]) == [IDLE, 1, 1, 1]
    assert columns[4] == [IDLE] * 4


def test_at_one_moment_devices_are_given_back_before_they_are_taken() -> None:
    changes = log((0.0, 0, 4), (10.0, 1, 3), (10.0, 0, 1))
    pixels = draw_allocation(changes, np.array([20.0, 20.0]), 4, np.array([5.0, 15.0]))
    assert pixels[:, 0].tolist() == [0] * 4
    assert sorted(pixels[:, 1].tolist()) == [0, 1, 1, 1]


def test_the_map_of_a_whole_run_holds_as_many_devices_as_the_series_says() -> None:
    run = small_comparison().runs[2]
    assert run.changes is not None
    middles = np.linspace(1.0, float(run.result.jobs.finish_s.max()) - 1.0, 50)
    pixels = draw_allocation(run.changes, run.result.jobs.finish_s, run.result.capacity, middles)
    places = np.searchsorted(run.result.series.time_s, middles, side="right") - 1
    assert (pixels != IDLE).sum(axis=0).tolist() == run.result.series.used[places].astype(int).tolist()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"), (0.2, "0.2 s"), (1, "1 s"), (59, "59 s"), (90, "1.5 min"), (5400, "1.5 h"),
        (86400 * 123.4, "123 d"), (float("inf"), "-"), (float("nan"), "-"),
    ],
)  # fmt: skip
def test_durations_come_in_the_largest_unit_that_fits(seconds: float, text: str) -> None:
    assert say_duration(seconds) == text


@pytest.mark.parametrize(
    ("new", "old", "text"),
    [
        (50, 100, "−50 %"), (103, 100, "+3.0 %"), (100, 100, "same"), (900, 100, "x 9"), (1, 0, ""),
        (float("nan"), 1, ""), (5e4, 100, "x 500"),
    ],
)  # fmt: skip
def test_changes_are_per_cent_or_multiples(new: float, old: float, text: str) -> None:
    assert say_change(new, old) == text


def test_shares_and_counts() -> None:
    assert [say_share(share) for share in (0.0, 0.004, 0.5, 1.013)] == ["0 %", "0.4 %", "50 %", "101 %"]
    assert [say_number(value) for value in (0, 80, 1234567, 2.864, 0.5, 104.4)] == [
        "0", "80", "1,234,567", "2.86", "0.5", "104",
    ]  # fmt: skip
