"""The state reaches every receiver, whoever supplies it; damage and breaks are noticed."""

import itertools
from collections.abc import Callable
from functools import partial

import msgspec
import pytest
import torch
from replicas import CPU, Hub, Replica, make_replica, run_together, transfer
from torch import Tensor, nn

from elastane.model.errors import DeterminismError, LinkBrokenError, ModelMismatchError
from elastane.worker import slicing
from elastane.worker import transfer as transfer_module
from elastane.worker.digest import compute_digest
from elastane.worker.state import JobState
from elastane.worker.transfer import receive_state, send_state


def adam(groups: object) -> torch.optim.Optimizer:
    return torch.optim.Adam(groups, lr=0.01)  # type: ignore[arg-type]


def trained(seed: int, steps: int) -> Replica:
    replica = make_replica(seed, adam)
    replica.train(steps)
    return replica


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize(("suppliers", "receivers"), list(itertools.product([1, 2, 3], [1, 2, 3])))
def test_every_receiver_gets_the_state_and_trains_on_alike(
    suppliers: int, receivers: int, in_place: bool
) -> None:
    having = [trained(1, 5) for _ in range(suppliers)]
    wanting = [trained(10 + i, i) for i in range(receivers)]

    outcomes, links = transfer(having, wanting, in_place=in_place)

    assert outcomes == [None] * (suppliers + receivers)
    everybody = [*having, *wanting]
    assert len({replica.digest() for replica in everybody}) == 1
    for replica in everybody:
        replica.train(3)
    assert len({replica.digest() for replica in everybody}) == 1
    sent = [link.sent_bytes for link in links[:suppliers]]
    assert sum(sent) >= receivers * having[0].state.capture().tensor_bytes


def test_suppliers_share_the_bytes_evenly() -> None:
    having = [trained(1, 5) for _ in range(3)]
    _, links = transfer(having, [trained(2, 0)])
    state_bytes = having[0].state.capture().tensor_bytes
    header_bytes = 40
    for link in links[1:3]:
        assert abs(link.sent_bytes - header_bytes - state_bytes / 3) <= 128


def test_a_receiver_that_is_one_step_behind_catches_up() -> None:
    ahead, behind = trained(1, 5), trained(1, 4)
    assert transfer([ahead], [behind], in_place=False)[0] == [None, None]
    assert (behind.state.step, behind.digest()) == (5, ahead.digest())


def test_without_receivers_nothing_is_sent() -> None:
    replica = trained(1, 1)
    link = Hub(1).link(0)
    send_state(link, replica.state.capture(), own=0, suppliers=[0], receivers=[])
    assert link.exchanges == 0


def test_large_tensors_go_without_a_copy_and_small_ones_together() -> None:
    net = nn.Sequential(nn.Linear(300, 300), nn.Linear(300, 300), nn.Linear(10, 10))
    sends: list[tuple[int, Tensor]] = []

    class Recorder:
        def exchange(self, sending: list[tuple[int, Tensor]], _receiving: object) -> None:
            sends.extend(sending)

    state = JobState(device=CPU, models=[net])
    send_state(Recorder(), state.capture(), own=0, suppliers=[0], receivers=[1])  # type: ignore[arg-type]

    live = {p.data_ptr() for p in net.parameters()}
    header, description, *pieces = [tensor for _, tensor in sends]
    assert header.numel() == 40
    assert description.numel() > 0
    assert [(tensor.numel(), tensor.data_ptr() in live) for tensor in pieces] == [
        (1200, True),
        (360000, True),
        (1200, True),
        (360000, True),
        (440, False),
    ]


@pytest.mark.parametrize("exchange", [1, 2, 3])
@pytest.mark.parametrize("breaking", [0, 1, 2], ids=["first supplier", "second supplier", "receiver"])
def test_a_break_at_any_moment_leaves_suppliers_and_kept_state_untouched(
    breaking: int, exchange: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Every tensor in a message of its own, so that a break in the middle has let some of them through.
    monkeypatch.setattr(slicing, "PACK_BELOW_BYTES", 1)
    having, behind = [trained(1, 5), trained(1, 5)], trained(1, 4)
    before = [replica.digest() for replica in (*having, behind)]

    outcomes, links = transfer(having, [behind], in_place=False, breaks={breaking: exchange})

    broken = links[breaking].exchanges == exchange
    assert broken or (breaking, exchange) == (1, 3)  # the second supplier has two exchanges only
    if broken:
        assert isinstance(outcomes[breaking], LinkBrokenError)
        assert [replica.digest() for replica in (*having, behind)] == before
    else:
        assert outcomes == [None, None, None]


def test_a_break_in_the_middle_of_a_joiners_transfer_leaves_suppliers_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slicing, "PACK_BELOW_BYTES", 1)
    having, joiner = [trained(1, 5), trained(1, 5)], trained(2, 1)
    before, mixed = having[0].digest(), joiner.digest()

    transfer(having, [joiner], breaks={2: 3})

    assert [replica.digest() for replica in having] == [before, before]
    assert joiner.digest() != mixed  # its half of the new state is there: it must not go on from here
    assert (joiner.state.step, joiner.state.epoch) == (1, 0)


def test_after_a_break_the_same_receiver_can_be_served_again() -> None:
    having, joiner = [trained(1, 5), trained(1, 5)], trained(2, 1)
    outcomes, _ = transfer(having, [joiner], breaks={2: 3})
    assert isinstance(outcomes[2], LinkBrokenError)

    assert transfer(having, [joiner])[0] == [None, None, None]

    assert joiner.digest() == having[0].digest()


