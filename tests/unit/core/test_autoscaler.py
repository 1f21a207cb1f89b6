"""The autoscaler's search, step by step, on curves written down by hand."""

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastane.core.autoscaler import (
    MEDIAN_OF,
    AutoscaleSettings,
    Observation,
    Search,
    SizeDecision,
    Worth,
    compute_most,
    decide_size,
)
from elastane.core.utility import Linear, Steps
from elastane.model.errors import ConfigError

RISING = {1: 100.0, 2: 190.0, 3: 270.0, 4: 340.0, 5: 345.0, 6: 346.0, 7: 346.0, 8: 346.0}
"""Rises, then is flat: 4 is the last that pays."""
FALLING = {1: 100.0, 2: 98.0, 3: 95.0, 4: 90.0, 5: 84.0, 6: 77.0, 7: 69.0, 8: 60.0}
EIGHT = AutoscaleSettings(maximum=8, stability_s=100.0, blind_s=100.0)


def see(curve: dict[int, float], size: int, now_s: float = 0.0, **more: float) -> Observation:
    return Observation(now_s=now_s, size=size, throughput=curve[size], **more)  # type: ignore[arg-type]


def walk(curve: dict[int, float], start: int, settings: AutoscaleSettings = EIGHT) -> list[int]:
    """Return the sizes that the search takes one after another until it settles."""
    search, size, sizes = Search(), start, [start]
    for now_s in range(100):
        decision = decide_size(search, see(curve, size, float(now_s)), settings)
        search, size = decision.search, decision.size
        if size != sizes[-1]:
            sizes.append(size)
        if search.settled is not None:
            assert search.settled == size
            return sizes
    raise AssertionError(sizes)


@pytest.mark.parametrize(
    ("curve", "start", "sizes"),
    [
        (RISING, 1, [1, 2, 3, 4, 5, 4]),
        (RISING, 4, [4, 5, 3, 4]),
        (RISING, 6, [6, 7, 5, 4, 3, 4]),
        (RISING, 8, [8, 7, 6, 5, 4, 3, 4]),
        (FALLING, 1, [1, 2, 1]),
        (FALLING, 4, [4, 5, 3, 2, 1]),
        (FALLING, 8, [8, 7, 6, 5, 4, 3, 2, 1]),
    ],
)
def test_the_search_goes_up_while_it_pays_else_down_until_it_pays(
    curve: dict[int, float], start: int, sizes: list[int]
) -> None:
    assert walk(curve, start) == sizes


