"""Placements by speed, compared with all placements there are on small problems."""

from collections.abc import Sequence
from itertools import combinations, pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from elastane.core.cut_search import find_fewest_segments
from elastane.core.placement import compute_step_time, is_worth_moving, plan_even, plan_placement
from elastane.core.tree import canonical_segments
from elastane.model.errors import ConfigError
from elastane.model.topology import VrankRange
from elastane.perf.curve import compute_mixed_speed

ANY_SPEED = st.floats(0.05, 20.0)
ROUND_SPEED = st.sampled_from([0.25, 0.5, 0.75, 1.0, 1.5, 2.0])
"""Speeds of which several placements are equally fast."""

Split = tuple[VrankRange, ...]


@st.composite
def problems(
    draw: st.DrawFn, most: int = 10, speeds: st.SearchStrategy[float] = ROUND_SPEED | ANY_SPEED
) -> tuple[int, list[float], list[VrankRange | None]]:
    """(N, speeds, what each worker holds now)"""
    virtual_workers = draw(st.integers(1, most))
    workers = draw(st.integers(1, virtual_workers))
    chosen = draw(st.lists(speeds, min_size=workers, max_size=workers))
    inner = draw(st.sets(st.integers(1, virtual_workers)).map(sorted))
    held = [VrankRange(*border) for border in pairwise([0, *inner, virtual_workers])]
    present: list[VrankRange | None] = [*held, *[None] * workers]
    return virtual_workers, chosen, present[:workers]


def all_splits(virtual_workers: int, workers: int) -> list[Split]:
    return [
        tuple(VrankRange(*border) for border in pairwise([0, *inner, virtual_workers]))
        for inner in combinations(range(1, virtual_workers), workers - 1)
    ]


def count_moved(split: Split, present: Sequence[VrankRange | None]) -> int:
    return sum(
        len(set(range(*vranks)) - set(range(*(held or (0, 0)))))
        for vranks, held in zip(split, present, strict=True)
    )


def count_all_segments(split: Split, virtual_workers: int) -> int:
    return sum(len(canonical_segments(vranks, virtual_workers)) for vranks in split)


@settings(max_examples=400, deadline=None)
@given(problems())
@example((8, [0.35, 0.35, 0.3], [None] * 3))  # 3 / 0.35 * 0.35 < 3 in floating point
def test_no_placement_is_better_in_time_then_segments_then_moves(
    problem: tuple[int, list[float], list[VrankRange | None]],
) -> None:
    virtual_workers, speeds, present = problem
    if len(set(speeds)) == 1:
        assert plan_placement(virtual_workers, speeds, present) == plan_even(virtual_workers, len(speeds))
        return

    def rank(split: Split) -> tuple[float, int, int, list[int]]:
        return (
            compute_step_time(split, speeds),
            count_all_segments(split, virtual_workers),
            count_moved(split, present),
            [-vranks.width for vranks in split],
        )

    best = min(all_splits(virtual_workers, len(speeds)), key=rank)
    assert plan_placement(virtual_workers, speeds, present) == best


@settings(deadline=None)
@given(problems(most=200))
def test_the_least_step_time_is_reached_on_larger_problems_too(
    problem: tuple[int, list[float], list[VrankRange | None]],
) -> None:
    virtual_workers, speeds, present = problem
    split = plan_placement(virtual_workers, speeds, present)
    assert [vranks.start for vranks in split] == [0, *(vranks.stop for vranks in split[:-1])]
    assert split[-1].stop == virtual_workers
    assert all(vranks.width >= 1 for vranks in split)
    # Whatever is faster than that has room for fewer than N, one at least on each worker.
    step_time_s = compute_step_time(split, speeds)
    shorter_s = step_time_s * (1 - 1e-9)
    room = sum(int(shorter_s * speed) for speed in speeds)
    assert room < virtual_workers or any(1 / speed > shorter_s for speed in speeds)


@settings(deadline=None)
@given(problems(most=64))
def test_performance_is_all_capability_less_what_is_wasted_and_that_is_n_over_the_step_time(
    problem: tuple[int, list[float], list[VrankRange | None]],
) -> None:
    # EasyScale, SC'23, Eq. 1, with capacity = sum of A_i = maxP = N.
    virtual_workers, speeds, present = problem
    split = plan_placement(virtual_workers, speeds, present)
    step_time_s = compute_step_time(split, speeds)
    waste = sum(c - vranks.width / step_time_s for c, vranks in zip(speeds, split, strict=True))
    assert sum(speeds) - waste == pytest.approx(virtual_workers / step_time_s)


@settings(deadline=None)
@given(st.integers(8, 40), st.integers(1, 4), st.integers(1, 4))
def test_the_simulator_expects_the_same_speed_of_unlike_devices(n: int, fast: int, slow: int) -> None:
    split = plan_placement(n, [1.0] * fast + [0.5] * slow)
    expected = compute_mixed_speed([fast, slow], [1.0, 0.5], n)
    assert n / compute_step_time(split, [1.0] * fast + [0.5] * slow) == pytest.approx(expected)