def test_suppliers_at_different_steps_are_an_error() -> None:
    outcomes, _ = transfer([trained(1, 5), trained(1, 4)], [trained(2, 0)])
    assert isinstance(outcomes[2], DeterminismError)
    assert "hold step 5" in str(outcomes[2])
    assert "and step 4" in str(outcomes[2])


def test_suppliers_with_different_tensors_are_an_error() -> None:
    one, other = trained(1, 5), trained(1, 5)
    parameter = other.net.get_parameter("conv.bias")
    del other.optimizer.state[parameter]["exp_avg"]
    outcomes, _ = transfer([one, other], [trained(2, 0)])
    assert isinstance(outcomes[2], DeterminismError)


def test_the_state_of_another_model_changes_nothing() -> None:
    receiver = make_replica(2, adam, groups=1)
    before = receiver.digest()
    outcomes, _ = transfer([trained(1, 5)], [receiver])
    assert isinstance(outcomes[1], ModelMismatchError)
    assert receiver.digest() == before


class Tampering:
    """Pass messages on after changing one of them."""

    def __init__(self, inner: object, message: int, change: Callable[[Tensor], Tensor]) -> None:
        self.inner, self.message, self.change = inner, message, change
        self.seen = 0

    def exchange(self, sends: list[tuple[int, Tensor]], recvs: list[tuple[int, Tensor]]) -> None:
        changed = []
        for peer, tensor in sends:
            changed.append((peer, self.change(tensor.clone()) if self.seen == self.message else tensor))
            self.seen += 1
        self.inner.exchange(changed, recvs)  # type: ignore[attr-defined]


def set_byte(position: int, value: int, tensor: Tensor) -> Tensor:
    tensor[position] = value
    return tensor


HEADER, DESCRIPTION = 0, 1


@pytest.mark.parametrize(
    ("message", "position", "value", "told"),
    [
        (HEADER, 0, 0, "same version of elastane"),
        (HEADER, 23, 1, "announced a state of"),
        (HEADER, 31, 1, "a description of"),
        (HEADER, 16, 1, "bytes are announced, but the tensors have"),
        (HEADER, 32, 1, "another checksum"),
        (DESCRIPTION, 40, 1, "another checksum"),
    ],
    ids=["magic", "state length", "description length", "wrong length", "checksum", "description"],
)
def test_damage_is_an_error_and_no_allocation(message: int, position: int, value: int, told: str) -> None:
    sender, receiver = trained(1, 2), trained(2, 0)
    before = receiver.digest()
    hub = Hub(2)
    tampering = Tampering(hub.link(0), message, partial(set_byte, position, value))
    send_outcome, outcome = run_together(
        lambda: send_state(tampering, sender.state.capture(), own=0, suppliers=[0], receivers=[1]),
        lambda: receive_state(hub.link(1), receiver.state, suppliers=[0], in_place=True),
    )
    assert send_outcome is None
    assert isinstance(outcome, LinkBrokenError)
    assert told in str(outcome)
    assert receiver.digest() == before


def entry(name: str = "x", dtype: str = "uint8", shape: tuple[int, ...] = (4,), order: tuple[int, ...] = ()):  # type: ignore[no-untyped-def]  # noqa: ANN201
    return transfer_module.TensorEntry(name, dtype, shape, order, "cpu")


@pytest.mark.parametrize(
    ("table", "numbers", "told"),
    [
        ((entry(shape=(-4,)),), (0,), "a dimension is negative"),
        ((entry(order=(1,)),), (0,), "no permutation"),
        ((entry(),), (1,), "not numbered"),
        ((entry(), entry("y")), (0, 0), "not numbered"),
        ((entry(dtype="Tensor"),), (0,), "no dtype"),
        ((entry(dtype="float32"),), (0,), "4 bytes are announced, but the tensors have 16"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused(table, numbers, told: str) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    with pytest.raises(ValueError, match=told):
        transfer_module._check_table(table, numbers, 4)


def test_a_description_of_another_kind_is_refused() -> None:
    content = msgspec.msgpack.encode([1, 2, 3])
    header = transfer_module._Header(
        magic=b"elastan1",
        step=1,
        state_bytes=0,
        description_bytes=len(content),
        description_crc=transfer_module.zlib.crc32(content),
        table_crc=0,
    )
    hub = Hub(2)
    hub.link(0).exchange([(1, transfer_module._as_tensor(content))], [])
    with pytest.raises(LinkBrokenError, match="makes no sense"):
        transfer_module._receive_description(hub.link(1), 0, header)


def test_a_receiver_whose_tensors_lie_otherwise_still_gets_the_bits() -> None:
    one = trained(1, 3)
    other = trained(2, 1)
    other.net.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    assert transfer([one], [other])[0] == [None, None]
    assert other.digest() == one.digest()


def test_an_empty_state_can_be_moved() -> None:
    one, other = (JobState(device=CPU, models=[nn.ReLU()], step=step) for step in (7, 0))
    hub = Hub(2)
    outcomes = run_together(
        lambda: send_state(hub.link(0), one.capture(), own=0, suppliers=[0], receivers=[1]),
        lambda: receive_state(hub.link(1), other, suppliers=[0], in_place=True),
    )
    assert outcomes == [None, None]
    assert compute_digest(other.capture()) == compute_digest(one.capture())
