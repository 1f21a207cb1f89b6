"""What belongs to a job's state, and that it is put in place without moving what user code holds."""

from collections import OrderedDict
from typing import Any

import pytest
import torch
from replicas import CPU, SmallNet, make_replica, sgd
from torch import Tensor, nn

from elastane.model.errors import ConfigError, ModelMismatchError, UnsupportedModelError
from elastane.worker.digest import compute_digest, compute_digests
from elastane.worker.layout import choose_device
from elastane.worker.state import CapturedState, JobState, find_targets


class Average:
    """Be an exponential moving average as users write them."""

    def __init__(self, value: float) -> None:
        self.value = torch.tensor([value])
        self.count = 0

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value, "count": self.count}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.value, self.count = state_dict["value"], state_dict["count"]


def test_capture_names_everything_that_decides_the_future() -> None:
    replica = make_replica(1)
    replica.train(1)
    replica.state.register("average", Average(3.0))

    captured = replica.state.capture()

    parameters = ["conv.weight", "conv.bias", "norm.weight", "norm.bias"]
    parameters += ["encode.weight", "encode.bias", "decode.weight", "decode.bias"]
    buffers = ["hidden", "grows", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"]
    assert list(captured.tensors) == [
        *(f"model/parameters/{name}" for name in parameters),
        *(f"model/buffers/{name}" for name in buffers),
        *(f"optimizer/state/{i}/momentum_buffer" for i in range(8)),
        "registered/average/value",
    ]
    assert (captured.step, captured.epoch, captured.device_type, captured.owned) == (1, 0, "cpu", False)
    assert captured.tensor_bytes == sum(t.nbytes for t in captured.tensors.values())


def test_capture_refers_to_the_live_tensors() -> None:
    replica = make_replica(1)

    captured = replica.state.capture()

    weight = captured.tensors["model/parameters/conv.weight"]
    assert weight.data_ptr() == replica.net.get_parameter("conv.weight").data_ptr()


def test_restoring_leaves_parameters_buffers_and_groups_where_they_are() -> None:
    one, other = make_replica(1), make_replica(2)
    one.train(3)
    held = other.net.get_parameter("decode.weight")
    running_mean = other.net.get_buffer("norm.running_mean")

    other.state.restore(one.state.capture())

    assert isinstance(other.net, SmallNet)
    assert held is other.net.decode.weight is other.net.tied.weight
    assert running_mean is other.net.get_buffer("norm.running_mean")
    assert torch.equal(held, one.net.get_parameter("decode.weight"))
    assert other.digest() == one.digest()


def test_a_restored_replica_shares_no_memory_with_the_other() -> None:
    one, other = make_replica(1), make_replica(2)
    for replica, value in ((one, 1.0), (other, 2.0)):
        replica.state.register("average", Average(value))
    one.train(3)

    other.state.restore(one.state.capture())
    before = one.digest()
    other.train(3)
    other.state.registered["average"].state_dict()["value"].add_(1)

    assert one.digest() == before


def test_restoring_ones_own_state_changes_nothing() -> None:
    replica = make_replica(1)
    replica.train(3)
    before = replica.digest()
    replica.state.restore(replica.state.capture())
    assert replica.digest() == before


def test_frozen_parameters_and_evaluating_modules_travel() -> None:
    one, other = make_replica(1), make_replica(2)
    one.net.get_parameter("conv.weight").requires_grad_(False)
    one.net.get_submodule("norm").eval()
    other.net.get_parameter("conv.bias").requires_grad_(False)
    one.train(2)

    other.state.restore(one.state.capture())

    assert [n for n, p in other.net.named_parameters() if not p.requires_grad] == ["conv.weight"]
    assert [n for n, m in other.net.named_modules() if not m.training] == ["norm"]
    one.train(3)
    other.train(3)
    assert other.digest() == one.digest()


def test_a_buffer_that_is_absent_at_the_sender_becomes_absent() -> None:
    one, other = make_replica(1), make_replica(2)
    other.train(1)
    other.state.restore(one.state.capture())
    assert other.net.grows is None


def test_parameters_that_share_memory_in_part_survive() -> None:
    def overlapping() -> nn.Module:
        net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
        net[1].weight.data = net[0].weight.data
        net[1].bias.data = net[0].weight.data[0]
        return net

    torch.manual_seed(1)
    one = JobState(device=CPU, models=[overlapping()])
    torch.manual_seed(2)
    other = JobState(device=CPU, models=[overlapping()])

    other.restore(one.capture())

    assert compute_digest(other.capture()) == compute_digest(one.capture())
    weights = other.models[0]
    assert isinstance(weights, nn.Sequential)
    assert weights[1].weight.data_ptr() == weights[0].weight.data_ptr()


def test_tensors_that_begin_at_one_address_are_no_targets() -> None:
    net = nn.Linear(2, 2)
    net.bias.data = net.weight.data[0]
    net.register_buffer("own", torch.zeros(1))

    targets = find_targets(JobState(device=CPU, models=[net]).capture())

    assert list(targets) == ["model/buffers/own"]


def test_a_learning_rate_that_groups_share_stays_shared() -> None:
    def build(rate: float) -> JobState:
        net = nn.Linear(2, 2)
        optimizer = torch.optim.Adam([{"params": [p]} for p in net.parameters()], lr=torch.tensor(rate))
        return JobState(device=CPU, models=[net], optimizers=[optimizer])

    one, other = build(0.1), build(0.2)
    held = other.optimizers[0].param_groups[0]["lr"]

    other.restore(one.capture())

    rates = [group["lr"] for group in other.optimizers[0].param_groups]
    assert {rate.data_ptr() for rate in rates} == {held.data_ptr()}
    assert float(held) == float(torch.tensor(0.1))


def test_extra_state_of_modules_travels() -> None:
    class Counting(nn.Linear):
        calls = 0

        def get_extra_state(self) -> Any:
            return {"calls": self.calls}

        def set_extra_state(self, state: Any) -> None:
            self.calls = state["calls"]

    one, other = Counting(2, 2), Counting(2, 2)
    one.calls = 7
    JobState(device=CPU, models=[other]).restore(JobState(device=CPU, models=[one]).capture())
    assert other.calls == 7


def test_several_models_and_optimizers_are_told_apart() -> None:
    def gan(seed: int) -> JobState:
        torch.manual_seed(seed)
        models = [nn.Linear(2, 3), nn.Linear(3, 1)]
        optimizers = [torch.optim.Adam(m.parameters()) for m in models]
        return JobState(device=CPU, models=models, optimizers=optimizers)

    one, other = gan(1), gan(2)
    other.restore(one.capture())
    assert set(one.capture().skeleton) == {"model", "model2", "optimizer", "optimizer2"}
    assert compute_digests(other.capture()) == compute_digests(one.capture())


def test_a_grad_scaler_and_an_average_model_can_be_registered() -> None:
    def build(seed: int, scale: float) -> tuple[JobState, torch.amp.GradScaler, nn.Module]:
        torch.manual_seed(seed)
        net = nn.Linear(2, 2)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        scaler.scale(torch.ones(1))
        average = torch.optim.swa_utils.AveragedModel(net)
        state = JobState(device=CPU, models=[net])
        state.register("scaler", scaler)
        state.register("average", average)
        return state, scaler, average

    one, _, one_average = build(1, 64.0)
    other, other_scaler, other_average = build(2, 8.0)

    other.restore(one.capture())

    assert other_scaler.get_scale() == 64.0
    assert all(
        torch.equal(a, b) for a, b in zip(one_average.parameters(), other_average.parameters(), strict=True)
    )


def test_a_name_is_registered_once() -> None:
    state = JobState(device=CPU, models=[nn.Linear(1, 1)])
    state.register("average", Average(1.0))
    with pytest.raises(ConfigError, match=r"'average'.*already registered"):
        state.register("average", Average(2.0))


def test_what_has_no_state_dict_cannot_be_registered() -> None:
    state = JobState(device=CPU, models=[nn.Linear(1, 1)])
    with pytest.raises(UnsupportedModelError, match=r"'meter'.*dict lacks state_dict"):
        state.register("meter", {})  # type: ignore[arg-type]


def other_shape() -> nn.Module:
    net = SmallNet()
    net.encode = nn.Linear(12, 5)
    return net


def fewer_buffers() -> nn.Module:
    net = SmallNet()
    del net._buffers["hidden"]
    return net


@pytest.mark.parametrize(
    ("make_net", "message"),
    [
        (other_shape, r"encode.bias is float32 \[5\] in this worker and float32 \[4\] in the state"),
        (fewer_buffers, "buffer hidden is absent in this worker and present in the state"),
        (lambda: SmallNet().double(), "conv.bias is float64 .* and float32"),
    ],
)
def test_a_state_of_another_model_is_refused_and_changes_nothing(make_net: Any, message: str) -> None:
    one, other = make_replica(1), make_replica(2, make_net=make_net)
    before = other.digest()

    with pytest.raises(ModelMismatchError, match=message):
        other.state.restore(one.state.capture())

    assert other.digest() == before


def test_a_state_with_other_parameter_groups_is_refused() -> None:
    one, other = make_replica(1, groups=2), make_replica(2, groups=1)
    before = other.digest()
    with pytest.raises(
        ModelMismatchError, match=r"groups have \[8\] parameters, those of the state \[4, 4\]"
    ):
        other.state.restore(one.state.capture())
    assert other.digest() == before


def test_a_state_with_other_objects_is_refused() -> None:
    one, other = make_replica(1), make_replica(2)
    one.state.register("average", Average(1.0))
    with pytest.raises(ModelMismatchError, match="registered/average"):
        other.state.restore(one.state.capture())


def test_what_is_neither_data_nor_tensor_is_refused_by_name() -> None:
    class Holder(Average):
        def state_dict(self) -> dict[str, Any]:
            return {"inner": [1, object()]}

    state = JobState(device=CPU, models=[nn.Linear(1, 1)])
    state.register("holder", Holder(0.0))
    with pytest.raises(UnsupportedModelError, match=r"registered/holder/inner/1 is a builtins.object"):
        state.capture()


def test_sparse_tensors_are_refused_by_name() -> None:
    net = nn.Linear(1, 1)
    net.register_buffer("adjacency", torch.eye(3).to_sparse())
    with pytest.raises(UnsupportedModelError, match=r"model/buffers/adjacency.*sparse"):
        JobState(device=CPU, models=[net]).capture()


def test_a_state_from_elsewhere_is_adopted_without_a_copy_if_it_belongs_to_nobody() -> None:
    one, other = make_replica(1), make_replica(2)
    one.train(1)
    lent = one.state.capture()
    copies = {name: tensor.clone() for name, tensor in lent.tensors.items()}
    owned = CapturedState(
        step=lent.step,
        epoch=lent.epoch,
        device_type="cpu",
        skeleton=lent.skeleton,
        tensors=copies,
        owned=True,
    )

    other.state.restore(owned)

    momentum = other.state.capture().tensors["optimizer/state/0/momentum_buffer"]
    assert momentum.data_ptr() == copies["optimizer/state/0/momentum_buffer"].data_ptr()


@pytest.mark.parametrize(
    ("name", "on_host", "source_type", "own", "chosen"),
    [
        ("optimizer/state/0/step", False, "cpu", "cpu", "cpu"),
        ("optimizer/state/0/step", True, "cuda", "cuda", "cpu"),
        ("optimizer/state/0/step", False, "cuda", "cuda", "cuda"),
        ("optimizer/state/0/step", False, "cpu", "cuda", "cpu"),
        ("optimizer/state/0/exp_avg", False, "cpu", "cuda", "cuda"),
        ("optimizer/state/0/exp_avg", False, "cuda", "cpu", "cpu"),
    ],
)
def test_tensors_go_where_the_sender_had_them(
    name: str, on_host: bool, source_type: str, own: str, chosen: str
) -> None:
    device = choose_device(name, on_host=on_host, source_type=source_type, own=torch.device(own))
    assert device.type == chosen


def test_loading_sees_the_types_that_were_handed_out() -> None:
    seen: list[Any] = []

    class Recorder(Average):
        def state_dict(self) -> dict[str, Any]:
            return OrderedDict(a=(1, [2.0]), b=torch.ones(2))

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            seen.append(state_dict)

    state = JobState(device=CPU, models=[nn.Linear(1, 1)])
    state.register("recorder", Recorder(0.0))

    state.restore(state.capture())

    [loaded] = seen
    assert type(loaded) is OrderedDict
    assert loaded["a"] == (1, [2.0])
    assert isinstance(loaded["b"], Tensor)


def test_a_fresh_momentum_stays_fresh() -> None:
    one, other = make_replica(1, sgd), make_replica(2, sgd)
    other.train(2)
    other.state.restore(one.state.capture())
    assert dict(other.optimizer.state) == {}
