"""Add up one worker's gradients while they come, one virtual worker after another.

`plan_pushes` says, per local virtual worker, how many additions are due and which canonical segment is
then complete; `GradientFold` does them on tensors, one parameter at a time from hooks or all at once.
Autograd's own gradient tensors serve as partial sums: at most ceil(log2 V) are pending between virtual
workers, beside the finished segments. Nothing here knows of other workers.

A parameter without gradient counts as zeros, so x + nothing is x + 0.0 (which turns -0.0 into 0.0), the
same wherever that addition takes place.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from elastane.core.tree import TreeFold, TreeNode, canonical_segments
from elastane.model.topology import VrankRange
from elastane.worker.buckets import is_dense

Gradients = list[Tensor | None]
"""One gradient per parameter, in order; None where there is none."""

CHUNK_ELEMENTS = 1 << 16
"""Elements that are added and divided while they are in the cache: 256 KB of float32, a quarter of a
usual second-level cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """Say what is due when one virtual worker's gradients arrive.

    Attributes:
        merges: additions older + newer of the two newest partial sums.
        segment: position of the worker's canonical segment that is complete after them; None if the sum
            stays pending.
    """

    merges: int
    segment: int | None


@lru_cache(maxsize=64)
def plan_pushes(vranks: VrankRange, virtual_workers: int) -> tuple[Push, ...]:
    """Plan the folding of a worker's virtual workers `vranks` in a tree of N = `virtual_workers` leaves."""
    segments = canonical_segments(vranks, virtual_workers)
    fold = TreeFold(virtual_workers)
    pushes = []
    for vrank in range(vranks.start, vranks.stop):
        merges = fold.push(TreeNode(0, vrank))
        newest = fold.pending[-1]
        pushes.append(Push(merges=merges, segment=segments.index(newest) if newest in segments else None))
    return tuple(pushes)


class GradientFold:
    """Hold the partial sums of the step in flight.

    Args:
        parameters: how many there are.
        targets: per canonical segment, per parameter, the tensor that receives the finished sum. None if
            this worker's one segment is the whole tree: then the sums stay where they are, in `results`.
    """

    def __init__(self, parameters: int, targets: Sequence[list[Tensor]] | None) -> None:
        self._parameters = parameters
        self._targets = targets
        self._layers: list[Gradients] = []
        self._newest: Gradients = []
        self._push = Push(merges=0, segment=None)
        self._divisor = 1.0
        self.used = [False] * parameters
        self.results: Gradients = [None] * parameters

    @property
    def pending(self) -> int:
        """Return how many partial sums, each as large as a whole gradient, wait for later virtual workers."""
        return len(self._layers)

    def start(self, push: Push, divisor: float) -> None:
        """Await the gradients of the next virtual worker; a whole tree's sum is divided by `divisor`."""
        self._push = push
        self._divisor = divisor
        self._newest = [None] * self._parameters

    def push_one(self, index: int, gradient: Tensor | None) -> None:
        """Fold in the gradient of one parameter."""
        push = self._push
        if gradient is not None:
            self.used[index] = True
        complete = push.segment is not None
        inner = push.merges - 1 if complete and push.merges else push.merges
        for depth in range(1, inner + 1):
            gradient = _joined(self._take(depth, index), gradient)
        if not complete:
            self._newest[index] = gradient
            return
        older = self._take(push.merges, index) if push.merges else None
        self._complete(index, older, gradient)

    def push_all(self, gradients: Gradients) -> None:
        """Fold in all parameters' gradients with as few calls as possible; for small models."""
        for index, gradient in enumerate(gradients):
            if gradient is not None:
                self.used[index] = True
        for depth in range(1, self._push.merges + 1):
            gradients = _all_joined(self._layers[-depth], gradients)
        if self._push.segment is None:
            self._newest = gradients
        elif self._targets is None:
            self.results = gradients
            _divide_all(gradients, self._divisor)
        else:
            _copy_all(self._targets[self._push.segment], gradients)

    def end(self) -> None:
        """Close the virtual worker: its sums become the newest pending ones."""
        if self._push.merges:
            del self._layers[-self._push.merges :]
        if self._push.segment is None:
            self._layers.append(self._newest)
        self._newest = []

    def clear(self) -> None:
        """Forget the step."""
        self._layers = []
        self._newest = []
        self.used = [False] * self._parameters
        self.results = [None] * self._parameters

    def _take(self, depth: int, index: int) -> Tensor | None:
        layer = self._layers[-depth]
        value, layer[index] = layer[index], None
        return value

    def _complete(self, index: int, older: Tensor | None, newer: Tensor | None) -> None:
        if self._targets is None or self._push.segment is None:
            self.results[index] = self._total(older, newer)
            return
        target = self._targets[self._push.segment][index]
        if older is not None and newer is not None:
            torch.add(older, newer, out=target)
            return
        gradient = _joined(older, newer) if self._push.merges else newer
        if gradient is None:
            target.zero_()
        else:
            target.copy_(gradient)

    def _total(self, older: Tensor | None, newer: Tensor | None) -> Tensor | None:
        if older is not None and newer is not None and _lie_alike(older, newer):
            add_and_divide([_flattened(older), _flattened(newer)], ((0, 1),), self._divisor)
            return older
        total = _joined(older, newer) if self._push.merges else newer
        if total is not None:
            divide(total, self._divisor)
        return total


