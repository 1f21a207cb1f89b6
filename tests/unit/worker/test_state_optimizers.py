"""A transferred replica goes on with the same bits, whatever optimizer and scheduler it trains with."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from replicas import OptimizerFactory, SchedulerFactory, make_replica, row_major_net, sgd, transfer
from torch.optim import Optimizer, lr_scheduler

OPTIMIZERS: dict[str, OptimizerFactory] = {
    "sgd without momentum": lambda g: torch.optim.SGD(g, lr=0.1),
    "sgd": sgd,
    "sgd nesterov": lambda g: torch.optim.SGD(g, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "sgd fused": lambda g: torch.optim.SGD(g, lr=0.1, momentum=0.9, fused=True),
    "adam": lambda g: torch.optim.Adam(g, lr=0.01),
    "adam amsgrad": lambda g: torch.optim.Adam(g, lr=0.01, amsgrad=True),
    "adam foreach": lambda g: torch.optim.Adam(g, lr=0.01, foreach=True),
    "adam fused": lambda g: torch.optim.Adam(g, lr=0.01, fused=True),
    "adam with a tensor rate": lambda g: torch.optim.Adam(g, lr=torch.tensor(0.01)),
    "adamw": lambda g: torch.optim.AdamW(g, lr=0.01, weight_decay=0.1),
    "adamax": lambda g: torch.optim.Adamax(g, lr=0.01),
    "nadam": lambda g: torch.optim.NAdam(g, lr=0.01),
    "radam": lambda g: torch.optim.RAdam(g, lr=0.01),
    "adagrad": lambda g: torch.optim.Adagrad(g, lr=0.01),
    "adadelta": lambda g: torch.optim.Adadelta(g, lr=0.1),
    "asgd": lambda g: torch.optim.ASGD(g, lr=0.01),
    "rmsprop": lambda g: torch.optim.RMSprop(g, lr=0.01, momentum=0.9, centered=True),
    "rprop": lambda g: torch.optim.Rprop(g, lr=0.01),
}

SCHEDULERS: dict[str, SchedulerFactory] = {
    "one cycle": lambda o: lr_scheduler.OneCycleLR(o, max_lr=0.2, total_steps=30),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=8),
    "warm restarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, T_0=3),
    "lambda": lambda o: lr_scheduler.LambdaLR(o, lambda step: 0.9**step),
    "multiplicative": lambda o: lr_scheduler.MultiplicativeLR(o, lambda _: 0.95),
    "step": lambda o: lr_scheduler.StepLR(o, step_size=3, gamma=0.5),
    "multi-step": lambda o: lr_scheduler.MultiStepLR(o, milestones=[3, 6, 6]),
    "cyclic": lambda o: lr_scheduler.CyclicLR(o, base_lr=0.01, max_lr=0.1, step_size_up=3),
    "plateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=1, factor=0.5),
    "sequential": lambda o: lr_scheduler.SequentialLR(
        o,
        [lr_scheduler.LinearLR(o, 0.1, total_iters=4), lr_scheduler.ExponentialLR(o, 0.9)],
        milestones=[4],
    ),
    "chained": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(o, 0.5, total_iters=4), lr_scheduler.ExponentialLR(o, 0.9)]
    ),
    "swa": lambda o: torch.optim.swa_utils.SWALR(o, swa_lr=0.01, anneal_epochs=5),
}


def lbfgs(groups: Sequence[dict[str, Any]]) -> Optimizer:
    return torch.optim.LBFGS(groups[0]["params"], lr=0.1, max_iter=3, history_size=4)


@pytest.mark.parametrize("warm_steps", [0, 2], ids=["new", "warmed up"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_goes_on_bit_identically_with_every_optimizer(name: str, warm_steps: int) -> None:
    one, other = make_replica(1, OPTIMIZERS[name]), make_replica(2, OPTIMIZERS[name])
    one.train(5)
    other.train(warm_steps)

    outcomes, _ = transfer([one], [other])

    assert outcomes == [None, None]
    assert (other.state.step, other.digest()) == (5, one.digest())
    one.train(5)
    other.train(5)
    assert other.digest() == one.digest()


@pytest.mark.parametrize("name", SCHEDULERS)
def test_training_goes_on_bit_identically_with_every_scheduler(name: str) -> None:
    one, other = make_replica(1, sgd, SCHEDULERS[name]), make_replica(2, sgd, SCHEDULERS[name])
    one.train(5)
    other.train(2)

    assert transfer([one], [other])[0] == [None, None]

    assert other.digest() == one.digest()
    one.train(5)
    other.train(5)
    assert other.digest() == one.digest()
    assert one.optimizer.param_groups[0]["lr"] == other.optimizer.param_groups[0]["lr"]


@pytest.mark.parametrize("warm_steps", [0, 1, 7])
def test_training_goes_on_bit_identically_with_lbfgs(warm_steps: int) -> None:
    one, other = (make_replica(seed, lbfgs, groups=1, make_net=row_major_net) for seed in (1, 2))
    one.train(5)
    other.train(warm_steps)

    assert transfer([one], [other])[0] == [None, None]

    one.train(5)
    other.train(5)
    assert other.digest() == one.digest()


def test_a_rate_that_user_code_changed_travels() -> None:
    one, other = make_replica(1), make_replica(2)
    one.train(2)
    one.optimizer.param_groups[1]["lr"] = 0.025

    transfer([one], [other])

    assert [group["lr"] for group in other.optimizer.param_groups] == [0.1, 0.025]


def test_state_in_another_precision_than_its_parameter_is_not_cast() -> None:
    one, other = make_replica(1), make_replica(2)
    one.train(2)
    parameter = one.optimizer.param_groups[0]["params"][0]
    exact = torch.full_like(parameter, 1 / 3, dtype=torch.float64)
    one.optimizer.state[parameter]["exact"] = exact

    transfer([one], [other])

    received = other.optimizer.state[other.optimizer.param_groups[0]["params"][0]]["exact"]
    assert received.dtype == torch.float64
    assert torch.equal(received, exact)


def test_tensors_that_exist_already_are_received_into() -> None:
    one = make_replica(1, OPTIMIZERS["adam with a tensor rate"])
    other = make_replica(2, OPTIMIZERS["adam with a tensor rate"])
    one.train(3)
    other.train(1)
    before = {name: t.data_ptr() for name, t in other.state.capture().tensors.items()}
    del before["model/buffers/grows"]  # another length by now
    groups = [id(group) for group in other.optimizer.param_groups]

    transfer([one], [other])

    after = {name: t.data_ptr() for name, t in other.state.capture().tensors.items()}
    assert {name: after[name] for name in before} == before
    assert [id(group) for group in other.optimizer.param_groups] == groups


def test_an_optimizer_with_its_own_loading_uses_it() -> None:
    class Own(torch.optim.SGD):
        loads = 0

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            self.loads += 1
            super().load_state_dict(state_dict)

    one, other = make_replica(1, lambda g: Own(g, lr=0.1)), make_replica(2, lambda g: Own(g, lr=0.1))
    one.train(2)

    transfer([one], [other])

    assert isinstance(other.optimizer, Own)
    assert other.optimizer.loads == 1
    assert other.digest() == one.digest()
