"""Scripts that build other models than the job's are told the first difference."""

import re
from collections.abc import Callable, Sequence

import pytest
import torch
from replicas import CPU, make_replica
from torch import nn
from torch.optim import SGD, Adam, Optimizer, lr_scheduler

from elastane.model.errors import ModelMismatchError, UnsupportedModelError
from elastane.model.records import ModelSignature
from elastane.worker.signature import check_signature, check_supported, compute_signature
from elastane.worker.state import JobState


def small(*modules: nn.Module, optimizers: Sequence[Optimizer] = (), device: torch.device = CPU) -> JobState:
    return JobState(device=device, models=[nn.Sequential(*modules)], optimizers=optimizers)


def test_a_signature_describes_parameters_buffers_and_optimizers() -> None:
    replica = make_replica(1, make_scheduler=lambda o: lr_scheduler.ExponentialLR(o, 0.9))
    assert compute_signature(replica.state, 8) == ModelSignature(
        virtual_workers=8,
        entries=(
            ("conv.weight", "float32 [3, 2, 3, 3] in memory order [0, 2, 3, 1]"),
            ("conv.bias", "float32 [3]"),
            ("norm.weight", "float32 [3]"),
            ("norm.bias", "float32 [3]"),
            ("encode.weight", "float32 [4, 12]"),
            ("encode.bias", "float32 [4]"),
            ("decode.weight", "float32 [4, 4]"),
            ("decode.bias", "float32 [4]"),
            ("hidden", "buffer float32 [3]"),
            ("grows", "buffer None"),
            ("norm.running_mean", "buffer float32 [3]"),
            ("norm.running_var", "buffer float32 [3]"),
            ("norm.num_batches_tracked", "buffer int64 []"),
            ("optimizer", "SGD with groups of 4, 4 parameters"),
            ("scheduler", "ExponentialLR"),
        ),
    )


def test_models_are_told_apart() -> None:
    state = JobState(device=CPU, models=[nn.Linear(1, 1), nn.Linear(2, 1)])
    assert [name for name, _ in compute_signature(state, 2).entries] == [
        "weight",
        "bias",
        "model2/weight",
        "model2/bias",
    ]


def test_equal_scripts_have_equal_signatures_whatever_the_seed_and_step() -> None:
    one, other = make_replica(1), make_replica(2)
    check_signature(compute_signature(one.state, 8), compute_signature(other.state, 8))


@pytest.mark.parametrize(
    ("own", "other", "told"),
    [
        (small(nn.Linear(2, 3)), small(nn.Linear(2, 4)), "0.weight is float32 [3, 2] in this worker and "),
        (small(nn.Linear(2, 3)), small(nn.Linear(2, 3, bias=False)), "and absent in the job"),
        (small(nn.Linear(2, 3)), small(nn.Linear(2, 3), nn.PReLU()), "1.weight is absent in this worker"),
        (small(nn.Linear(2, 3).double()), small(nn.Linear(2, 3)), "0.weight is float64"),
        (small(nn.BatchNorm1d(2)), small(nn.InstanceNorm1d(2, affine=True)), "0.running_mean is buffer"),
    ],
)
def test_the_first_difference_is_told(own: JobState, other: JobState, told: str) -> None:
    with pytest.raises(ModelMismatchError, match=re.escape(told)):
        check_signature(compute_signature(own, 8), compute_signature(other, 8))


@pytest.mark.parametrize(
    ("make_optimizer", "groups", "told"),
    [
        (Adam, 2, "optimizer is Adam with groups of 4, 4 parameters"),
        (lambda groups: SGD(groups, lr=0.1), 1, "optimizer is SGD with groups of 8 parameters"),
    ],
)
def test_other_optimizers_are_told(make_optimizer: Callable[..., Optimizer], groups: int, told: str) -> None:
    own = make_replica(1, make_optimizer, groups=groups)
    with pytest.raises(ModelMismatchError, match=told):
        check_signature(compute_signature(own.state, 8), compute_signature(make_replica(1).state, 8))


def test_another_number_of_virtual_workers_is_told_first() -> None:
    one, other = small(nn.Linear(1, 1)), small(nn.Linear(2, 2))
    with pytest.raises(ModelMismatchError, match="has 4 virtual workers, the job 8"):
        check_signature(compute_signature(one, 4), compute_signature(other, 8))


def test_another_batch_policy_is_told_first() -> None:
    state = small(nn.Linear(1, 1))
    own, other = compute_signature(state, 64, "FixedGlobal(64)"), compute_signature(state, 8)
    told = "this worker has the batch policy FixedGlobal(64), the job 8 virtual workers and no batch policy"
    with pytest.raises(ModelMismatchError, match=re.escape(told)):
        check_signature(own, other)


def test_another_order_is_told() -> None:
    own = ModelSignature(virtual_workers=2, entries=(("a", "x"), ("b", "y")))
    other = ModelSignature(virtual_workers=2, entries=(("b", "y"), ("a", "x")))
    with pytest.raises(ModelMismatchError, match="in another order"):
        check_signature(own, other)


def test_a_usual_model_is_supported() -> None:
    check_supported(make_replica(1).state, 8)


def test_sync_batch_norm_needs_a_single_virtual_worker() -> None:
    state = small(nn.Conv2d(1, 2, 3), nn.SyncBatchNorm(2))
    check_supported(state, 1)
    with pytest.raises(UnsupportedModelError, match=r"model/1 is a SyncBatchNorm.*all 2 virtual workers"):
        check_supported(state, 2)


def test_a_wrapped_model_is_refused() -> None:
    class Wrapped(nn.parallel.DistributedDataParallel):
        def __init__(self) -> None:
            nn.Module.__init__(self)

    with pytest.raises(UnsupportedModelError, match="model is wrapped in DistributedDataParallel"):
        check_supported(JobState(device=CPU, models=[Wrapped()]), 2)


def test_parameters_elsewhere_than_the_job_are_refused() -> None:
    with pytest.raises(UnsupportedModelError, match=r"model/0.weight is on cpu, the job's device is cuda:1"):
        check_supported(small(nn.Linear(1, 1), device=torch.device("cuda", 1)), 2)


def test_tensors_without_bytes_of_their_own_are_refused() -> None:
    with pytest.raises(UnsupportedModelError, match=r"model/0.weight is a Parameter .* meta"):
        check_supported(small(nn.Linear(1, 1, device="meta")), 2)


def test_parameters_that_only_the_optimizer_knows_are_refused() -> None:
    net, stray = nn.Linear(1, 1), nn.Parameter(torch.zeros(5, 7))
    state = small(net, optimizers=[SGD([*net.parameters(), stray], lr=0.1)])
    with pytest.raises(UnsupportedModelError, match=r"1 parameters of group 0 .* shape \[5, 7\]"):
        check_supported(state, 2)
