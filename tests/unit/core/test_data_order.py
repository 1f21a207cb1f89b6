"""The samples of an epoch reach the virtual workers exactly once, in the order of DistributedSampler."""

from itertools import chain, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DistributedSampler

from elastane.core.data_order import DataOrder, Tail
from elastane.model.errors import ConfigError

sizes = st.tuples(st.integers(1, 200), st.integers(1, 12), st.integers(1, 9))
"""(samples, virtual_workers, batch_size)"""


def make_order(size: tuple[int, int, int], tail: Tail) -> DataOrder | None:
    samples, virtual_workers, batch_size = size
    try:
        return DataOrder(samples=samples, virtual_workers=virtual_workers, batch_size=batch_size, tail=tail)
    except ConfigError:
        return None


def steps_of(order: DataOrder) -> list[list[range]]:
    return [
        [order.positions(0, step, vrank) for vrank in range(order.virtual_workers)]
        for step in range(order.steps_per_epoch)
    ]


def distributed_batches(order: DataOrder, vrank: int, *, drop_last: bool) -> list[list[int]]:
    """Batch the indices that torch deals to one replica, without shuffling: positions of the order."""
    sampler: DistributedSampler[int] = DistributedSampler(
        range(order.samples),  # type: ignore[arg-type]
        num_replicas=order.virtual_workers,
        rank=vrank,
        shuffle=False,
        drop_last=drop_last,
    )
    indices = iter(sampler)
    batches = list(iter(lambda: list(islice(indices, order.batch_size)), []))
    return [batch for batch in batches if not drop_last or len(batch) == order.batch_size]


def test_a_small_epoch_with_a_short_last_step_is_dealt_as_written_here() -> None:
    order = DataOrder(samples=9, virtual_workers=2, batch_size=3)
    assert [[list(batch) for batch in step] for step in steps_of(order)] == [
        [[0, 2, 4], [1, 3, 5]],
        [[6, 8], [7]],
    ]


def test_a_virtual_worker_without_samples_in_the_last_step_gets_an_empty_batch() -> None:
    order = DataOrder(samples=7, virtual_workers=3, batch_size=2)
    assert [list(batch) for batch in steps_of(order)[-1]] == [[6], [], []]


@given(sizes)
def test_with_an_exact_tail_every_sample_is_trained_once_per_epoch(size: tuple[int, int, int]) -> None:
    order = make_order(size, Tail.EXACT)
    if order is not None:
        dealt = sorted(chain.from_iterable(chain.from_iterable(steps_of(order))))
        assert dealt == list(range(order.samples))


@given(sizes)
def test_steps_take_the_samples_of_the_order_from_front_to_back(size: tuple[int, int, int]) -> None:
    order = make_order(size, Tail.EXACT)
    if order is not None:
        dealt = [sorted(chain.from_iterable(step)) for step in steps_of(order)]
        assert list(chain.from_iterable(dealt)) == list(range(order.samples))


@given(sizes, st.sampled_from(Tail))
def test_the_count_of_a_step_is_the_sum_of_its_batches(size: tuple[int, int, int], tail: Tail) -> None:
    order = make_order(size, tail)
    if order is not None:
        counted = [sum(len(batch) for batch in step) for step in steps_of(order)]
        assert [order.step_samples(0, step) for step in range(order.steps_per_epoch)] == counted


@given(sizes)
def test_with_tail_pad_batches_are_those_of_a_distributed_sampler(size: tuple[int, int, int]) -> None:
    order = make_order(size, Tail.PAD)
    if order is None:
        return
    for vrank in range(order.virtual_workers):
        ours = [
            [position % order.samples for position in order.positions(0, step, vrank)]
            for step in range(order.steps_per_epoch)
        ]
        assert ours == distributed_batches(order, vrank, drop_last=False)


@given(sizes)
def test_with_tail_drop_batches_are_those_of_a_dropping_sampler_and_batcher(
    size: tuple[int, int, int],
) -> None:
    order = make_order(size, Tail.DROP)
    if order is None:
        return
    for vrank in range(order.virtual_workers):
        ours = [list(order.positions(0, step, vrank)) for step in range(order.steps_per_epoch)]
        assert ours == distributed_batches(order, vrank, drop_last=True)


@given(st.integers(1, 8), st.integers(1, 6), st.integers(1, 6))
def test_where_lengths_divide_all_tails_give_the_same_order(
    steps: int, workers: int, batch_size: int
) -> None:
    size = (steps * workers * batch_size, workers, batch_size)
    orders = [make_order(size, tail) for tail in Tail]
    dealt = [steps_of(order) for order in orders if order is not None]
    assert len(dealt) == len(Tail)
    assert dealt[0] == dealt[1] == dealt[2]


@given(sizes, st.integers(0, 3))
def test_beyond_the_end_of_an_epoch_batches_are_empty(size: tuple[int, int, int], beyond: int) -> None:
    order = make_order(size, Tail.EXACT)
    if order is not None:
        step = order.steps_per_epoch + beyond
        assert not any(order.positions(0, step, vrank) for vrank in range(order.virtual_workers))


@pytest.mark.parametrize(
    ("samples", "virtual_workers", "batch_size", "tail", "message"),
    [
        (10, 2, 0, Tail.EXACT, r"batch_size is 0; .* at least 1"),
        (10, 0, 2, Tail.EXACT, r"virtual_workers is 0; a job needs at least 1"),
        (0, 1, 1, Tail.EXACT, r"has 0 samples.*needs at least 1"),
        (
            3,
            4,
            2,
            Tail.EXACT,
            r"has 3 samples.*4 virtual workers x batch_size 2 = 8 samples.*needs at least 4",
        ),
        (3, 4, 2, Tail.PAD, r"tail='pad' needs at least 4"),
        (7, 4, 2, Tail.DROP, r"tail='drop' needs at least 8"),
    ],
)
def test_sizes_that_make_no_step_are_refused_with_what_to_do(
    samples: int, virtual_workers: int, batch_size: int, tail: Tail, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        DataOrder(samples=samples, virtual_workers=virtual_workers, batch_size=batch_size, tail=tail)
