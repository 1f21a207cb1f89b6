"""Batches depend on their key alone; the schedule decides only what is under way when they are fetched."""

import random
from typing import Any

import numpy
import pytest
import torch
from feed_samples import Augmented, FakePipe, as_list
from hypothesis import given
from hypothesis import strategies as st

from elastane.core.data_order import DataOrder, Place, Tail
from elastane.model.errors import ConfigError
from elastane.model.topology import VrankRange
from elastane.worker.data import FeedSettings, FetchRequest, RequestedBatches
from elastane.worker.feed_plan import BatchKey
from elastane.worker.feeder import BatchFeeder
from elastane.worker.permutation import EpochOrders
from elastane.worker.seeding import compute_batch_seed

SEED = 7
# 4 steps per epoch, in the last of which virtual worker 3 has no sample and the others short batches
ORDER = DataOrder(samples=27, virtual_workers=4, batch_size=2)
ALL = VrankRange(0, 4)


class Bench:
    """A feeder on a pipe without processes, and what it has requested."""

    def __init__(self, *, depth: int, dataset: Any = None) -> None:
        self.pipes: list[FakePipe] = []
        settings = FeedSettings(shuffle=True, num_workers=depth, prefetch_factor=1, collate_fn=as_list)
        self.feeder = BatchFeeder(
            dataset if dataset is not None else Augmented(ORDER.samples),
            ORDER,
            SEED,
            settings=settings,
            open_pipe=self._open,
        )

    def _open(self, *args: Any) -> FakePipe:
        self.pipes.append(FakePipe(*args))
        return self.pipes[-1]

    @property
    def requested(self) -> list[BatchKey | None]:
        names = {None: None} | {
            request_for(BatchKey(epoch, step, vrank)).seed: BatchKey(epoch, step, vrank)
            for epoch in range(8)
            for step in range(ORDER.steps_per_epoch)
            for vrank in range(ORDER.virtual_workers)
        }
        return [names[request and request.seed] for request in self.pipes[-1].requested]

    def fetch_step(self, epoch: int, step: int, vranks: VrankRange) -> None:
        for vrank in range(vranks.start, vranks.stop):
            key = BatchKey(epoch, step, vrank)
            assert self.feeder.fetch(epoch, step, vrank) == expected(key)


def request_for(key: BatchKey) -> FetchRequest:
    orders = EpochOrders(ORDER.samples, SEED, shuffle=True)
    indices = orders.indices(key.epoch, ORDER.positions(*key))
    return FetchRequest(compute_batch_seed(SEED, *key), indices)


def expected(key: BatchKey) -> Any:
    """The batch of a key, made without a feeder; None where the virtual worker has no sample."""
    request = request_for(key)
    return RequestedBatches(Augmented(ORDER.samples), as_list).__getitems__(
        request if request.indices else None
    )


def keys_of(
    epoch: int, steps: range, vranks: VrankRange, *, without_empty: bool = True
) -> list[BatchKey | None]:
    return [
        BatchKey(epoch, step, vrank)
        for step in steps
        for vrank in range(vranks.start, vranks.stop)
        if ORDER.positions(epoch, step, vrank) or not without_empty
    ]


@pytest.mark.parametrize("depth", [0, 1, 3, 9])
def test_two_epochs_give_the_expected_batches_and_ask_for_each_once(depth: int) -> None:
    bench = Bench(depth=depth)
    bench.feeder.end_after(2)
    bench.feeder.schedule(0, 0, ALL)
    for epoch in range(2):
        for step in range(ORDER.steps_per_epoch):
            bench.fetch_step(epoch, step, ALL)
    wanted = keys_of(0, range(4), ALL) + keys_of(1, range(4), ALL)
    assert bench.requested == wanted + [None] * depth


def test_batches_are_under_way_before_they_are_fetched_across_steps_and_epochs() -> None:
    bench = Bench(depth=6)
    bench.feeder.schedule(0, 2, VrankRange(1, 3))
    bench.fetch_step(0, 2, VrankRange(1, 3))
    own = VrankRange(1, 3)
    assert bench.requested == keys_of(0, range(2, 4), own) + keys_of(1, range(2), own)


