"""What is fetched next, with promised changes and known ends."""

from dataclasses import replace
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from elastane.core.data_order import DataOrder
from elastane.model.topology import VrankRange
from elastane.worker.feed_plan import BatchKey, FeedPlan, Promise

# 3 steps of 4 virtual workers per epoch; in the last one only virtual workers 0 and 1 have samples
ORDER = DataOrder(samples=18, virtual_workers=4, batch_size=2)
START = FeedPlan(order=ORDER, position=BatchKey(0, 0, 1), vranks=VrankRange(1, 3))


def first(plan: FeedPlan, count: int) -> list[tuple[int, int, int]]:
    return [tuple(key) for key in islice(plan.keys(), count)]


def test_batches_come_by_step_and_vrank_and_run_over_the_border_of_an_epoch() -> None:
    assert first(START, 8) == [
        (0, 0, 1),
        (0, 0, 2),
        (0, 1, 1),
        (0, 1, 2),
        (0, 2, 1),  # virtual worker 2 has no sample in the last step
        (1, 0, 1),
        (1, 0, 2),
        (1, 1, 1),
    ]


def test_a_plan_may_begin_in_the_middle_of_a_step() -> None:
    plan = replace(START, position=BatchKey(0, 1, 2))
    assert first(plan, 3) == [(0, 1, 2), (0, 2, 1), (1, 0, 1)]


def test_from_the_promised_step_on_other_virtual_workers_are_fetched() -> None:
    plan = replace(START, promise=Promise((0, 1), VrankRange(0, 4)))
    assert first(plan, 7) == [(0, 0, 1), (0, 0, 2), (0, 1, 0), (0, 1, 1), (0, 1, 2), (0, 1, 3), (0, 2, 0)]


def test_a_worker_that_will_leave_fetches_nothing_from_then_on() -> None:
    plan = replace(START, promise=Promise((0, 1), VrankRange(0, 0)))
    assert first(plan, 9) == [(0, 0, 1), (0, 0, 2)]


def test_a_worker_that_joins_at_a_promised_step_fetches_from_there() -> None:
    plan = replace(START, vranks=VrankRange(0, 0), promise=Promise((5, 2), VrankRange(0, 1)))
    assert first(plan, 2) == [(5, 2, 0), (6, 0, 0)]


def test_nothing_follows_the_last_epoch() -> None:
    plan = replace(START, position=BatchKey(1, 2, 0), epochs=2)
    assert first(plan, 9) == [(1, 2, 1)]


def test_a_worker_without_virtual_workers_and_without_a_promise_fetches_nothing() -> None:
    assert first(replace(START, vranks=VrankRange(2, 2)), 9) == []


def test_fetching_at_the_promised_step_fulfils_the_promise() -> None:
    plan = replace(START, promise=Promise((0, 1), VrankRange(0, 2)))
    before = plan.after(BatchKey(0, 0, 1))
    assert before == replace(plan, position=BatchKey(0, 0, 2))
    assert before.after(BatchKey(0, 1, 0)) == FeedPlan(
        order=ORDER, position=BatchKey(0, 1, 1), vranks=VrankRange(0, 2)
    )


ranges = st.tuples(st.integers(0, 4), st.integers(0, 4)).map(lambda pair: VrankRange(min(pair), max(pair)))
keys = st.builds(BatchKey, st.integers(0, 3), st.integers(0, 2), st.integers(0, 3))
plans = st.builds(
    FeedPlan,
    order=st.just(ORDER),
    position=keys,
    vranks=ranges,
    promise=st.none() | st.builds(Promise, st.tuples(st.integers(0, 3), st.integers(0, 2)), ranges),
    epochs=st.integers(0, 4),
)


@given(plans, keys)
def test_a_plan_wants_exactly_the_batches_that_it_lists(plan: FeedPlan, key: BatchKey) -> None:
    listed = list(plan.keys())
    assert sorted(set(listed)) == listed
    assert (key in listed) == (plan.wants(key) and bool(ORDER.positions(*key)))


@given(plans)
def test_after_each_batch_the_plan_lists_the_rest(plan: FeedPlan) -> None:
    listed = list(plan.keys())
    for count, key in enumerate(listed):
        plan = plan.after(key)
        assert list(plan.keys()) == listed[count + 1 :]
