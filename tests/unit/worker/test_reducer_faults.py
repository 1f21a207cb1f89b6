"""A peer that fails in any exchange costs the step in flight and leaves a reducer that can go on."""

import itertools

import pytest
import torch
from fake_link import FakeNetwork
from reduction import Job, Worker, digest, run_workers, train

import elastane.worker.reducer
from elastane.core.placement import plan_even
from elastane.model.errors import LinkBrokenError
from elastane.model.topology import VrankRange
from elastane.worker.courier import Courier

N = 4
STEPS = 2


@pytest.fixture(params=["message", "buckets"])
def exchanges_per_step(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Choose the transport; return how many exchanges a step of `Job(bucket_bytes=1 << 20)` has."""
    if request.param == "message":
        return 1
    monkeypatch.setattr(elastane.worker.reducer, "SMALL_BYTES", 0)
    return 5


def train_until_broken(worker: Worker, ranges: tuple[VrankRange, ...], own: int, courier: Courier) -> bool:
    """Train; tell whether the link broke, with the reducer then ready for `enter`."""
    worker.reducer.enter(ranges, own, courier)
    while worker.step < STEPS:
        before = digest(worker.model)
        try:
            worker.train_step(ranges[own])
        except LinkBrokenError:
            worker.reducer.discard()
            assert digest(worker.model) == before, "a lost step changed the model"
            assert all(parameter.grad is None for parameter in worker.model.parameters())
            return True
    return False


def test_survivors_of_a_fault_at_any_exchange_end_with_the_bits_of_an_unbroken_job(
    exchanges_per_step: int,
) -> None:
    expected = train(Job(virtual_workers=N, steps=STEPS), [VrankRange(0, N)])
    for victim, break_at in itertools.product(range(3), range(STEPS * exchanges_per_step)):
        job = Job(virtual_workers=N, bucket_bytes=1 << 20)
        workers = [Worker(job) for _ in range(3)]
        ranges = plan_even(N, 3)
        broken: dict[int, bool] = {}

        def until_broken(
            own: int,
            courier: Courier,
            workers: list[Worker] = workers,
            ranges: tuple[VrankRange, ...] = ranges,
            broken: dict[int, bool] = broken,
        ) -> None:
            broken[own] = train_until_broken(workers[own], ranges, own, courier)

        network = FakeNetwork(3, victim=victim, break_at=break_at)
        assert not run_workers(network, until_broken)
        assert broken[victim]

        survivors = [worker for own, worker in enumerate(workers) if own != victim]
        # Peers differ by one step at most; the one behind takes the state of the one ahead.
        ahead = max(survivors, key=lambda worker: worker.step)
        assert ahead.step - min(worker.step for worker in survivors) <= 1
        for worker in survivors:
            if worker.step < ahead.step:
                worker.model.load_state_dict(ahead.model.state_dict())
                state = ahead.optimizer.state_dict()
                copied = {
                    key: {"momentum_buffer": slot["momentum_buffer"].clone()}
                    for key, slot in state["state"].items()
                }
                worker.optimizer.load_state_dict({**state, "state": copied})
                worker.reducer.buffers_changed()
                worker.step = ahead.step
        pair = plan_even(N, 2)

        def to_the_end(
            own: int,
            courier: Courier,
            survivors: list[Worker] = survivors,
            pair: tuple[VrankRange, ...] = pair,
        ) -> None:
            assert not train_until_broken(survivors[own], pair, own, courier)

        assert not run_workers(FakeNetwork(2), to_the_end)
        assert {worker.digest() for worker in survivors} == {expected}, (victim, break_at)


def test_an_abandoned_courier_ends_the_step_in_end_vrank_at_the_latest() -> None:
    network = FakeNetwork(2)
    courier = Courier(network.links()[0])
    worker = Worker(Job(virtual_workers=2))
    worker.reducer.enter(plan_even(2, 2), 0, courier)
    worker.reducer.begin_vrank(0, total_weight=2.0)
    worker.backward(0)
    courier.abandon("its peer was declared dead")
    with pytest.raises(LinkBrokenError, match="its peer was declared dead"):
        worker.reducer.end_vrank()
    worker.reducer.discard()
    worker.reducer.enter((VrankRange(0, 2),), 0, None)
    worker.train_step(VrankRange(0, 2))


def test_discarding_with_buckets_in_flight_abandons_the_courier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elastane.worker.reducer, "SMALL_BYTES", 0)
    courier = Courier(FakeNetwork(2).links()[0])
    worker = Worker(Job(virtual_workers=2))
    worker.reducer.enter(plan_even(2, 2), 0, courier)
    worker.reducer.begin_vrank(0, total_weight=2.0)
    worker.backward(0)
    worker.reducer.end_vrank()  # the courier now waits for peer 1
    worker.reducer.discard()
    assert courier.broken
    assert courier.reason == "the step was discarded while its exchanges were in flight"


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("small_bytes", [0, 1 << 20])
def test_a_step_discarded_before_anything_was_sent_is_repeated_over_the_same_link(
    small_bytes: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elastane.worker.reducer, "SMALL_BYTES", small_bytes)
    ranges = (VrankRange(0, width), VrankRange(width, 2 * width))
    digests = []

    def work(own: int, courier: Courier) -> None:
        # The first bucket holds a parameter that is never used: only `end_vrank` would launch it.
        worker = Worker(Job(virtual_workers=2 * width, bucket_bytes=1 << 20))
        worker.reducer.enter(ranges, own, courier)
        first = ranges[own].start
        worker.reducer.begin_vrank(first, total_weight=2.0 * width)
        worker.backward(first)
        worker.reducer.discard()
        for _ in range(STEPS):
            worker.train_step(ranges[own])
        digests.append(worker.digest())

    assert not run_workers(FakeNetwork(2), work)
    assert digests == [train(Job(virtual_workers=2 * width, steps=STEPS), [VrankRange(0, 2 * width)])] * 2


def test_late_data_of_a_slow_peer_reach_no_tensor_that_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    # A frozen peer that wakes up after everybody left it behind writes into what its exchange was given.
    monkeypatch.setattr(elastane.worker.reducer, "SMALL_BYTES", 0)
    network = FakeNetwork(2)
    courier = Courier(network.links()[0])
    worker = Worker(Job(virtual_workers=2, bucket_bytes=1 << 20))
    worker.reducer.enter(plan_even(2, 2), 0, courier)
    worker.reducer.begin_vrank(0, total_weight=2.0)
    worker.backward(0)
    worker.reducer.end_vrank()  # the courier now waits for peer 1
    old = {flat.untyped_storage().data_ptr() for flat in worker.reducer._flats.values()}
    keep = list(worker.reducer._flats.values())
    courier.abandon("frozen")
    with pytest.raises(LinkBrokenError, match="frozen"):
        worker.reducer.finish()
    worker.reducer.discard()
    worker.reducer.enter(plan_even(2, 2), 0, Courier(FakeNetwork(2).links()[0]))
    new = {flat.untyped_storage().data_ptr() for flat in worker.reducer._flats.values()}
    assert new
    assert not new & old
    del keep


def test_buffers_of_a_discarded_step_are_put_back() -> None:
    worker = Worker(Job(virtual_workers=1))
    worker.reducer.enter((VrankRange(0, 1),), 0, None)
    before = {name: buffer.clone() for name, buffer in worker.model.named_buffers()}
    worker.reducer.begin_vrank(0, total_weight=1.0)
    worker.backward(0)
    worker.reducer.end_vrank()
    worker.reducer.discard()
    assert all(torch.equal(buffer, before[name]) for name, buffer in worker.model.named_buffers())
