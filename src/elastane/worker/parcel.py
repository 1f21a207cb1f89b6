"""Send the small tensors of a batch between processes by value.

torch moves every tensor of a batch into shared memory of its own: a file, two mappings and a question to
the process that has it, 0.2 ms or more however small it is. Up to `LARGEST_BYTES` copying it through the pipe
costs less. What arrives has the same bits and strides, and what shared memory still does.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

LARGEST_BYTES = 1 << 18
"""Two tensors of so many bytes take 0.35 ms by value and 0.68 ms through shared memory; of four times as many
it depends (2-core machine, torch 2.13)."""

_DTYPES = frozenset(
    {
        *(torch.float16, torch.float32, torch.float64, torch.bool, torch.uint8),
        *(torch.int8, torch.int16, torch.int32, torch.int64),
    }
)
"""Those that numpy has too."""


class Parcel(NamedTuple):
    """Hold a batch in which arrays stand in the place of tensors.

    Attributes:
        content: the batch.
        strides: of the tensors, by the number of the leaf.
    """

    content: Any
    strides: dict[int, tuple[int, ...]]


def pack(batch: Any) -> Any:
    """Return `batch` ready to be sent: a parcel, or itself if it has no tensor that goes by value."""
    leaves, structure = pytree.tree_flatten(batch)
    tensors = {number: leaf for number, leaf in enumerate(leaves) if _goes_by_value(leaf)}
    if not tensors or _share_memory(leaves):
        return batch
    strides = {number: tensor.stride() for number, tensor in tensors.items()}
    for number, tensor in tensors.items():
        leaves[number] = tensor.numpy()
    return Parcel(pytree.tree_unflatten(leaves, structure), strides)


def unpack(sent: Any) -> Any:
    """Return the batch that `pack` was given."""
    if type(sent) is not Parcel:
        return sent
    leaves, structure = pytree.tree_flatten(sent.content)
    for number, stride in sent.strides.items():
        tensor = torch.from_numpy(leaves[number])
        # Where a dimension has one element there is more than one way to say the same layout.
        leaves[number] = tensor if tensor.stride() == stride else tensor.as_strided(tensor.shape, stride)
    return pytree.tree_unflatten(leaves, structure)


def _goes_by_value(leaf: Any) -> bool:
    return (
        type(leaf) is Tensor
        and leaf.device.type == "cpu"
        and leaf.layout is torch.strided
        and leaf.dtype in _DTYPES
        and 0 < leaf.nbytes <= LARGEST_BYTES
        and leaf.is_contiguous()
        and not leaf.requires_grad
        and not leaf.is_neg()
    )


def _share_memory(leaves: list[Any]) -> bool:
    # Who writes into one of two views must go on to see it in the other.
    storages = [
        leaf.untyped_storage().data_ptr()
        for leaf in leaves
        if isinstance(leaf, Tensor) and leaf.layout is torch.strided
    ]
    return len(set(storages)) < len(storages)