def test_a_virtual_worker_without_samples_gets_no_batch_and_asks_for_none() -> None:
    bench = Bench(depth=0)
    bench.feeder.schedule(0, 3, ALL)
    assert bench.feeder.fetch(0, 3, 3) is None
    assert bench.requested == []


def test_a_promised_switch_makes_no_request_in_vain_and_none_late() -> None:
    bench = Bench(depth=4)
    before, after = VrankRange(0, 2), VrankRange(1, 4)
    bench.feeder.schedule(0, 0, before)
    bench.feeder.promise(0, 2, after)
    bench.fetch_step(0, 0, before)
    bench.fetch_step(0, 1, before)
    assert bench.requested[-4:] == [*keys_of(0, range(2, 3), after), BatchKey(0, 3, 1)]
    bench.fetch_step(0, 2, after)
    bench.feeder.schedule(0, 3, after)  # what the switch says anew changes nothing
    bench.fetch_step(0, 3, after)
    in_order = keys_of(0, range(2), before) + keys_of(0, range(2, 4), after) + keys_of(1, range(2), after)
    assert bench.requested == in_order[: len(bench.requested)]


def test_an_unannounced_switch_keeps_what_is_still_wanted_and_asks_for_what_is_missing_first() -> None:
    bench = Bench(depth=4)
    bench.feeder.schedule(0, 0, VrankRange(0, 2))
    bench.fetch_step(0, 0, VrankRange(0, 2))
    under_way = keys_of(0, range(1, 3), VrankRange(0, 2))
    bench.feeder.schedule(0, 1, VrankRange(1, 3))
    bench.fetch_step(0, 1, VrankRange(1, 3))
    bench.fetch_step(0, 2, VrankRange(1, 3))
    later = bench.requested[2 + len(under_way) :]
    assert later[0] == BatchKey(0, 1, 2)
    assert len(set(bench.requested)) == len(bench.requested)
    assert not set(later) & set(under_way)


def test_an_unannounced_fetch_is_followed_by_prefetching_from_there_and_drops_what_came_before() -> None:
    bench = Bench(depth=4)
    bench.feeder.schedule(0, 0, ALL)
    bench.fetch_step(0, 0, VrankRange(0, 1))
    assert bench.feeder.fetch(1, 1, 2) == expected(BatchKey(1, 1, 2))
    assert bench.feeder.waiting == 0
    assert bench.requested[5:] == [BatchKey(1, 1, 2), BatchKey(1, 1, 3), *keys_of(1, range(2, 3), ALL)[:3]]


def test_fetching_backwards_does_not_fill_the_memory() -> None:
    bench = Bench(depth=3)
    bench.feeder.schedule(0, 0, ALL)
    waiting = []
    for epoch in range(4, -1, -1):
        for step in range(ORDER.steps_per_epoch - 1, -1, -1):
            assert bench.feeder.fetch(epoch, step, 0) == expected(BatchKey(epoch, step, 0))
            waiting.append(bench.feeder.waiting)
    assert max(waiting) <= 2 * 3


def test_a_repeated_step_is_fetched_again() -> None:
    bench = Bench(depth=3)
    bench.feeder.schedule(0, 1, VrankRange(0, 3))
    bench.fetch_step(0, 1, VrankRange(0, 2))
    bench.feeder.schedule(0, 1, ALL)
    bench.fetch_step(0, 1, ALL)


def test_a_withdrawn_promise_leaves_the_old_virtual_workers() -> None:
    bench = Bench(depth=4)
    own = VrankRange(0, 2)
    bench.feeder.schedule(0, 0, own)
    bench.feeder.promise(0, 1, VrankRange(2, 4))
    bench.fetch_step(0, 0, own)
    bench.feeder.withdraw_promise()
    bench.fetch_step(0, 1, own)
    bench.fetch_step(0, 2, own)
    bench.fetch_step(0, 3, own)


def test_a_leaver_asks_for_nothing_beyond_its_last_step() -> None:
    bench = Bench(depth=4)
    own = VrankRange(0, 2)
    bench.feeder.schedule(0, 0, own)
    bench.feeder.promise(0, 2, VrankRange(0, 0))
    bench.fetch_step(0, 0, own)
    bench.fetch_step(0, 1, own)
    assert bench.requested == [*keys_of(0, range(2), own), None, None, None, None]


