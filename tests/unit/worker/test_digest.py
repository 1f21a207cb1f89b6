"""Digests tell apart every bit of a state, and nothing but its bits."""

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from replicas import CPU, Replica, make_replica, sgd
from torch import Tensor, nn
from torch.optim import lr_scheduler

from elastane.worker.digest import compare_digests, compute_digest, compute_digests, model_digest
from elastane.worker.state import CapturedState, JobState


def digest_of(values: object) -> str:
    from elastane.worker.skeleton import TensorSplitter

    splitter = TensorSplitter()
    skeleton = {"registered/x": splitter.split(values, "registered/x")}
    state = CapturedState(step=0, epoch=0, device_type="cpu", skeleton=skeleton, tensors=splitter.tensors)
    return compute_digest(state)


def nan_with_payload(payload: int) -> Tensor:
    return torch.tensor([0x7FC00000 | payload], dtype=torch.int32).view(torch.float32)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (torch.tensor([0.0]), torch.tensor([-0.0])),
        (0.0, -0.0),
        (nan_with_payload(1), nan_with_payload(2)),
        (torch.zeros(2, 3), torch.zeros(3, 2)),
        (torch.zeros(2), torch.zeros(2, dtype=torch.int32)),
        (torch.zeros(0), torch.zeros(0, 1)),
        (1, 1.0),
        (True, 1),
        ([], ()),
        ({"a": 1}, {"b": 1}),
        ({"a": {"b": 1}}, {"a": {"b": 2}}),
        (["ab", "c"], ["a", "bc"]),
        (None, []),
    ],
)
def test_different_states_have_different_digests(one: object, other: object) -> None:
    assert digest_of([one]) != digest_of([other])


IMAGES = torch.randn(2, 3, 4, 5)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (IMAGES, IMAGES.to(memory_format=torch.channels_last)),
        (IMAGES[:, ::2], IMAGES[:, ::2].clone()),
        (torch.ones(1).expand(5), torch.ones(5)),
        (torch.ones(2, dtype=torch.complex64).conj(), torch.ones(2, dtype=torch.complex64).conj().clone()),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({1, 2, 3}, {3, 2, 1}),
        (nan_with_payload(1), nan_with_payload(1)),
        (torch.device("cpu"), torch.device("cuda:3")),
    ],
)
def test_equal_states_have_equal_digests(one: object, other: object) -> None:
    assert digest_of([one]) == digest_of([other])


def test_sharing_memory_is_no_difference() -> None:
    shared = torch.ones(3)
    assert digest_of([shared, shared]) == digest_of([shared, shared.clone()])


def flip_weight(replica: Replica) -> None:
    with torch.no_grad():
        replica.net.get_parameter("encode.weight").view(torch.int32)[0, 0] ^= 1


def flip_hidden_buffer(replica: Replica) -> None:
    replica.net.get_buffer("hidden").view(torch.int32)[2] ^= 1


def flip_momentum(replica: Replica) -> None:
    parameter = replica.net.get_parameter("conv.bias")
    replica.optimizer.state[parameter]["momentum_buffer"].view(torch.int32)[1] ^= 1


def change_rate(replica: Replica) -> None:
    replica.optimizer.param_groups[1]["lr"] *= 1 + 2**-52


def skip_scheduler_step(replica: Replica) -> None:
    replica.scheduler.last_epoch -= 1


def count_step(replica: Replica) -> None:
    replica.state.step += 1


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (flip_weight, "model/parameters/encode.weight"),
        (flip_hidden_buffer, "model/buffers/hidden"),
        (flip_momentum, "optimizer/state/4/momentum_buffer"),
        (change_rate, "optimizer/param_groups/1/lr"),
        (skip_scheduler_step, "scheduler/last_epoch"),
        (count_step, "step"),
    ],
)
def test_the_first_difference_is_named(change: Callable[[Replica], None], name: str) -> None:
    one, other = (make_replica(1, sgd, lambda o: lr_scheduler.ExponentialLR(o, 0.9)) for _ in range(2))
    one.train(3)
    other.train(3)
    own = compute_digests(one.state.capture())
    assert compare_digests(own, compute_digests(other.state.capture())) is None

    change(other)

    assert compare_digests(own, compute_digests(other.state.capture())) == name
    assert one.digest() != other.digest()


def test_the_model_comes_before_what_follows_from_it() -> None:
    one, other = make_replica(1), make_replica(1)
    one.train(1)
    other.train(1)
    for change in (count_step, change_rate, flip_momentum, flip_weight):
        change(other)
    digests = [compute_digests(replica.state.capture()) for replica in (one, other)]
    assert compare_digests(*digests) == "model/parameters/encode.weight"


def test_what_only_the_other_has_is_a_difference() -> None:
    assert compare_digests({"a": "1"}, {"a": "1", "b": "2"}) == "b"
    assert compare_digests({"a": "1", "b": "2"}, {"a": "1"}) == "b"
    assert compare_digests({}, {}) is None


def test_a_worker_that_has_just_evaluated_is_no_other() -> None:
    replica = make_replica(1)
    before = replica.digest()
    replica.net.eval()
    assert replica.digest() == before


def test_a_model_digest_is_that_of_the_model_alone() -> None:
    one, other = make_replica(1), make_replica(1)
    other.net.get_buffer("norm.running_mean").add_(1)
    assert model_digest(one.net) == model_digest(other.net)
    assert model_digest(one.net, buffers=True) != model_digest(other.net, buffers=True)
    flip_weight(other)
    assert model_digest(one.net) != model_digest(other.net)


def test_digests_do_not_depend_on_the_hash_seed() -> None:
    script = (
        "import torch\n"
        "from elastane.worker.digest import compute_digest\n"
        "from elastane.worker.state import JobState\n"
        "torch.manual_seed(0)\n"
        "state = JobState(device=torch.device('cpu'), models=[torch.nn.Linear(2, 2)])\n"
        "class Names:\n"
        "    def state_dict(self): return {'names': {'a', 'b', 'c', 'dd', 'ee'}}\n"
        "    def load_state_dict(self, state_dict): pass\n"
        "state.register('names', Names())\n"
        "print(compute_digest(state.capture()))\n"
    )

    def run(hash_seed: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    assert run("1") == run("2")


def test_a_digest_is_the_same_in_every_version() -> None:
    """Digests are compared between processes and written into logs: changing one is changing a format."""
    net = nn.Linear(1, 1)
    with torch.no_grad():
        net.weight.fill_(1.0)
        net.bias.fill_(2.0)
    state = JobState(device=CPU, models=[net], step=3)
    assert model_digest(net)[:16] == "99d9ed821d6935a8"
    assert compute_digest(state.capture())[:16] == "f75d2d9a0641321e"
