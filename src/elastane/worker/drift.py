"""Notice when workers whose committed state must be equal hold different bits, and name the first tensor.

A checksum of every tensor is cheap (one pass over memory) and catches what it is for: unseeded user
code, an object that was not registered, unlike hardware. It is no protection against an adversary.
"""

import zlib
from collections.abc import Sequence

import torch
from torch import Tensor

from elastane.model.errors import DeterminismError
from elastane.worker.state import CapturedState

CHECK_EVERY_STEPS = 500
CHECK_AFTER_SWITCH_STEPS = 20
"""The check after a switch waits for a few steps, so that its pass over memory is not part of the stop."""


def is_check_due(step: int, switch_step: int, every: int) -> bool:
    """Tell whether the state before `step` is compared; `every` = 0 switches the check off."""
    if not every:
        return False
    return step - switch_step == min(CHECK_AFTER_SWITCH_STEPS, every) or (step > 0 and step % every == 0)


def compute_checksums(state: CapturedState) -> list[tuple[str, int]]:
    """Return (name, checksum) of all plain values together and of each tensor."""
    plain = zlib.crc32(repr(state.skeleton).encode())
    return [("plain values", plain), *((name, _checksum(t)) for name, t in state.tensors.items())]


def combine_checksums(checksums: list[tuple[str, int]]) -> int:
    """Return one number for all."""
    return zlib.crc32(repr([value for _, value in checksums]).encode())


def first_difference(own: list[tuple[str, int]], other: list[tuple[str, int]]) -> str:
    """Return the name of the first tensor that differs; "" if none does."""
    for (name, value), (other_name, other_value) in zip(own, other, strict=False):
        if (name, value) != (other_name, other_value):
            return name
    return "" if len(own) == len(other) else "the number of tensors"


def check_equal(tables: Sequence[list[tuple[str, int]]], step: int) -> None:
    """Raise DeterminismError with the first difference between the members' checksums before `step`."""
    for member, table in enumerate(tables):
        name = first_difference(tables[0], table)
        if name:
            raise DeterminismError(
                f"before step {step} the states of members 0 and {member} differ, first in {name!r}; state "
                "outside job.prepare and job.register, unseeded random numbers or unlike hardware are the "
                "usual causes"
            )


def _checksum(tensor: Tensor) -> int:
    flat = tensor.detach().contiguous().flatten().view(torch.uint8)
    words = flat.numel() // 4 * 4
    total = int(flat[:words].view(torch.int32).sum(dtype=torch.int64).item())
    return total ^ zlib.crc32(bytes(flat[words:].cpu().numpy())) if words < flat.numel() else total
