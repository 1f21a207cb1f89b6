"""Forward passes start from the committed buffers; those of vrank 0 become the next ones."""

import pytest
import torch
from torch import Tensor, nn

from elastane.model.errors import UnsupportedModelError
from elastane.worker.buffers import LARGE_BYTES, CommittedBuffers


class Counters(nn.Module):
    """Have one buffer of each kind: written in place, replaced, hidden from checkpoints, large."""

    written: Tensor
    replaced: Tensor
    hidden: Tensor
    large: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(2)
        self.register_buffer("written", torch.zeros((), dtype=torch.int64))
        self.register_buffer("replaced", torch.zeros(3))
        self.register_buffer("hidden", torch.zeros(2, dtype=torch.bool), persistent=False)
        self.register_buffer("large", torch.zeros(LARGE_BYTES // 4))

    def forward(self, value: float) -> None:
        self.norm(torch.full((4, 2), value) * torch.arange(4.0)[:, None])
        self.written += int(value)
        self.replaced = self.replaced + value
        self.hidden |= True


def snapshot(model: nn.Module) -> dict[str, Tensor]:
    return {name: buffer.clone() for name, buffer in model.named_buffers()}


def equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_restore_undoes_a_forward_pass_batch_normalisation_included() -> None:
    model = Counters()
    buffers = CommittedBuffers(model)
    before = snapshot(model)
    model(2.0)
    assert not equal(snapshot(model), before)
    buffers.restore()
    assert equal(snapshot(model), before)


def test_what_vrank_0_leaves_is_committed_and_what_others_leave_is_not() -> None:
    model = Counters()
    buffers = CommittedBuffers(model)
    buffers.restore()
    model(1.0)
    after_first = snapshot(model)
    buffers.capture()
    buffers.restore()
    model(5.0)
    buffers.adopt()
    assert equal(snapshot(model), after_first)
    model(5.0)
    buffers.restore()
    assert equal(snapshot(model), after_first)


def test_packed_bytes_carry_the_new_buffers_to_another_worker() -> None:
    sender, receiver = Counters(), Counters()
    sending, receiving = CommittedBuffers(sender), CommittedBuffers(receiver)
    sender(3.0)
    sending.capture()
    receiving.packed.copy_(sending.packed)
    receiver(7.0)
    receiving.adopt()
    sending.adopt()
    assert equal(snapshot(receiver), snapshot(sender))


def test_a_large_buffer_counts_as_changed_only_if_it_was_written_or_replaced() -> None:
    model = Counters()
    buffers = CommittedBuffers(model)
    model(1.0)
    buffers.capture()
    assert buffers.large_changed == ()
    model.large += 1
    buffers.capture()
    assert buffers.large_changed == (0,)
    buffers.adopt()
    assert buffers.large_changed == ()
    assert bool((model.large == 1).all())

    model.large = torch.full_like(model.large, 2)
    buffers.capture()
    assert buffers.large_changed == (0,)
    buffers.forget()
    assert bool((model.large == 1).all())


def test_a_received_large_buffer_is_adopted() -> None:
    model = Counters()
    buffers = CommittedBuffers(model)
    buffers.large(0).fill_(4)
    buffers.adopt()
    assert bool((model.large == 4).all())
    model.large.zero_()
    buffers.restore()
    assert bool((model.large == 4).all())


def test_a_replaced_buffer_is_the_same_tensor_again_after_restore() -> None:
    model = Counters()
    original = model.replaced
    buffers = CommittedBuffers(model)
    model(1.0)
    assert model.replaced is not original
    buffers.restore()
    assert model.replaced is original


def test_loaded_state_becomes_the_committed_one() -> None:
    model = Counters()
    buffers = CommittedBuffers(model)
    loaded = {name: torch.ones_like(buffer) for name, buffer in model.named_buffers()}
    model.load_state_dict(loaded, strict=False)
    model.hidden.fill_(True)
    buffers.commit_live()
    model(9.0)
    buffers.restore()
    assert equal(snapshot(model), loaded)


def test_a_buffer_that_changes_its_shape_is_refused() -> None:
    model = Counters()
    buffers = CommittedBuffers(model)
    model.replaced = torch.zeros(4)
    with pytest.raises(UnsupportedModelError, match=r"buffer 'replaced' of Counters was \(3,\)"):
        buffers.capture()


def test_a_model_without_buffers_has_nothing_to_send() -> None:
    buffers = CommittedBuffers(nn.Linear(2, 2))
    buffers.restore()
    buffers.capture()
    buffers.adopt()
    assert buffers.packed.numel() == 0