def test_processes_started_ahead_get_work_as_soon_as_there_is_a_schedule() -> None:
    bench = Bench(depth=3)
    bench.feeder.start()
    assert bench.requested == [None] * 3
    bench.feeder.schedule(0, 0, ALL)
    assert bench.requested[3:] == keys_of(0, range(1), ALL)[:3]


def test_a_close_between_two_batches_changes_no_batch() -> None:
    bench = Bench(depth=3)
    bench.feeder.schedule(0, 0, ALL)
    bench.fetch_step(0, 0, VrankRange(0, 2))
    bench.feeder.close()
    bench.fetch_step(0, 0, VrankRange(2, 4))
    bench.fetch_step(0, 1, ALL)


class Faulty(Augmented):
    """Sample 13 cannot be read until it is mended."""

    mended = False

    def __getitem__(self, index: int) -> Any:
        if index == 13 and not self.mended:
            raise OSError("sample 13 is gone")
        return super().__getitem__(index)


def key_of_sample_13() -> BatchKey:
    keys = [BatchKey(0, step, vrank) for step in range(4) for vrank in range(4)]
    return next(key for key in keys if 13 in request_for(key).indices)


@pytest.mark.parametrize("depth", [0, 16])
def test_an_error_comes_when_its_batch_is_fetched_not_when_it_is_prefetched(depth: int) -> None:
    dataset = Faulty(ORDER.samples)
    bench = Bench(depth=depth, dataset=dataset)
    bench.feeder.schedule(0, 0, ALL)
    bad = key_of_sample_13()
    for key in keys_of(0, range(4), ALL):
        assert key is not None
        if key == bad:
            with pytest.raises(OSError, match="sample 13 is gone"):
                bench.feeder.fetch(*key)
        else:
            assert bench.feeder.fetch(*key) == expected(key)


def test_a_batch_whose_fetch_failed_can_be_fetched_again() -> None:
    dataset = Faulty(ORDER.samples)
    bench = Bench(depth=2, dataset=dataset)
    bad = key_of_sample_13()
    bench.feeder.schedule(bad.epoch, bad.step, VrankRange(bad.vrank, bad.vrank + 1))
    with pytest.raises(OSError, match="sample 13 is gone"):
        bench.feeder.fetch(*bad)
    dataset.mended = True
    assert bench.feeder.fetch(*bad) == expected(bad)


class Interrupted(Augmented):
    """The first read is interrupted, like by Ctrl-C."""

    interrupted = False

    def __getitem__(self, index: int) -> Any:
        if not self.interrupted:
            self.interrupted = True
            raise KeyboardInterrupt
        return super().__getitem__(index)


def test_after_an_interrupted_fetch_keys_and_batches_still_match() -> None:
    bench = Bench(depth=3, dataset=Interrupted(ORDER.samples))
    bench.feeder.schedule(0, 0, ALL)
    with pytest.raises(KeyboardInterrupt):
        bench.feeder.fetch(0, 0, 0)
    bench.pipes[-1].close()  # as a pipe does that was interrupted
    bench.fetch_step(0, 0, ALL)


def test_a_data_set_of_another_length_than_the_order_s_is_refused() -> None:
    with pytest.raises(ConfigError, match="has 26 samples, but the data order was made for 27"):
        BatchFeeder(Augmented(26), ORDER, SEED, settings=FeedSettings())


def test_without_processes_the_default_pipe_gives_the_same_batches() -> None:
    settings = FeedSettings(shuffle=True, collate_fn=as_list, timeout_s=3.0)
    feeder = BatchFeeder(Augmented(ORDER.samples), ORDER, SEED, settings=settings)
    feeder.schedule(0, 0, ALL)
    keys = [BatchKey(epoch, step, vrank) for epoch in range(2) for step in range(4) for vrank in range(4)]
    assert [feeder.fetch(*key) for key in keys] == [expected(key) for key in keys]
    feeder.close()
    assert feeder.fetch(*keys[5]) == expected(keys[5])


