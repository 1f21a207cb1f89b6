"""Lay gradients out in flat buckets: which parameter lies where, and which worker sums which share.

Parameters come in reverse order, since the backward pass meets the last ones first. A bucket holds one
dtype. The layout depends on the parameters alone, so it survives every change of topology; shares depend
on the number of workers. Nothing here moves data.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

BUCKET_BYTES = 25 << 20
"""Size at which a bucket is closed: DDP's default bucket_cap_mb."""

SHARE_ELEMENTS = 16
"""Shares start at multiples of this: one cache line of float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Name the parameters of one bucket.

    Attributes:
        indices: positions of its parameters, in the order in which they lie in the bucket.
        starts: first element of each.
        length: elements in all.
        dtype: of all of them.
    """

    indices: tuple[int, ...]
    starts: tuple[int, ...]
    length: int
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        """Return the bytes of one flat tensor of this bucket."""
        return self.length * self.dtype.itemsize

    def share(self, position: int, workers: int) -> slice:
        """Return the elements that worker `position` of `workers` sums; may be empty."""
        width = -(-self.length // workers)
        width = -(-width // SHARE_ELEMENTS) * SHARE_ELEMENTS
        return slice(min(position * width, self.length), min((position + 1) * width, self.length))

    def views(self, flat: Tensor, parameters: Sequence[Tensor]) -> dict[int, Tensor]:
        """Return each parameter's part of `flat`, by its position, with the strides of the parameter."""
        found = {}
        for index, start in zip(self.indices, self.starts, strict=True):
            parameter = parameters[index]
            part = flat[start : start + parameter.numel()]
            if is_dense(parameter):
                part = part.as_strided(parameter.shape, parameter.stride(), part.storage_offset())
            else:
                part = part.view(parameter.shape)
            found[index] = part
        return found


def is_dense(tensor: Tensor) -> bool:
    """Tell whether the tensor's elements fill a block of memory in one of the two usual orders."""
    return tensor.is_contiguous() or (
        tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
    )


def plan_buckets(parameters: Sequence[Tensor], bucket_bytes: int) -> tuple[Bucket, ...]:
    """Distribute parameters over buckets that are closed as soon as they hold `bucket_bytes`.

    Returns:
        The buckets in the order in which a backward pass usually completes them.
    """
    open_indices: dict[torch.dtype, list[int]] = {}
    filled_bytes: Counter[torch.dtype] = Counter()
    closed: list[list[int]] = []
    for index in range(len(parameters) - 1, -1, -1):
        dtype = parameters[index].dtype
        open_indices.setdefault(dtype, []).append(index)
        filled_bytes[dtype] += parameters[index].nbytes
        if filled_bytes[dtype] >= bucket_bytes:
            closed.append(open_indices.pop(dtype))
            filled_bytes[dtype] = 0
    return tuple(_bucket(parameters, indices) for indices in (*closed, *open_indices.values()))


def _bucket(parameters: Sequence[Tensor], indices: Sequence[int]) -> Bucket:
    starts = []
    end = 0
    for index in indices:
        starts.append(end)
        # Every gradient starts on a cache line of its own, as a tensor of its own would.
        end += -(-parameters[index].numel() // SHARE_ELEMENTS) * SHARE_ELEMENTS
    return Bucket(
        indices=tuple(indices), starts=tuple(starts), length=end, dtype=parameters[indices[0]].dtype
    )
