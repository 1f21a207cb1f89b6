"""How one tensor lies in memory, and its bytes as a flat view.

A tensor travels in the order in which it lies in memory, so that channels-last weights go without a copy
and arrive channels-last: kernels choose by memory order, and so do the bits. This module knows single
tensors, not states.
"""

import math
from typing import Any

import msgspec
import torch
from torch import Tensor

from elastane.model.errors import UnsupportedModelError


class TensorEntry(msgspec.Struct, frozen=True, array_like=True):
    """Describe one tensor of a state: all that is needed to allocate its like."""

    name: str
    dtype: str
    """Name in torch, such as "float32"."""
    shape: tuple[int, ...]
    order: tuple[int, ...]
    """Dimensions from the slowest to the fastest in memory; empty = row-major."""
    device_type: str

    @property
    def nbytes(self) -> int:
        """Return the bytes of the tensor's elements."""
        return math.prod(self.shape) * parse_dtype(self.dtype).itemsize


def parse_dtype(name: str) -> torch.dtype:
    """Return the torch dtype called `name`; raise ValueError if there is none."""
    dtype: Any = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"torch has no dtype {name!r}")
    return dtype


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a dtype without "torch."."""
    return str(dtype).removeprefix("torch.")


def check_plain_tensor(name: str, tensor: Tensor) -> None:
    """Raise UnsupportedModelError for tensors whose bytes alone do not say everything."""
    plain = type(tensor) in (Tensor, torch.nn.Parameter, torch.nn.Buffer)
    if plain and tensor.layout is torch.strided and not tensor.is_quantized and not tensor.is_meta:
        return
    raise UnsupportedModelError(
        f"{name} is a {type(tensor).__name__} with layout {tensor.layout} on device {tensor.device}; elastic "
        "training moves plain dense tensors only: keep sparse, quantized, sharded or meta tensors out of "
        "the model, the optimizer and registered objects"
    )


def memory_order(tensor: Tensor) -> tuple[int, ...] | None:
    """Return the dimensions from slowest to fastest, empty if row-major, None if elements do not lie densely.

    Dimensions of length 1 come first, whatever their strides: strides that mean nothing must not make
    two equal tensors look different.
    """
    if tensor.is_conj() or tensor.is_neg():
        return None
    if tensor.is_contiguous():
        return ()
    strides = tensor.stride()
    order = tuple(sorted(range(tensor.dim()), key=lambda d: (tensor.shape[d] != 1, -strides[d])))
    return order if tensor.permute(order).is_contiguous() else None


def describe_tensor(name: str, tensor: Tensor) -> TensorEntry:
    """Return the entry of `tensor`; one that does not lie densely is described as its row-major copy."""
    return TensorEntry(
        name, dtype_name(tensor.dtype), tuple(tensor.shape), memory_order(tensor) or (), tensor.device.type
    )


def allocate_tensor(entry: TensorEntry, device: torch.device) -> Tensor:
    """Return an uninitialised tensor like the one that `entry` describes, on `device`."""
    dtype = parse_dtype(entry.dtype)
    if not entry.order:
        return torch.empty(entry.shape, dtype=dtype, device=device)
    in_memory = torch.empty([entry.shape[d] for d in entry.order], dtype=dtype, device=device)
    return in_memory.permute([entry.order.index(d) for d in range(len(entry.order))])


def flat_bytes(tensor: Tensor) -> Tensor:
    """Return the elements in memory order as a 1-D uint8 tensor.

    A view for tensors that lie densely, a view of a row-major copy for the others.
    """
    order = memory_order(tensor)
    dense = tensor.detach()
    if order is None:
        dense = dense.resolve_conj().resolve_neg().contiguous()
    elif order:
        dense = dense.permute(order)
    return dense.reshape(-1).view(torch.uint8)


def same_memory(one: Tensor, other: Tensor) -> bool:
    """Tell whether two tensors are the same elements in the same place."""
    return (
        one.data_ptr() == other.data_ptr()
        and one.device == other.device
        and one.dtype == other.dtype
        and one.shape == other.shape
        and one.stride() == other.stride()
    )


def choose_device(name: str, *, on_host: bool, source_type: str, own: torch.device) -> torch.device:
    """Return where a tensor of another worker's state belongs on this one.

    Args:
        name: name of the tensor in the state.
        on_host: whether it lay on the CPU although that job ran elsewhere.
        source_type: kind of device on which that job ran.
        own: this job's device.

    Returns:
        The CPU for what a CUDA job kept there (the step counts of most optimizers), and for step counts when
        the state of a CPU job goes on elsewhere, as Optimizer.load_state_dict has it; `own` for all else.
    """
    if on_host or (source_type == "cpu" and name.endswith("/step")):
        return torch.device("cpu")
    return own