def test_tensors_of_a_whole_epoch_are_the_data_set_once() -> None:
    order = DataOrder(samples=23, virtual_workers=3, batch_size=4, tail=Tail.EXACT)
    dataset = torch.utils.data.TensorDataset(torch.arange(23))
    feeder = BatchFeeder(dataset, order, 0, settings=FeedSettings(shuffle=True))
    batches = [feeder.fetch(0, step, vrank) for step in range(order.steps_per_epoch) for vrank in range(3)]
    seen = [index for batch in batches if batch is not None for index in batch[0].tolist()]
    assert sorted(seen) == list(range(23))


@pytest.mark.parametrize("depth", [0, 1, 3, 9])
def test_after_a_new_cut_no_batch_of_the_old_one_is_taken_for_one_of_the_new(depth: int) -> None:
    bench = Bench(depth=depth)
    bench.feeder.end_after(2)
    bench.feeder.schedule(0, 0, ALL)
    bench.fetch_step(0, 0, ALL)
    for _ in range(2):  # the step is begun, given up, begun again: what came meanwhile waits; and given up
        bench.fetch_step(0, 1, VrankRange(0, 2))
        bench.feeder.schedule(0, 1, ALL)
    bench.fetch_step(0, 1, VrankRange(0, 1))
    cut = DataOrder(
        samples=27, virtual_workers=3, batch_size=4, global_batch=10, since=Place(epoch=0, step=1, trained=8)
    )
    bench.feeder.recut(cut)
    bench.feeder.schedule(0, 1, VrankRange(0, 3))
    orders = EpochOrders(ORDER.samples, SEED, shuffle=True)
    for epoch, steps in ((0, range(1, 3)), (1, range(3))):
        for step in steps:
            for vrank in range(3):
                indices = orders.indices(epoch, cut.positions(epoch, step, vrank))
                request = FetchRequest(compute_batch_seed(SEED, epoch, step, vrank), indices)
                fresh = RequestedBatches(Augmented(27), as_list).__getitems__(request)
                assert bench.feeder.fetch(epoch, step, vrank) == fresh
                assert bench.feeder.waiting <= 2 * depth
    assert bench.feeder.waiting == 0


def test_opening_a_feeder_and_starting_it_draws_no_random_number() -> None:
    states = torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1].tolist()
    feeder = BatchFeeder(Augmented(27), ORDER, SEED, settings=FeedSettings(shuffle=True))
    feeder.start()
    feeder.close()
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (random.getstate(), numpy.random.get_state()[1].tolist()) == states[1:]


places = st.tuples(st.integers(0, 3), st.integers(0, 3))
ranges = st.tuples(st.integers(0, 4), st.integers(0, 4)).map(lambda pair: VrankRange(min(pair), max(pair)))
operations = st.one_of(
    st.tuples(st.just("schedule"), places, ranges),
    st.tuples(st.just("promise"), places, ranges),
    st.tuples(st.just("withdraw_promise")),
    st.tuples(st.just("end_after"), st.integers(0, 4)),
    st.tuples(st.just("start")),
    st.tuples(st.just("close")),
    st.tuples(st.just("fetch"), places, st.integers(0, 3)),
    st.tuples(st.just("follow"), st.integers(1, 12)),
)


@given(st.integers(0, 5), st.lists(operations, max_size=25))
def test_no_schedule_whatever_changes_a_batch_or_fills_the_memory(
    depth: int, script: list[tuple[Any, ...]]
) -> None:
    bench = Bench(depth=depth)
    plan_from: tuple[int, int] = (0, 0)
    own = ALL
    for name, *args in script:
        if name == "fetch":
            key = BatchKey(*args[0], args[1])
            assert bench.feeder.fetch(*key) == expected(key)
        elif name == "follow":
            keys = [BatchKey(*plan_from, vrank) for vrank in range(own.start, own.stop)][: args[0]]
            assert [bench.feeder.fetch(*key) for key in keys] == [expected(key) for key in keys]
        elif name in ("schedule", "promise"):
            plan_from, own = args
            getattr(bench.feeder, name)(*plan_from, own)
        else:
            getattr(bench.feeder, name)(*args)
        assert bench.feeder.waiting <= 2 * depth
