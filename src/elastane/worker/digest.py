"""Digests of the committed state: equal exactly when all names, types, shapes and bits are equal.

They do not depend on where and in which order tensors lie in memory, on the order of dicts or on the hash
seed. Bits count: 0.0 differs from -0.0, and a NaN from a NaN with another payload.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping

import msgspec
import torch
from torch import Tensor, nn

from elastane.worker.layout import dtype_name
from elastane.worker.skeleton import iterate_leaves
from elastane.worker.state import CapturedState

_EVALUATING = re.compile(r"model\d*/evaluating(/|$)")


def compute_digests(state: CapturedState) -> dict[str, str]:
    """Return the sha256 of every tensor and every plain value of a state, by name.

    Left out are devices and the modules' training flags: a worker that has just evaluated is no other.
    """
    tensor_digests = [_tensor_digest(tensor) for tensor in state.tensors.values()]
    digests: dict[str, str] = {}
    for part, skeleton in state.skeleton.items():
        for path, leaf in iterate_leaves(skeleton, part):
            kind = leaf[0] if isinstance(leaf, list) else ""
            if kind == "device" or _EVALUATING.match(path):
                continue
            digest = tensor_digests[leaf[1]] if kind == "tensor" else _value_digest(leaf)
            # Keys "a/b" and "a" -> "b", or 0 and "0", spell the same path.
            digests[path] = _value_digest([digests[path], digest]) if path in digests else digest
    digests["step"] = _value_digest(state.step)
    digests["epoch"] = _value_digest(state.epoch)
    return digests


def compute_digest(state: CapturedState) -> str:
    """Return one sha256 (hex) for the whole state."""
    return _join_digests(compute_digests(state).items())


def compare_digests(own: Mapping[str, str], other: Mapping[str, str]) -> str | None:
    """Return the name of the first tensor or value that differs; None if all are equal.

    First are the models' tensors in the order of the model, since what differs there explains the rest.
    """
    return next((name for name in [*own, *other] if own.get(name) != other.get(name)), None)


def model_digest(model: nn.Module, *, buffers: bool = False) -> str:
    """Return one sha256 (hex) of a model's parameters, and of its buffers if asked, whoever trained it."""
    tensors: dict[str, Tensor] = dict(model.named_parameters())
    if buffers:
        tensors.update(model.named_buffers())
    return _join_digests((name, _tensor_digest(tensor)) for name, tensor in tensors.items())


def _tensor_digest(tensor: Tensor) -> str:
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    digest = hashlib.sha256(f"{dtype_name(plain.dtype)} {list(plain.shape)}\n".encode())
    digest.update(plain.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _value_digest(value: object) -> str:
    return hashlib.sha256(msgspec.msgpack.encode(value)).hexdigest()


def _join_digests(digests: Iterable[tuple[str, str]]) -> str:
    lines = (f"{digest} {name}\n" for name, digest in sorted(digests))
    return hashlib.sha256("".join(lines).encode()).hexdigest()