@settings(deadline=None)
@given(st.integers(1, 64), st.data())
def test_equal_speeds_give_even_ranges(virtual_workers: int, data: st.DataObject) -> None:
    workers = data.draw(st.integers(1, virtual_workers))
    speed = data.draw(ANY_SPEED)
    assert plan_placement(virtual_workers, [speed] * workers) == plan_even(virtual_workers, workers)


@pytest.mark.parametrize(
    ("virtual_workers", "speeds", "widths"),
    [
        (8, [1.0, 1.0, 1.0, 0.5], [3, 2, 2, 1]),  # 3: no better with one at half the speed
        (12, [1.0, 1.0, 0.5], [5, 5, 2]),
        (13, [8.0, 4.0, 1.0], [8, 4, 1]),
        (4, [1.0, 1.0, 1.0, 0.1], [1, 1, 1, 1]),  # nobody goes without
        (3, [0.001, 1000.0], [1, 2]),
        (1, [0.3], [1]),
    ],
)
def test_common_cases_are_placed_like_this(
    virtual_workers: int, speeds: list[float], widths: list[int]
) -> None:
    split = plan_placement(virtual_workers, speeds)
    assert sorted(vranks.width for vranks in split) == sorted(widths)
    assert compute_step_time(split, speeds) == max(w / c for w, c in zip(widths, speeds, strict=True))


def test_of_two_equally_good_placements_the_one_that_moves_less_is_taken() -> None:
    speeds = [1.0, 1.0, 0.5]
    one, other = (
        plan_placement(9, speeds),
        plan_placement(9, speeds, [VrankRange(0, 3), VrankRange(3, 7), None]),
    )
    assert [vranks.width for vranks in one] == [4, 4, 1]
    assert other == one  # fewer segments come first
    held = [VrankRange(0, 2), VrankRange(2, 4), VrankRange(4, 5)]
    assert plan_placement(5, [2.0, 2.0, 1.5], held) == (VrankRange(0, 2), VrankRange(2, 4), VrankRange(4, 5))


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_a_speed_that_is_none_is_refused(bad: float) -> None:
    with pytest.raises(ConfigError, match="a worker's speed must be a number above 0"):
        plan_placement(8, [1.0, bad])


def test_more_workers_than_virtual_workers_are_refused() -> None:
    with pytest.raises(ConfigError, match="3 workers cannot share 2 virtual workers"):
        plan_placement(2, [1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("speeds", "gain", "worth"),
    [
        ([1.0, 0.5], 0.03, True),  # 4 / 0.5 -> 5 / 1.0
        ([1.0, 0.98], 0.03, False),  # nothing better than four each
        ([1.0, 0.5], 0.5, False),  # 8 -> 5.3 is a third less
    ],
)
def test_a_move_is_worth_it_if_the_step_gets_shorter_by_more_than_the_gain(
    speeds: list[float], gain: float, worth: bool
) -> None:
    present = plan_even(8, 2)
    assert is_worth_moving(present, plan_placement(8, speeds, present), speeds, gain) is worth


def test_the_very_gain_is_not_worth_it() -> None:
    present, planned = (VrankRange(0, 4), VrankRange(4, 8)), (VrankRange(0, 5), VrankRange(5, 8))
    speeds = [1.0, 0.75]  # 16/3 -> 5: a sixteenth shorter
    assert is_worth_moving(present, planned, speeds, 1 / 17)
    assert not is_worth_moving(present, planned, speeds, 1 / 16)


@settings(deadline=None)
@given(problems(most=40, speeds=ROUND_SPEED), st.integers(0, 200))
def test_with_a_small_budget_lengths_keep_their_bounds_and_segments_do_not_get_more(
    problem: tuple[int, list[float], list[VrankRange | None]], budget: int
) -> None:
    virtual_workers, speeds, present = problem
    split = plan_placement(virtual_workers, speeds, present)
    widths = [vranks.width for vranks in split]
    step_time_s = compute_step_time(split, speeds)
    most = [max(w, int(step_time_s * c + 1e-9)) for w, c in zip(widths, speeds, strict=True)]
    found = find_fewest_segments(virtual_workers, most, widths, present, budget)
    assert all(1 <= vranks.width <= length for vranks, length in zip(found, most, strict=True))
    assert count_all_segments(found, virtual_workers) <= count_all_segments(split, virtual_workers)


def test_a_thousand_workers_get_the_least_step_time_and_few_segments() -> None:
    slow_one = plan_placement(4096, [1.0] * 999 + [0.1])
    assert compute_step_time(slow_one, [1.0] * 999 + [0.1]) == 10.0
    assert count_all_segments(slow_one, 4096) <= 1.01 * 1000
    speeds = [1.0, 0.6] * 500
    split = plan_placement(4096, speeds)
    assert compute_step_time(split, speeds) == 6.0
    assert count_all_segments(split, 4096) <= 1.7 * 1000
