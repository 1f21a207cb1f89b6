"""What the reducer asks of its caller and of the model."""

import pytest
import torch
from reduction import Job, Worker
from torch import nn

import elastane.worker.reducer
from elastane.model.errors import UnsupportedModelError
from elastane.model.topology import VrankRange
from elastane.worker.reducer import GradientReducer

ALONE = (VrankRange(0, 1),)


def entered(model: nn.Module, *, overlap: bool = True) -> GradientReducer:
    reducer = GradientReducer(model, overlap=overlap)
    reducer.enter(ALONE, 0, None)
    return reducer


def backward(model: nn.Module) -> None:
    model(torch.ones(2, 3)).sum().backward()


def test_a_sparse_gradient_is_refused_by_name() -> None:
    model = nn.Sequential(nn.Embedding(5, 3, sparse=True), nn.Linear(3, 1))
    reducer = entered(model)
    reducer.begin_vrank(0, total_weight=1.0)
    model(torch.tensor([1, 2])).sum().backward()
    with pytest.raises(UnsupportedModelError, match=r"parameter '0.weight' has a sparse gradient"):
        reducer.end_vrank()


def test_two_backward_passes_per_batch_are_refused_when_hooks_fold_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(elastane.worker.reducer, "SMALL_BYTES", 0)
    model = nn.Linear(3, 1)
    reducer = entered(model)
    reducer.begin_vrank(0, total_weight=1.0)
    backward(model)
    with pytest.raises(UnsupportedModelError, match=r"pass overlap=False"):
        backward(model)


@pytest.mark.parametrize("small_bytes", [0, 1 << 20])
def test_two_backward_passes_per_batch_add_up_without_overlap(
    small_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elastane.worker.reducer, "SMALL_BYTES", small_bytes)
    model = nn.Linear(3, 1)
    reducer = entered(model, overlap=False)
    reducer.begin_vrank(0, total_weight=1.0)
    backward(model)
    backward(model)
    reducer.end_vrank()
    reducer.finish()
    assert model.weight.grad is not None
    assert torch.equal(model.weight.grad, torch.full((1, 3), 4.0))


def test_a_backward_pass_outside_the_loop_is_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elastane.worker.reducer, "SMALL_BYTES", 0)
    model = nn.Linear(3, 1)
    entered(model)
    backward(model)
    backward(model)
    assert model.weight.grad is not None
    assert torch.equal(model.weight.grad, torch.full((1, 3), 4.0))


def test_gradients_of_the_last_step_do_not_leak_into_the_next_without_zero_grad() -> None:
    model = nn.Linear(3, 1)
    reducer = entered(model)
    for _ in range(2):
        reducer.begin_vrank(0, total_weight=1.0)
        backward(model)
        reducer.end_vrank()
        reducer.finish()
    assert model.weight.grad is not None
    assert torch.equal(model.weight.grad, torch.full((1, 3), 2.0))


def test_zeroing_gradients_in_place_between_virtual_workers_spoils_nothing() -> None:
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    reducer = GradientReducer(model)
    reducer.enter((VrankRange(0, 2),), 0, None)
    for vrank in range(2):
        reducer.begin_vrank(vrank, total_weight=2.0)
        backward(model)
        reducer.end_vrank()
        if vrank == 0:
            optimizer.zero_grad(set_to_none=False)
    reducer.finish()
    assert model.weight.grad is not None
    assert torch.equal(model.weight.grad, torch.full((1, 3), 2.0))


def test_frozen_parameters_are_left_alone() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    model[0].requires_grad_(False)
    reducer = entered(model)
    reducer.begin_vrank(0, total_weight=1.0)
    backward(model)
    reducer.end_vrank()
    reducer.finish()
    assert model[0].weight.grad is None
    assert model[1].weight.grad is not None


def test_a_model_without_trainable_parameters_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="nothing to train"):
        GradientReducer(nn.ReLU())


def test_a_model_on_two_devices_is_refused() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1, device="meta"))
    with pytest.raises(UnsupportedModelError, match=r"'0.weight' is on cpu and '1.weight' on meta"):
        GradientReducer(model)


def test_gradients_keep_the_strides_of_their_parameters() -> None:
    model = nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)
    reducer = GradientReducer(model)
    reducer.enter((VrankRange(0, 2),), 0, None)
    for vrank in range(2):
        reducer.begin_vrank(vrank, total_weight=2.0)
        model(torch.ones(1, 3, 4, 4).to(memory_format=torch.channels_last)).sum().backward()
        reducer.end_vrank()
    reducer.finish()
    assert model.weight.grad is not None
    assert model.weight.grad.stride() == model.weight.stride()


def test_calls_out_of_order_are_our_own_mistake() -> None:
    reducer = GradientReducer(nn.Linear(3, 1))
    reducer.enter((VrankRange(0, 2),), 0, None)
    with pytest.raises(AssertionError, match="vrank 1 begun, 0"):
        reducer.begin_vrank(1, total_weight=2.0)
    with pytest.raises(AssertionError, match="without begin_vrank"):
        reducer.end_vrank()
    with pytest.raises(AssertionError, match="while virtual worker 0 is due"):
        reducer.finish()
    reducer.begin_vrank(0, total_weight=2.0)
    with pytest.raises(AssertionError, match="in the middle of a step"):
        reducer.enter((VrankRange(0, 2),), 0, None)


def test_a_warm_up_batch_that_is_discarded_leaves_no_trace() -> None:
    job = Job(virtual_workers=2)
    warm, cold = Worker(job), Worker(job)
    warm.reducer.enter((VrankRange(0, 2),), 0, None)
    warm.reducer.begin_vrank(0, total_weight=2.0)
    warm.backward(0)
    warm.reducer.end_vrank()
    warm.reducer.discard()
    for worker in (warm, cold):
        worker.reducer.enter((VrankRange(0, 2),), 0, None)
        worker.train_step(VrankRange(0, 2))
    assert warm.digest() == cold.digest()


@pytest.mark.parametrize("small_bytes", [0, 1 << 20])
def test_a_virtual_worker_without_samples_adds_zeros_whatever_its_gradient(
    small_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The mean over no samples is NaN; and a parameter that only such a virtual worker used has no gradient.
    monkeypatch.setattr(elastane.worker.reducer, "SMALL_BYTES", small_bytes)
    model = nn.Sequential(nn.Linear(3, 1), nn.Linear(1, 1))
    reducer = GradientReducer(model)
    reducer.enter((VrankRange(0, 2),), 0, None)
    reducer.begin_vrank(0, total_weight=1.0)
    backward(model[0])
    reducer.end_vrank()
    reducer.begin_vrank(1, weight=0.0, total_weight=1.0)
    model(torch.ones(0, 3)).mean().backward()
    reducer.end_vrank()
    reducer.finish()
    assert torch.equal(model[0].weight.grad, torch.full((1, 3), 2.0))
    assert model[1].weight.grad is None