SHARED = {k: 100.0 / -(-12 // k) for k in range(1, 13)}
"""Twelve equal parts: the busiest of 5 workers has as many as the busiest of 4."""


@pytest.mark.parametrize(
    ("maximum", "step", "sizes"),
    [
        (12, 1, [1, 2, 3, 4, 6, 12]),
        (11, 1, [1, 2, 3, 4, 6]),
        (5, 1, [1, 2, 3, 4]),
        (12, 2, [1, 3, 5, 7, 12]),
        (12, 4, [1, 5, 9, 12]),
    ],
)
def test_sizes_at_which_nobody_has_less_to_do_are_passed_over(
    maximum: int, step: int, sizes: list[int]
) -> None:
    shared = AutoscaleSettings(maximum=maximum, step=step, parts=12)
    assert walk(SHARED, 1, shared) == sizes


def test_a_search_that_ends_below_sizes_of_no_use_says_so() -> None:
    shared = AutoscaleSettings(maximum=5, parts=12)
    seen = Search(measured={3: SHARED[3]}, initial_s=0.0)
    decision = decide_size(seen, see(SHARED, 4), shared)
    assert decision.reason == "3 -> 4 workers paid: efficiency 1.00 > 0.1; up to 5 workers have no less to do"


def test_workers_come_and_go_by_the_step_within_the_bounds() -> None:
    by_three = replace(EIGHT, step=3, minimum=2)
    assert walk(RISING, 2, by_three) == [2, 5, 8, 5]
    assert walk(FALLING, 7, by_three) == [7, 8, 4, 2]
    assert walk({n: 100.0 * n for n in range(1, 9)}, 2, by_three) == [2, 5, 8]
    assert walk({n: 100.0 * n for n in range(1, 9)}, 8, by_three) == [8, 5, 8]
    assert walk(RISING, 3, replace(EIGHT, minimum=3, maximum=3)) == [3]


def test_decisions_say_what_was_measured() -> None:
    first = decide_size(Search(), see(RISING, 4, 5.0), EIGHT)
    assert first == SizeDecision(
        size=5,
        reason="one size says nothing; try 5",
        search=Search(measured={4: 340.0}, initial_s=0.0),
    )
    second = decide_size(first.search, see(RISING, 5, 6.0), EIGHT)
    assert (second.size, second.reason) == (3, "4 -> 5 workers did not pay: efficiency 0.06 not > 0.1; try 3")
    third = decide_size(second.search, see(RISING, 3, 7.0), EIGHT)
    assert third == SizeDecision(
        size=4,
        reason="4 -> 5 workers did not pay: efficiency 0.06 not > 0.1; 4 is kept",
        search=Search(
            measured={4: 340.0, 5: 345.0, 3: 270.0},
            settled=4,
            settled_at_s=7.0,
            settled_most=8,
            initial_s=0.0,
        ),
    )
    top = decide_size(Search(), see(RISING, 8), EIGHT)
    assert (top.size, top.reason) == (7, "no more than 8 are possible; try 7")
    linear = {n: 100.0 * n for n in range(1, 9)}
    up = decide_size(Search(measured={7: 700.0}, initial_s=0.0), see(linear, 8), EIGHT)
    assert up.reason == "7 -> 8 workers paid: efficiency 1.00 > 0.1; no more than 8 are possible"


def test_the_threshold_itself_does_not_pay() -> None:
    exact = {1: 100.0, 2: 150.0, 3: 200.0}
    assert walk(exact, 1, AutoscaleSettings(maximum=2, efficiency=0.5)) == [1, 2, 1]
    assert walk(exact, 1, AutoscaleSettings(maximum=2, efficiency=0.49)) == [1, 2]


# --- value against cost -----------------------------------------------------------------------------


def valued(price: float, most: float = 100.0, end_s: float = 1000.0) -> AutoscaleSettings:
    return replace(EIGHT, worth=Worth(utility=Linear(end_s, most), price=price))


def walk_job(curve: dict[int, float], start: int, settings: AutoscaleSettings, samples: float) -> int | None:
    """Settle as `walk` does, for a job that has `samples` left all the while."""
    search, size = Search(), start
    while search.settled is None:
        decision = decide_size(search, see(curve, size, remaining_samples=samples), settings)
        search, size = decision.search, decision.size
    return search.settled


@pytest.mark.parametrize(
    ("price", "size"),
    [
        (0.0, 8),  # 90, 45, 30, ... s: each worker saves time, and costs nothing
        (0.01, 8),  # the cost is the same with every size
        (10.0, 8),
    ],
)
def test_with_perfect_scaling_cost_does_not_depend_on_the_size(price: float, size: int) -> None:
    linear = {n: 100.0 * n for n in range(1, 9)}
    assert walk_job(linear, 2, valued(price), 9000.0) == size


@pytest.mark.parametrize(("price", "size"), [(0.0001, 6), (0.001, 5), (0.01, 4), (0.2, 3), (10.0, 1)])
def test_the_dearer_a_worker_the_fewer_are_taken(price: float, size: int) -> None:
    # T: 346, 182, 128, 102, 100.3, 100 s; a second is worth 0.1.
    assert walk_job(RISING, 2, valued(price), 34600.0) == size


def test_value_and_cost_are_told() -> None:
    search = Search(measured={1: 100.0}, initial_s=346.0)
    decision = decide_size(search, see(RISING, 2, remaining_samples=34600.0), valued(0.02))
    # 346 -> 182 s: 16.4 more value; 2 x 182 - 346 = 18.2 worker-seconds more.
    assert decision.reason == "1 -> 2 workers paid: worth 16.39 more > 0.3642 more cost; try 3"


def test_a_deadline_is_met_with_as_few_workers_as_meet_it() -> None:
    # 102 s with 4 workers, 100.3 with 5; the bridge leads from the deadline to 346 s.
    deadline = replace(EIGHT, worth=Worth(utility=Steps(((110.0, 50.0),)), price=0.01))
    assert walk_job(RISING, 1, deadline, 34600.0) == 4


def test_the_time_expected_at_first_stays_the_end_of_the_bridge() -> None:
    first = decide_size(Search(), see(RISING, 1, remaining_samples=34600.0, elapsed_s=4.0), EIGHT)
    second = decide_size(first.search, see(RISING, 2, remaining_samples=34500.0, elapsed_s=9.0), EIGHT)
    assert (first.search.initial_s, second.search.initial_s) == (350.0, 350.0)


# --- after the search -------------------------------------------------------------------------------


def settled(curve: dict[int, float], size: int, **more: object) -> Search:
    known = {"first_rates": (curve[size],) * MEDIAN_OF, "settled_most": 8}
    return Search(measured=curve, settled=size, initial_s=0.0, **{**known, **more})  # type: ignore[arg-type]


def test_nothing_is_tried_anew_before_the_stability_period_is_over() -> None:
    search = settled(RISING, 4)
    assert decide_size(search, see(RISING, 4, 99.9), EIGHT).reason == "settled"
    again = decide_size(search, see(RISING, 4, 100.0), EIGHT)
    assert again == SizeDecision(
        size=5,
        reason="the last search was long ago: one size says nothing; try 5",
        search=Search(measured={4: 340.0}, began_at=4, initial_s=0.0),
    )


def test_searches_that_change_nothing_come_later_and_later() -> None:
    search, size, tries = settled(RISING, 4), 4, []
    for second in range(1000):
        decision = decide_size(search, see(RISING, size, float(second)), EIGHT)
        if search.settled is not None and decision.search.settled is None:
            tries.append(second)
        search, size = decision.search, decision.size
    # 100 s, then 200, 400 after the search has taken its two further looks.
    assert tries == [100, 302, 704]


PATIENT = replace(EIGHT, blind_s=1000.0)
"""Searches without an occasion ten times later than with one."""


def test_without_an_occasion_the_search_is_repeated_much_later() -> None:
    search = settled(RISING, 4)
    assert decide_size(search, see(RISING, 4, 999.9), PATIENT).reason == "settled"
    assert decide_size(search, see(RISING, 4, 1000.0), PATIENT).size == 5


@pytest.mark.parametrize(
    ("search", "seen", "reason"),
    [
        (
            settled(RISING, 4, first_rates=(400.0,) * MEDIAN_OF),
            see(RISING, 4, 100.0),
            "4 workers now do 340 samples/s, -15%: one size says nothing; try 5",
        ),
        (
            settled({3: 330.0, 4: 340.0}, 4),
            see(RISING, 4, 100.0),
            "by what was measured 3 would be kept now: one size says nothing; try 5",
        ),
        (
            settled({3: 270.0, 4: 340.0}, 4, settled_most=4),
            see(RISING, 4, 100.0),
            "8 workers are possible now: one size says nothing; try 5",
        ),
    ],
)
def test_a_job_that_has_changed_is_an_occasion_to_search_anew(
    search: Search, seen: Observation, reason: str
) -> None:
    assert decide_size(search, replace(seen, now_s=99.9), PATIENT).reason == "settled"
    decision = decide_size(search, seen, PATIENT)
    assert (decision.size, decision.reason, decision.search.settled) == (5, reason, None)


def review(rates: Sequence[float], search: Search, size: int = 4) -> SizeDecision:
    """Show a settled job at these rates, one after the other; return the last decision."""
    for rate in rates:
        decision = decide_size(search, see({size: rate}, size, 100.0), PATIENT)
        search = decision.search
    return decision


def test_a_measurement_that_stands_out_is_no_change_and_one_that_stays_is() -> None:
    search = settled({4: 340.0}, 4)
    assert review([340.0, 340.0, 306.0, 374.0], search).reason == "settled"
    assert review([340.0, 340.0, 306.0, 374.0, 306.0], search).reason == "settled"
    changed = review([340.0, 340.0, 306.0, 374.0, 306.0, 306.0], search)
    assert changed.reason.startswith("4 workers now do 306 samples/s, -10%: ")
    assert changed.search.measured == {4: 306.0}


def test_the_rate_that_a_size_is_held_to_is_the_median_of_its_first_ones() -> None:
    search = settled({4: 340.0}, 4, first_rates=())
    outlier_first = [300.0, 340.0, 341.0, 339.0, 340.0]
    assert review([*outlier_first, *[340.0] * 5], search).reason == "settled"
    assert review([*outlier_first, *[320.0] * 3], search).reason.startswith("4 workers now do 320 samples/s")


def count_searches(spread: float, seed: int) -> int:
    """Return how often a job that does not change is searched anew in a day of measurements of 10 s."""
    generator, search, size, searches = random.Random(seed), Search(), 4, 0
    for second in range(10, 24 * 3600, 10):
        rate = 100.0 * min(size, 4) * (1 + generator.gauss(0, spread))
        decision = decide_size(search, see({size: rate}, size, float(second)), AutoscaleSettings(maximum=8))
        searches += search.settled is not None and decision.search.settled is None
        search, size = decision.search, decision.size
    return searches


def test_measurements_that_vary_by_a_hundredth_hardly_ever_cause_a_search() -> None:
    blind = count_searches(0.0, 0)
    assert sum(count_searches(0.01, seed) - blind for seed in range(5)) <= 5


def test_fewer_workers_than_are_kept_are_not_taken_for_a_slower_job() -> None:
    seen = see(RISING, 3, 100.0, available=3)
    assert decide_size(settled({3: 270.0, 4: 340.0}, 4, settled_most=4), seen, PATIENT).reason == (
        "by what was measured 3 would be kept now: no more than 3 are possible; try 2"
    )


def test_a_look_that_somebody_prevents_is_over() -> None:
    looks = settled(ON_THE_HILL, 4, looks=True, looked=True)
    decision = decide_size(looks, see_hills(3, 110.0), price_hills(0.001))
    assert (decision.reason, decision.search.looks) == ("back to 4", False)


TWO_HILLS = {1: 100.0, 2: 95.0, 3: 96.0, 4: 110.0, 5: 110.0, 6: 109.0, 7: 108.0, 8: 107.0}
"""With a price the best is 1; the climb from above or from 2 ends at 4."""


def see_hills(size: int, now_s: float, step_time_s: float = 0.1) -> Observation:
    return see(TWO_HILLS, size, now_s, remaining_samples=50_000.0, step_time_s=step_time_s)


def price_hills(price: float) -> AutoscaleSettings:
    return replace(PATIENT, worth=Worth(utility=Linear(2000.0, 100.0), price=price))


ON_THE_HILL = {3: 96.0, 4: 110.0, 5: 110.0}


def test_the_smallest_size_is_looked_at_once_and_climbed_from_if_it_is_better() -> None:
    dear = price_hills(0.005)
    look = decide_size(settled(ON_THE_HILL, 4), see_hills(4, 100.0), dear)
    assert (look.size, look.search.looks, look.search.settled) == (1, True, 4)
    assert look.reason == "nothing has changed; look once at 1, where another hill may be"
    begun = decide_size(look.search, see_hills(1, 110.0), dear)
    assert begun.size == 2
    assert begun.reason.startswith("1 -> 4 workers do not pay: worth 2.273 more not > 6.591 more cost: ")
    kept = decide_size(begun.search, see_hills(2, 120.0), dear)
    assert (kept.size, kept.search.settled, kept.search.looked, kept.search.idle_searches) == (1, 1, True, 1)


def test_after_a_look_that_found_nothing_the_size_is_as_before_and_it_is_not_repeated() -> None:
    cheap, search = price_hills(0.001), settled(ON_THE_HILL, 4)
    look = decide_size(search, see_hills(4, 100.0), cheap)
    back = decide_size(look.search, see_hills(1, 110.0), cheap)
    assert back == SizeDecision(
        size=4,
        reason="1 -> 4 workers pay: worth 2.273 more > 1.318 more cost; back to 4",
        search=replace(search, looked=True, last_rates=(110.0,)),
    )
    assert decide_size(back.search, see_hills(4, 120.0), cheap).reason == "settled"


def test_a_look_that_could_take_long_or_says_nothing_is_not_taken() -> None:
    cheap, search = price_hills(0.001), settled(ON_THE_HILL, 4)
    # 454 s are left, of which a hundredth may be used. 11 steps of 4 x 0.1 s would be 4.4 s.
    assert decide_size(search, see_hills(4, 100.0, 0.1), cheap).size == 1
    assert decide_size(search, see_hills(4, 100.0, 0.11), cheap).reason == "settled"
    assert decide_size(search, see_hills(4, 100.0, 0.0), cheap).reason == "settled"
    assert decide_size(search, see_hills(4, 100.0), PATIENT).reason == "settled"
    seen_before = settled({1: 60.0, **ON_THE_HILL}, 4)
    assert decide_size(seen_before, see_hills(4, 100.0), cheap).reason == "settled"


def test_a_search_that_found_more_workers_to_pay_is_followed_by_a_soon_one() -> None:
    search = settled({4: 340.0}, 4, idle_searches=3)
    better = {n: 100.0 * n for n in range(1, 9)}
    size, now_s = 4, 10_000.0
    while search.settled is None or size == 4:
        decision = decide_size(search, see(better, size, now_s), EIGHT)
        search, size, now_s = decision.search, decision.size, now_s + 1
    assert (search.settled, search.idle_searches) == (8, 0)


def test_workers_are_given_back_when_fewer_were_faster() -> None:
    slower = {**RISING, 4: 250.0}
    decision = decide_size(settled({2: 190.0, 3: 270.0, 4: 340.0}, 4), see(slower, 4, 50.0), EIGHT)
    assert (decision.size, decision.reason) == (
        3,
        "4 workers now do 250 samples/s, 3 did 270: the others are given back",
    )
    assert decision.search.settled == 3
    assert decision.search.idle_searches == 1
    within_noise = {**RISING, 4: 263.0}
    assert decide_size(settled({3: 270.0, 4: 340.0}, 4), see(within_noise, 4, 50.0), EIGHT).size == 4


def test_a_size_that_somebody_else_changed_is_put_back() -> None:
    decision = decide_size(settled(RISING, 4), see(RISING, 6, 50.0), EIGHT)
    assert (decision.size, decision.reason, decision.search.settled) == (4, "back to 4", 4)


def test_devices_bound_the_search_and_the_settled_size() -> None:
    assert decide_size(Search(), see(RISING, 3, available=3), EIGHT).size == 2
    scarce = decide_size(settled(RISING, 4), see(RISING, 4, 1.0, available=2), EIGHT)
    assert (scarce.size, scarce.reason) == (2, "1 to 2 workers are possible")
    assert decide_size(scarce.search, see(RISING, 2, 2.0, available=2), EIGHT).size == 2
    assert decide_size(scarce.search, see(RISING, 2, 3.0, available=8), EIGHT).size == 4
    # Fewer devices than the minimum do not lower it.
    assert decide_size(Search(), see(RISING, 2, available=1), replace(EIGHT, minimum=2)).size == 2


@settings(deadline=None)
@given(
    st.lists(st.floats(1.0, 1000.0), min_size=8, max_size=8),
    st.integers(1, 8),
    st.integers(1, 4),
    st.integers(1, 8),
)
def test_on_any_curve_the_search_ends_at_the_size_before_the_first_failure_it_saw(
    speeds: list[float], start: int, step: int, minimum: int
) -> None:
    curve = dict(enumerate(speeds, start=1))
    settings = replace(EIGHT, step=step, minimum=min(minimum, start))
    sizes = walk(curve, start, settings)
    assert all(settings.minimum <= size <= 8 for size in sizes)
    assert len(set(sizes)) >= len(sizes) - 1  # only the last one is gone back to
    seen = sorted(set(sizes))
    pays = {
        fewer: (curve[more] - curve[fewer]) / (more - fewer) / (curve[fewer] / fewer) > 0.1
        for fewer, more in pairwise(seen)
    }
    failures = [fewer for fewer, holds in pays.items() if not holds]
    assert sizes[-1] == (failures[0] if failures else seen[-1])
    assert len(sizes) <= 2 + -(-7 // step) + 1


# --- bad settings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"minimum": 4, "maximum": 2}, "at least 4 and at most 2 workers is no range"),
        ({"minimum": 0, "maximum": 2}, "at least 0 and at most 2 workers is no range"),
        ({"maximum": 4, "step": 0}, "0 workers cannot be added at a time"),
        ({"maximum": 4, "efficiency": 1.5}, "an efficiency of 1.5 is none"),
        ({"maximum": 4, "efficiency": -0.1}, "an efficiency of -0.1 is none"),
    ],
)
def test_settings_that_contradict_themselves_are_refused(wrong: dict[str, int], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        AutoscaleSettings(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("price", [-0.1, float("nan")])
def test_a_price_below_nothing_is_refused(price: float) -> None:
    with pytest.raises(ConfigError, match="it cannot be below 0"):
        Worth(utility=Linear(1.0, 1.0), price=price)


def test_virtual_workers_and_the_samples_of_a_capped_batch_bound_the_workers() -> None:
    assert compute_most(EIGHT) == 8
    assert compute_most(EIGHT, virtual_workers=6) == 6
    assert compute_most(EIGHT, virtual_workers=6, max_global=4) == 4
    with pytest.raises(
        ConfigError, match="keep 2 workers; the job has 1 samples in the largest batch: lower min"
    ):
        compute_most(replace(EIGHT, minimum=2), max_global=1)
