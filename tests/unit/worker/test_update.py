import pytest
import torch
from torch import nn

from elastane.model.errors import UnsupportedModelError
from elastane.worker.update import Calls, Update


class Folding:
    """Stands for the trainer: says whether a loop body runs, and counts how often gradients are taken."""

    def __init__(self) -> None:
        self.in_body = True
        self.folds = 0

    def fold(self) -> None:
        self.folds += 1


def build(
    **settings: object,
) -> tuple[nn.Linear, torch.optim.SGD, torch.optim.lr_scheduler.LRScheduler, Update, Folding]:
    model = nn.Linear(2, 1)
    nn.init.ones_(model.weight)
    nn.init.zeros_(model.bias)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    update, folding = Update(model, [optimizer], [scheduler], **settings), Folding()
    update.attach(folding)
    return model, optimizer, scheduler, update, folding


def set_gradient(model: nn.Linear, value: float) -> None:
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, value)


def test_calls_in_the_loop_body_are_counted_and_change_nothing() -> None:
    model, optimizer, scheduler, update, folding = build()
    set_gradient(model, 1.0)
    update.begin_body()
    optimizer.step()
    scheduler.step()
    assert (update.counts(), folding.folds) == (Calls((1,), (1,)), 1)
    assert model.weight.tolist() == [[1.0, 1.0]]
    assert optimizer.param_groups[0]["lr"] == 1.0


def test_counting_begins_anew_with_every_body() -> None:
    _, optimizer, _, update, _ = build()
    update.begin_body()
    optimizer.step()
    update.begin_body()
    assert update.counts() == Calls((0,), (0,))


def test_the_commit_carries_out_what_was_counted_once() -> None:
    model, optimizer, _, update, _ = build()
    set_gradient(model, 0.25)
    update.apply((1,), (1,))
    assert model.weight.tolist() == [[0.75, 0.75]]
    assert optimizer.param_groups[0]["lr"] == 0.5


def test_a_scaled_learning_rate_is_used_in_the_step_and_seen_by_nobody_else() -> None:
    model, optimizer, scheduler, update, _ = build()
    set_gradient(model, 0.25)
    update.apply((1,), (1,), lr_scale=2.0)
    assert model.weight.tolist() == [[0.5, 0.5]]
    assert (optimizer.param_groups[0]["lr"], scheduler.get_last_lr()) == (0.5, [0.5])


def test_every_group_has_its_own_learning_rate_back_even_if_the_step_fails() -> None:
    model = nn.Linear(2, 1)
    groups = [{"params": [model.weight], "lr": 1.0}, {"params": [model.bias], "lr": torch.tensor(0.5)}]
    optimizer = torch.optim.SGD(groups)
    used: list[list[float]] = []

    def fail(*_: object) -> None:
        used.append([float(group["lr"]) for group in optimizer.param_groups])
        raise ValueError("no step")

    optimizer.register_step_pre_hook(fail)
    update = Update(model, [optimizer], [])
    update.attach(Folding())
    with pytest.raises(ValueError, match="no step"):
        update.apply((1,), (), lr_scale=4.0)
    assert used == [[4.0, 2.0]]
    assert [float(group["lr"]) for group in optimizer.param_groups] == [1.0, 0.5]


def test_an_optimizer_that_was_not_stepped_is_left_alone() -> None:
    model, _, _, update, _ = build()
    set_gradient(model, 0.25)
    update.apply((0,), (0,))
    assert model.weight.tolist() == [[1.0, 1.0]]


def test_a_scheduler_stepped_after_the_loop_steps_at_once() -> None:
    _, optimizer, scheduler, _, folding = build()
    folding.in_body = False
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.5


def test_a_schedulers_state_holds_no_function() -> None:
    _, _, scheduler, _, _ = build()
    assert "step" not in scheduler.state_dict()
    assert isinstance(scheduler, torch.optim.lr_scheduler.StepLR)


def test_the_reduced_gradient_is_clipped_and_seen_by_hooks_in_order() -> None:
    model, _, _, update, _ = build(clip_grad_norm=1.0)
    seen: list[tuple[str, float]] = []
    update.reduced_hooks.append(lambda: seen.append(("reduced", model.weight.grad.norm().item())))
    update.commit_hooks.append(lambda: seen.append(("commit", model.weight.grad.norm().item())))
    set_gradient(model, 100.0)
    update.apply((1,), (1,))
    names = [name for name, _ in seen]
    assert names == ["reduced", "commit"]
    assert seen[0][1] > 100
    assert seen[1][1] <= 1


def test_a_scaled_gradient_is_unscaled_once_and_a_bad_one_skips_the_step() -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=1000)
    model, optimizer, _, update, folding = build(grad_scaler=scaler)
    loss = scaler.scale(model(torch.ones(1, 2)).sum())
    loss.backward()
    update.begin_body()
    scaler.step(optimizer)
    scaler.update()
    assert folding.folds == 1
    update.apply(*update.counts())
    assert model.weight.tolist() == [[0.0, 0.0]]
    set_gradient(model, float("inf"))
    update.apply((1,), (0,))
    assert model.weight.tolist() == [[0.0, 0.0]]
    assert scaler.get_scale() == 4.0


def test_what_cannot_be_split_over_virtual_workers_is_refused() -> None:
    scaler = torch.amp.GradScaler("cpu")
    _, optimizer, scheduler, _, folding = build(grad_scaler=scaler)
    with pytest.raises(UnsupportedModelError, match="closure"):
        optimizer.step(lambda: 0.0)
    with pytest.raises(UnsupportedModelError, match="clip_grad_norm"):
        scaler.unscale_(optimizer)
    with pytest.raises(UnsupportedModelError, match="after the loop"):
        scheduler.step(3)
    folding.in_body = False
    with pytest.raises(UnsupportedModelError, match="outside the loop"):
        optimizer.step()


@pytest.mark.parametrize(
    "batch",
    [(torch.ones(3, 2), torch.ones(3)), torch.ones(3, 2), {"input": torch.ones(3, 2)}, [torch.ones(3, 2)]],
)
def test_a_rehearsal_guesses_how_the_model_takes_a_batch(batch: object) -> None:
    model, _, _, update, folding = build()
    update.rehearse_body(batch)
    assert folding.folds == 0
    assert model.weight.grad.tolist() == [[3.0, 3.0]]
    update.rehearse_step()
    assert model.weight.tolist() == [[-2.0, -2.0]]


def test_a_rehearsal_uses_the_given_loss() -> None:
    seen = []
    _, _, _, update, _ = build(
        warm_up=lambda model, batch: seen.append(batch) or model(torch.ones(1, 2)).sum()
    )
    update.rehearse_body("a batch")
    assert seen == ["a batch"]


def test_a_rehearsal_says_when_a_model_gives_nothing_to_differentiate() -> None:
    model = nn.Identity()
    parameter = nn.Parameter(torch.ones(1))
    update = Update(model, [torch.optim.SGD([parameter], lr=0.1)], [])
    update.attach(Folding())
    with pytest.raises(ValueError, match="requires a gradient"):
        update.rehearse_body(torch.ones(1))
