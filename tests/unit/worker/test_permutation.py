"""The order of an epoch is DistributedSampler's, whatever is asked of it and when."""

from itertools import islice

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DistributedSampler

from elastane.core.data_order import DataOrder, Tail
from elastane.worker.permutation import EpochOrders


def sampler_batches(
    order: DataOrder, seed: int, epoch: int, vrank: int, *, drop_last: bool
) -> list[list[int]]:
    sampler: DistributedSampler[int] = DistributedSampler(
        range(order.samples),  # type: ignore[arg-type]
        num_replicas=order.virtual_workers,
        rank=vrank,
        seed=seed,
        drop_last=drop_last,
    )
    sampler.set_epoch(epoch)
    indices = iter(sampler)
    batches = list(iter(lambda: list(islice(indices, order.batch_size)), []))
    return [batch for batch in batches if not drop_last or len(batch) == order.batch_size]


def own_batches(order: DataOrder, orders: EpochOrders, epoch: int, vrank: int) -> list[list[int]]:
    batches = [
        orders.indices(epoch, order.positions(0, step, vrank)) for step in range(order.steps_per_epoch)
    ]
    return [batch for batch in batches if batch]


@given(st.integers(1, 150), st.integers(1, 9), st.integers(1, 8), st.integers(0, 1 << 40), st.integers(0, 50))
def test_padded_batches_are_those_of_a_distributed_sampler(
    samples: int, virtual_workers: int, batch_size: int, seed: int, epoch: int
) -> None:
    if samples < virtual_workers:
        return
    order = DataOrder(samples=samples, virtual_workers=virtual_workers, batch_size=batch_size, tail=Tail.PAD)
    orders = EpochOrders(samples, seed, shuffle=True)
    for vrank in range(virtual_workers):
        theirs = sampler_batches(order, seed, epoch, vrank, drop_last=False)
        assert own_batches(order, orders, epoch, vrank) == theirs


@pytest.mark.parametrize("tail", list(Tail))
@given(st.integers(1, 6), st.integers(1, 7), st.integers(1, 6), st.integers(0, 3))
def test_where_lengths_divide_every_tail_gives_the_sampler_s_batches(
    tail: Tail, steps: int, virtual_workers: int, batch_size: int, epoch: int
) -> None:
    samples = steps * virtual_workers * batch_size
    order = DataOrder(samples=samples, virtual_workers=virtual_workers, batch_size=batch_size, tail=tail)
    orders = EpochOrders(samples, 3, shuffle=True)
    for vrank in range(virtual_workers):
        theirs = sampler_batches(order, 3, epoch, vrank, drop_last=False)
        assert own_batches(order, orders, epoch, vrank) == theirs


@given(st.integers(1, 150), st.integers(1, 9), st.integers(1, 8))
def test_dropped_tails_leave_the_batches_of_a_dropping_sampler(
    samples: int, virtual_workers: int, batch_size: int
) -> None:
    if samples < virtual_workers * batch_size:
        return
    order = DataOrder(samples=samples, virtual_workers=virtual_workers, batch_size=batch_size, tail=Tail.DROP)
    orders = EpochOrders(samples, 1, shuffle=True)
    for vrank in range(virtual_workers):
        theirs = sampler_batches(order, 1, 2, vrank, drop_last=True)
        assert own_batches(order, orders, 2, vrank) == theirs


@given(st.lists(st.integers(0, 5), max_size=20))
def test_going_back_and_forth_between_epochs_changes_nothing(epochs: list[int]) -> None:
    orders = EpochOrders(20, 0, shuffle=True)
    whole = range(20)
    for epoch in epochs:
        assert orders.indices(epoch, whole) == EpochOrders(20, 0, shuffle=True).indices(epoch, whole)


def test_orders_of_epochs_differ_and_are_permutations() -> None:
    orders = EpochOrders(50, 0, shuffle=True)
    made = [orders.indices(epoch, range(50)) for epoch in range(4)]
    assert [sorted(order) for order in made] == [list(range(50))] * 4
    assert len({tuple(order) for order in made}) == 4


def test_without_shuffling_positions_are_indices_and_padding_starts_again_at_the_front() -> None:
    orders = EpochOrders(5, 0, shuffle=False)
    assert orders.indices(3, range(1, 8, 2)) == [1, 3, 0, 2]


def test_making_an_order_draws_nothing_from_the_generator_that_training_uses() -> None:
    before = torch.get_rng_state()
    EpochOrders(100, 0, shuffle=True).indices(0, range(100))
    assert torch.equal(torch.get_rng_state(), before)