def add_and_divide(
    values: Sequence[Tensor], schedule: Sequence[tuple[int, int]], divisor: float, out: Tensor | None = None
) -> None:
    """Run the additions of a tree on flat tensors of equal length and divide the total.

    Args:
        values: contiguous one-dimensional tensors; all are overwritten.
        schedule: pairs (left, right) of positions: values[left] += values[right], in order, at least one.
        divisor: what the total is divided by; 1.0 divides nothing.
        out: where the result goes, one of `values`; values[0] if None.
    """
    values = [*values, values[0] if out is None else out]
    last_left, last_right = schedule[-1]
    for start in range(0, values[0].numel(), CHUNK_ELEMENTS):
        chunks = [value[start : start + CHUNK_ELEMENTS] for value in values]
        for left, right in schedule[:-1]:
            chunks[left].add_(chunks[right])
        torch.add(chunks[last_left], chunks[last_right], out=chunks[-1])
        divide(chunks[-1], divisor)


def divide(tensor: Tensor, divisor: float) -> None:
    """Divide in place. By a power of two this is a product: the same bits at a third of the time."""
    if divisor == 1.0:
        return
    if math.frexp(divisor)[0] == 0.5:
        tensor.mul_(1.0 / divisor)
    else:
        tensor.div_(divisor)


def _joined(older: Tensor | None, newer: Tensor | None) -> Tensor | None:
    if older is None:
        return None if newer is None else newer.add_(0.0)
    return older.add_(0.0 if newer is None else newer)


def _all_joined(older: Gradients, newer: Gradients) -> Gradients:
    left, right = _present(older), _present(newer)
    if len(left) == len(older) and len(right) == len(newer):
        torch._foreach_add_(left, right)
        return older
    return [_joined(*pair) for pair in zip(older, newer, strict=True)]


def _present(gradients: Gradients) -> list[Tensor]:
    return [gradient for gradient in gradients if gradient is not None]


def _divide_all(gradients: Gradients, divisor: float) -> None:
    for gradient in _present(gradients):
        divide(gradient, divisor)


def _copy_all(targets: list[Tensor], gradients: Gradients) -> None:
    present = _present(gradients)
    if len(present) == len(targets):
        torch._foreach_copy_(targets, present)
        return
    for target, gradient in zip(targets, gradients, strict=True):
        if gradient is None:
            target.zero_()
        else:
            target.copy_(gradient)


def _lie_alike(older: Tensor, newer: Tensor) -> bool:
    return older.stride() == newer.stride() and is_dense(older)


def _flattened(tensor: Tensor) -> Tensor:
    return tensor.as_strided((tensor.numel(),), (1,), tensor.storage_offset())
