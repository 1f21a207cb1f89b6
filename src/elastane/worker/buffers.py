"""Keep the committed copy of a model's buffers: batch-norm statistics, counters and the like.

Every virtual worker's forward pass starts from the committed buffers; those that vrank 0 leaves behind
become the next ones (DDP's broadcast_buffers semantics). Small buffers lie packed in one block of bytes,
ready to be sent. Large ones (masks, tables) hardly ever change and are copied only when they do.
This module does not know when its methods are due, nor how bytes travel.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from elastane.model.errors import UnsupportedModelError

LARGE_BYTES = 1 << 20
"""From here on a buffer is copied only if torch saw it change. Smaller ones are always copied, because
batch normalisation writes its statistics without telling torch's version counter (torch 2.13); such a
statistic has one value per channel, and a quarter of a million channels do not exist."""

LARGE_BUFFERS = 62
"""Most buffers treated as large ones: a message marks those that changed in a signed 64-bit number."""

_ALIGNMENT = 64
"""Bytes; enough for every dtype's own alignment, and a cache line."""


class CommittedBuffers:
    """Hold the buffers of the last committed step beside the live ones of the model."""

    def __init__(self, model: nn.Module) -> None:
        found = _find_buffers(model)
        self._slots = [(module, name) for module, name, _ in found]
        self._tensors = tensors = [tensor for _, _, tensor in found]
        self._large = [i for i, tensor in enumerate(tensors) if tensor.nbytes >= LARGE_BYTES][:LARGE_BUFFERS]
        self._small = [i for i in range(len(tensors)) if i not in self._large]
        self._small_tensors = [tensors[i] for i in self._small]
        self._committed = _Packed(self._small_tensors)
        self._next = _Packed(self._small_tensors)
        self._large_committed = [tensors[i].clone() for i in self._large]
        self._large_versions = [tensors[i]._version for i in self._large]
        self._large_next: dict[int, Tensor] = {}

    @property
    def packed(self) -> Tensor:
        """Return the step's new small buffers as bytes: those captured, or the place to receive them."""
        return self._next.block

    @property
    def large_changed(self) -> tuple[int, ...]:
        """Return the numbers of the large buffers that `capture` found changed."""
        return tuple(sorted(self._large_next))

    def large(self, number: int) -> Tensor:
        """Return the new value of a large buffer, to be sent or to be received into."""
        if number not in self._large_next:
            self._large_next[number] = torch.empty_like(self._large_committed[number])
        return self._large_next[number]

    def restore(self) -> None:
        """Copy the committed buffers into the model."""
        self._reattach()
        if self._small_tensors:
            torch._foreach_copy_(self._small_tensors, self._committed.views)
        for number, index in enumerate(self._large):
            if self._tensors[index]._version != self._large_versions[number]:
                self._tensors[index].copy_(self._large_committed[number])
                self._large_versions[number] = self._tensors[index]._version

    def capture(self) -> None:
        """Take the model's present buffers as the step's new ones; `adopt` makes them the committed ones.

        Raises:
            UnsupportedModelError: a buffer was replaced by one of another shape or dtype.
        """
        present = self._present()
        if self._small:
            torch._foreach_copy_(self._next.views, [present[i] for i in self._small])
        for number, index in enumerate(self._large):
            unchanged = present[index] is self._tensors[index] and (
                present[index]._version == self._large_versions[number]
            )
            if not unchanged:
                self._large_next[number] = present[index].detach().clone()

    def adopt(self) -> None:
        """Commit the step's new buffers and copy them into the model."""
        self._committed, self._next = self._next, self._committed
        for number, value in self._large_next.items():
            self._large_committed[number] = value
            self._large_versions[number] = -1  # whatever the model holds now, it is not this
        self._large_next.clear()
        self.restore()

    def forget(self) -> None:
        """Drop what `capture` took and restore the committed buffers."""
        self._large_next.clear()
        self.restore()

    def commit_live(self) -> None:
        """Take the model's present buffers as committed, after a state was loaded into it."""
        self.capture()
        self.adopt()

    def _present(self) -> list[Tensor]:
        present = []
        for (module, name), tensor in zip(self._slots, self._tensors, strict=True):
            now = module._buffers[name]
            if now is not tensor and (now is None or now.shape != tensor.shape or now.dtype != tensor.dtype):
                raise UnsupportedModelError(
                    f"buffer {name!r} of {type(module).__name__} was {tuple(tensor.shape)} {tensor.dtype} at "
                    f"prepare() and is {None if now is None else (tuple(now.shape), now.dtype)} now; "
                    "buffers must keep their shape and dtype during training"
                )
            present.append(tensor if now is None else now)
        return present

    def _reattach(self) -> None:
        # A forward pass may have replaced a buffer (self.mean = ...) instead of writing into it.
        for (module, name), tensor in zip(self._slots, self._tensors, strict=True):
            if module._buffers[name] is not tensor:
                module._buffers[name] = tensor


class _Packed:
    """Lay copies of tensors one after another in one block of bytes."""

    __slots__ = ("block", "views")

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        tensors = list(tensors)
        starts = []
        end = 0
        for tensor in tensors:
            starts.append(end)
            end += -(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT
        device = tensors[0].device if tensors else torch.device("cpu")
        self.block = torch.zeros(end, dtype=torch.uint8, device=device)
        self.views = [
            self.block[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
            for start, tensor in zip(starts, tensors, strict=True)
        ]
        for view, tensor in zip(self.views, tensors, strict=True):
            view.copy_(tensor)


def _find_buffers(model: nn.Module) -> list[tuple[nn.Module, str, Tensor]]:
    # Each buffer once, non-persistent ones too: they decide the next forward pass all the same.
    found = []
    seen: set[int] = set()
    for module in model.modules():
        for name, tensor in module._buffers.items():
            if tensor is not None and id(tensor) not in seen:
                seen.add(id(tensor))
                found.append((module, name, tensor))
    return found
