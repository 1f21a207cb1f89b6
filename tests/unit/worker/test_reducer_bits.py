"""The bits of a step do not depend on placement, number of workers, bucket size or transport."""

import copy
import itertools

import pytest
import torch
from fake_link import FakeNetwork
from reduction import Job, Worker, every_cut, make_net, run_workers, train
from torch import Tensor

import elastane.worker.reducer
from elastane.core.placement import plan_even
from elastane.core.tree import TreeFold, TreeNode
from elastane.model.topology import VrankRange
from elastane.worker.courier import Courier
from elastane.worker.reducer import GradientReducer

WEIGHTS = (1.0, 0.5, 0.0, 1.0, 0.25, 1.0, 1.0, 0.75, 0.1)


@pytest.fixture(params=["message", "buckets and hooks", "buckets, no hooks"])
def overlap(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Choose one of the three ways gradients take; the way must not matter."""
    if request.param != "message":
        monkeypatch.setattr(elastane.worker.reducer, "SMALL_BYTES", 0)
    return bool(request.param != "buckets, no hooks")


def tree_sum(values: list[Tensor]) -> Tensor:
    """Add along the tree with the plainest code: the definition that all the machinery must meet."""
    fold = TreeFold(len(values))
    stack: list[Tensor] = []
    for vrank, value in enumerate(values):
        stack.append(value)
        for _ in range(fold.push(TreeNode(0, vrank))):
            right = stack.pop()
            stack[-1] = stack[-1] + right
    return stack[0]


def reference_step(virtual_workers: int, weights: tuple[float, ...]) -> dict[str, Tensor | None]:
    """Return the reduced gradients of step 0, from one plain backward pass per virtual worker."""
    found: dict[str, list[Tensor | None]] = {}
    for vrank in range(virtual_workers):
        model = make_net()
        x = torch.randn(6, 7, generator=torch.Generator().manual_seed(vrank))
        model(x, vrank).square().mean().backward()
        for name, parameter in model.named_parameters():
            found.setdefault(name, []).append(parameter.grad)
    reduced: dict[str, Tensor | None] = {}
    for name, gradients in found.items():
        taken = [None if w == 0 or g is None else g * w for g, w in zip(gradients, weights, strict=True)]
        like = next((g for g in taken if g is not None), None)
        if like is None:
            reduced[name] = None
            continue
        total = tree_sum([torch.zeros_like(like) if g is None else g for g in taken])
        reduced[name] = total / sum(weights)
    return reduced


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("virtual_workers", [1, 2, 3, 4, 7, 9])
def test_the_gradient_is_the_tree_sum_over_the_weights(
    virtual_workers: int, weighted: bool, overlap: bool
) -> None:
    weights = WEIGHTS[:virtual_workers] if weighted else (1.0,) * virtual_workers
    worker = Worker(Job(virtual_workers=virtual_workers, weights=weights, overlap=overlap))
    worker.reducer.enter((VrankRange(0, virtual_workers),), 0, None)
    worker.train_step(VrankRange(0, virtual_workers))

    for name, expected in reference_step(virtual_workers, weights).items():
        gradient = worker.model.get_parameter(name).grad
        if expected is None:
            assert gradient is None, name
        else:
            assert gradient is not None, name
            assert torch.equal(gradient.view(torch.uint8), expected.view(torch.uint8)), name


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("virtual_workers", [2, 3, 4, 5, 6, 8, 9])
def test_even_placements_give_the_bits_of_one_worker(
    virtual_workers: int, weighted: bool, overlap: bool
) -> None:
    weights = WEIGHTS[:virtual_workers] if weighted else ()
    job = Job(virtual_workers=virtual_workers, weights=weights, overlap=overlap)
    placements = [plan_even(virtual_workers, workers) for workers in range(2, min(5, virtual_workers) + 1)]

    alone = train(job, [VrankRange(0, virtual_workers)])
    assert [train(job, ranges) for ranges in placements] == [alone] * len(placements)


@pytest.mark.parametrize(("virtual_workers", "workers"), [(5, 2), (5, 3), (7, 2), (6, 4)])
def test_uneven_placements_give_the_bits_of_one_worker(
    virtual_workers: int, workers: int, overlap: bool
) -> None:
    job = Job(virtual_workers=virtual_workers, weights=WEIGHTS[:virtual_workers], overlap=overlap)
    alone = train(job, [VrankRange(0, virtual_workers)])
    for ranges in every_cut(virtual_workers, workers):
        assert train(job, ranges) == alone, ranges


@pytest.mark.parametrize("bucket_bytes", [1, 100, 1_000_000])
def test_the_bucket_size_changes_no_bit(bucket_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elastane.worker.reducer, "SMALL_BYTES", 0)
    ranges = (VrankRange(0, 3), VrankRange(3, 4), VrankRange(4, 5))
    alone = train(Job(virtual_workers=5), [VrankRange(0, 5)])
    assert train(Job(virtual_workers=5, bucket_bytes=bucket_bytes), ranges) == alone


def test_a_job_that_grows_and_shrinks_every_step_gives_the_bits_of_one_worker(overlap: bool) -> None:
    job = Job(virtual_workers=5, overlap=overlap)
    alone = train(Job(virtual_workers=5, steps=6), [VrankRange(0, 5)])
    workers = [Worker(job) for _ in range(4)]
    for members in (1, 3, 2, 4, 1, 2):
        ranges = plan_even(5, members)

        def work(own: int, courier: Courier, ranges: tuple[VrankRange, ...] = ranges) -> None:
            workers[own].reducer.enter(ranges, own, courier if len(ranges) > 1 else None)
            workers[own].train_step(ranges[own])

        assert not run_workers(FakeNetwork(members), work)
        for idle in workers[members:]:  # as a joiner would: take the state of a worker that has it
            idle.model.load_state_dict(workers[0].model.state_dict())
            idle.optimizer.load_state_dict(copy.deepcopy(workers[0].optimizer.state_dict()))
            idle.reducer.buffers_changed()
            idle.step = workers[0].step
    assert {worker.digest() for worker in workers} == {alone}


def test_negative_zeros_survive_where_nothing_is_added() -> None:
    # Accumulating into a zeroed gradient would turn -0.0 into 0.0, and stock DDP does not do that.
    model = torch.nn.Linear(2, 1, bias=False)
    reducer = GradientReducer(model)
    reducer.enter((VrankRange(0, 2),), 0, None)
    for vrank in range(2):
        reducer.begin_vrank(vrank, total_weight=2.0)
        (model.weight * -0.0).sum().backward()
        reducer.end_vrank()
    reducer.finish()
    assert model.weight.grad is not None
    assert torch.signbit(model.weight.grad).all()


def count_exchanges(workers: int) -> tuple[set[int], dict[int, int]]:
    """Return how many exchanges each worker took for one step, and the bytes that each sent."""
    network = FakeNetwork(workers)
    ranges = plan_even(4, workers)

    def work(own: int, courier: Courier) -> None:
        worker = Worker(Job(virtual_workers=4, bucket_bytes=1 << 20))
        worker.reducer.enter(ranges, own, courier)
        worker.train_step(ranges[own])

    assert not run_workers(network, work)
    return {link.exchanges for link in network.links()}, dict(network.sent_bytes)


def test_a_small_model_takes_one_exchange_per_step() -> None:
    gradient_bytes = sum(p.nbytes for p in make_net().parameters())
    exchanges, sent_bytes = count_exchanges(4)
    assert exchanges == {1}
    assert all(3 * gradient_bytes < sent < 3 * (gradient_bytes + 4096) for sent in sent_bytes.values())


def test_a_large_model_sends_two_shares_of_every_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elastane.worker.reducer, "SMALL_BYTES", 0)
    gradient_bytes = sum(p.nbytes for p in make_net().parameters())
    exchanges, sent_bytes = count_exchanges(4)
    assert exchanges == {5}  # two dtypes, so two buckets with two exchanges each, and the message
    # Like a ring all-reduce: every worker sends 2 * (P - 1) / P of the gradient. The rest is the message.
    assert all(abs(sent - 1.5 * gradient_bytes) < 3 * 2048 for sent in sent_bytes.values())


def test_every_pair_of_placements_agrees_on_payload_order(overlap: bool) -> None:
    for workers in (2, 3, 4):
        ranges = plan_even(4, workers)
        seen: dict[int, list[bytes]] = {}

        def work(
            own: int,
            courier: Courier,
            ranges: tuple[VrankRange, ...] = ranges,
            seen: dict[int, list[bytes]] = seen,
        ) -> None:
            worker = Worker(Job(virtual_workers=4, overlap=overlap))
            worker.reducer.enter(ranges, own, courier)
            seen[own] = list(
                itertools.chain(
                    worker.train_step(ranges[own], b"%d" % own),
                    worker.train_step(ranges[own], b"%d" % own * 2000),  # does not fit the first round
                    worker.train_step(ranges[own], b""),
                )
            )

        assert not run_workers(FakeNetwork(workers), work)
        short = [b"%d" % peer for peer in range(workers)]
        expected = [*short, *(payload * 2000 for payload in short), *([b""] * workers)]
        assert seen == dict.fromkeys(range(workers), expected)
