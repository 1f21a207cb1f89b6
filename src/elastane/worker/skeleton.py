"""Nested Python data, taken apart into tensors and a skeleton that msgpack can carry, and put together again.

In a skeleton, None, bool, float, str, bytes and 64-bit integers stand for themselves; everything else is
a list whose first item names its kind. So nothing in it can be mistaken, types and dict order survive
exactly, and reading one runs no foreign code (pickle would). What the data means is not known here.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elastane.model.errors import UnsupportedModelError
from elastane.worker.layout import check_plain_tensor, dtype_name, parse_dtype

Skeleton = Any
"""What `TensorSplitter.split` returns: scalars, and lists that begin with a kind."""

_INT64 = range(-(1 << 63), 1 << 63)  # what msgpack holds as an integer


class TensorSplitter:
    """Take nested data apart; the tensors met so far are in `tensors`, by name.

    A tensor met under several names is kept once, under the first: it travels once, and those who share
    it at the sender (a learning rate of two groups) share it at the receiver.
    """

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._numbers: dict[tuple[object, ...], int] = {}

    def split(self, value: Any, path: str) -> Skeleton:
        """Return the skeleton of `value`.

        Args:
            value: plain data (scalars, str, bytes, containers, numpy values, dtypes, devices) and tensors.
            path: name of the value; tensors within are called path/key/key...

        Raises:
            UnsupportedModelError: something within is of another kind.
        """
        kind = type(value)
        if value is None or kind in (bool, float, str, bytes) or (kind is int and value in _INT64):
            return value
        if isinstance(value, Tensor):
            return ["tensor", self._add(value, path)]
        splitter = _SPLITTERS.get(kind)
        if splitter is not None:
            return splitter(self, value, path)
        if isinstance(value, np.ndarray | np.generic):
            return _split_numpy(self, value, path)
        raise UnsupportedModelError(
            f"{path} is a {kind.__module__}.{kind.__qualname__}; the state of a job holds tensors, numbers, "
            "strings, bytes, numpy values and lists, tuples, sets and dicts of them: convert it in "
            "state_dict and back in load_state_dict"
        )

    def _add(self, tensor: Tensor, path: str) -> int:
        check_plain_tensor(path, tensor)
        memory = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if tensor.numel() > 0 and memory in self._numbers:
            return self._numbers[memory]
        self._numbers[memory] = len(self.tensors)
        name, copies = path, 1
        while name in self.tensors:  # keys "a/b" and "a" -> "b", or 0 and "0", spell the same path
            copies += 1
            name = f"{path}#{copies}"
        self.tensors[name] = tensor.detach()
        return len(self.tensors) - 1


def _split_items(splitter: TensorSplitter, value: Sequence[Any], path: str) -> Skeleton:
    kind = "size" if isinstance(value, torch.Size) else type(value).__name__
    return [kind, *(splitter.split(item, f"{path}/{i}") for i, item in enumerate(value))]


def _split_set(splitter: TensorSplitter, value: Any, path: str) -> Skeleton:
    # The order of a set depends on the hash seed; the skeleton's must not.
    return [type(value).__name__, *sorted((splitter.split(item, path) for item in value), key=repr)]


def _split_dict(splitter: TensorSplitter, value: dict[Any, Any], path: str) -> Skeleton:
    skeleton: list[Any] = [type(value).__name__]
    for key, item in value.items():
        skeleton.append(splitter.split(key, path))
        skeleton.append(splitter.split(item, f"{path}/{key}"))
    return skeleton


def _split_ordered_dict(splitter: TensorSplitter, value: Any, path: str) -> Skeleton:
    # Module.state_dict hangs the versions of its modules on the dict as _metadata.
    metadata = splitter.split(getattr(value, "_metadata", None), f"{path}/_metadata")
    return ["OrderedDict", metadata, *_split_dict(splitter, value, path)[1:]]


def _split_numpy(splitter: TensorSplitter, value: Any, path: str) -> Skeleton:
    if value.dtype.hasobject:
        raise UnsupportedModelError(f"{path} is a numpy array of Python objects; use a list instead")
    return ["numpy", isinstance(value, np.generic), value.dtype.str, list(value.shape), value.tobytes()]


_SPLITTERS: dict[type, Callable[[TensorSplitter, Any, str], Skeleton]] = {
    list: _split_items,
    tuple: _split_items,
    torch.Size: _split_items,
    set: _split_set,
    frozenset: _split_set,
    dict: _split_dict,
    Counter: _split_dict,
    OrderedDict: _split_ordered_dict,
    int: lambda _splitter, value, _path: ["int", hex(value)],
    complex: lambda _splitter, value, _path: ["complex", value.real, value.imag],
    torch.dtype: lambda _splitter, value, _path: ["dtype", dtype_name(value)],
    torch.device: lambda _splitter, value, _path: ["device", str(value)],
}


def join_tensors(skeleton: Skeleton, tensors: Sequence[Tensor]) -> Any:
    """Return the data that `skeleton` was made of, with `tensors` (by number) in their places.

    Raises:
        ValueError: the skeleton is damaged.
    """
    if not isinstance(skeleton, list):
        return skeleton
    try:
        return _JOINERS[skeleton[0]](skeleton[1:], tensors)
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(f"the skeleton of a state is damaged at {str(skeleton)[:80]}: {error}") from error


def _join_items(items: Sequence[Skeleton], tensors: Sequence[Tensor]) -> list[Any]:
    return [join_tensors(item, tensors) for item in items]


def _join_dict(items: Sequence[Skeleton], tensors: Sequence[Tensor]) -> dict[Any, Any]:
    values = _join_items(items, tensors)
    return dict(zip(values[::2], values[1::2], strict=True))


def _join_ordered_dict(items: Sequence[Skeleton], tensors: Sequence[Tensor]) -> OrderedDict[Any, Any]:
    joined = OrderedDict(_join_dict(items[1:], tensors))
    metadata = join_tensors(items[0], tensors)
    if metadata is not None:
        joined.__dict__["_metadata"] = metadata
    return joined


def _join_numpy(items: Sequence[Any], _tensors: Sequence[Tensor]) -> Any:
    is_scalar, dtype, shape, content = items
    array = np.frombuffer(bytearray(content), dtype=np.dtype(dtype)).reshape(shape)
    return array[()] if is_scalar else array


_JOINERS: dict[str, Callable[[Sequence[Any], Sequence[Tensor]], Any]] = {
    "tensor": lambda items, tensors: tensors[items[0]],
    "list": _join_items,
    "tuple": lambda items, tensors: tuple(_join_items(items, tensors)),
    "size": lambda items, _tensors: torch.Size(items),
    "set": lambda items, tensors: set(_join_items(items, tensors)),
    "frozenset": lambda items, tensors: frozenset(_join_items(items, tensors)),
    "dict": _join_dict,
    "Counter": lambda items, tensors: Counter(_join_dict(items, tensors)),
    "OrderedDict": _join_ordered_dict,
    "numpy": _join_numpy,
    "int": lambda items, _tensors: int(items[0], 16),
    "complex": lambda items, _tensors: complex(items[0], items[1]),
    "dtype": lambda items, _tensors: parse_dtype(items[0]),
    "device": lambda items, _tensors: torch.device(items[0]),
}

_DICT_KINDS = {"dict": 1, "Counter": 1, "OrderedDict": 2}  # position of the first key
_ITEM_KINDS = ("list", "tuple", "size")


def iterate_leaves(skeleton: Skeleton, path: str) -> Iterator[tuple[str, Skeleton]]:
    """Yield (name, skeleton) of all that `skeleton` holds.

    Containers yield their kind and length, so that an empty list differs from an absent one.
    """
    kind = skeleton[0] if isinstance(skeleton, list) else ""
    if kind in _DICT_KINDS:
        pairs = skeleton[_DICT_KINDS[kind] :]
        yield path, [kind, len(pairs) // 2]
        for key, item in zip(pairs[::2], pairs[1::2], strict=True):
            yield from iterate_leaves(item, f"{path}/{key}")
    elif kind in _ITEM_KINDS:
        yield path, [kind, len(skeleton) - 1]
        for i, item in enumerate(skeleton[1:]):
            yield from iterate_leaves(item, f"{path}/{i}")
    else:
        yield path, skeleton
