"""Nested data is taken apart and put together again without losing a type or a bit."""

import math
import struct
from collections import Counter, OrderedDict, defaultdict
from enum import IntEnum
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from elastane.model.errors import UnsupportedModelError
from elastane.worker.layout import allocate_tensor, describe_tensor, flat_bytes, memory_order, parse_dtype
from elastane.worker.skeleton import TensorSplitter, iterate_leaves, join_tensors

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False)
)
KEYS = st.text() | st.integers() | st.booleans() | st.tuples(st.integers(), st.text())
PLAIN = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(KEYS, inner)
        | st.dictionaries(KEYS, inner).map(OrderedDict)
        | st.sets(st.integers() | st.text())
        | st.frozensets(st.binary())
        | st.dictionaries(KEYS, st.integers()).map(Counter)
    ),
    max_leaves=20,
)


def through_wire(value: Any) -> Any:
    splitter = TensorSplitter()
    skeleton = splitter.split(value, "x")
    received = msgspec.msgpack.decode(msgspec.msgpack.encode(skeleton))
    return join_tensors(received, tuple(splitter.tensors.values()))


def typed(value: Any) -> Any:
    """Return the value with all types spelled out, since 1 == 1.0 == True."""
    if isinstance(value, dict):
        return type(value), [(typed(k), typed(v)) for k, v in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [typed(item) for item in value]
    return type(value), value


@given(PLAIN)
def test_plain_data_comes_back_with_every_type_and_order(value: Any) -> None:
    assert typed(through_wire(value)) == typed(value)


@given(st.integers(0, (1 << 64) - 1).map(lambda bits: struct.unpack("<d", struct.pack("<Q", bits))[0]))
def test_floats_keep_their_bits(value: float) -> None:
    received = through_wire([value])[0]
    assert struct.pack("<d", received) == struct.pack("<d", value)


@pytest.mark.parametrize(
    "value",
    [
        np.float64(-0.0),
        np.float32(0.1),
        np.int64(-7),
        np.bool_(True),
        np.str_("warm"),
        np.arange(6, dtype=np.uint16).reshape(2, 3),
        np.zeros((0, 4)),
        np.array(["a", "bc"]),
    ],
)
def test_numpy_values_come_back_alike(value: Any) -> None:
    received = through_wire({"lr": value})["lr"]
    assert type(received) is type(value)
    assert received.dtype == value.dtype
    assert np.array_equal(received, value)


def test_received_numpy_arrays_can_be_written() -> None:
    received = through_wire(np.zeros(3))
    received += 1
    assert received.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "value", [torch.Size([2, 3]), torch.float16, torch.device("cuda:1"), -(1 << 63), 1 << 63, math.inf]
)
def test_torch_values_and_large_numbers_come_back(value: Any) -> None:
    assert typed(through_wire(value)) == typed(value)


def test_module_versions_stay_on_an_ordered_dict() -> None:
    state = nn.BatchNorm1d(2).state_dict()
    received = through_wire(state)
    assert type(received) is OrderedDict
    assert received._metadata == state._metadata  # type: ignore[attr-defined]


def test_tensors_are_named_by_their_path_and_doubles_are_numbered() -> None:
    splitter = TensorSplitter()
    value = {"a": {"b": torch.zeros(1)}, "a/b": torch.ones(2), 0: torch.zeros(3), "0": torch.zeros(4)}
    splitter.split(value, "x")
    lengths = {name: len(tensor) for name, tensor in splitter.tensors.items()}
    assert lengths == {"x/a/b": 1, "x/a/b#2": 2, "x/0": 3, "x/0#2": 4}


def test_a_tensor_met_twice_is_kept_once() -> None:
    splitter = TensorSplitter()
    shared = torch.zeros(2)
    skeleton = splitter.split([shared, shared.detach(), torch.zeros(2), shared[:1]], "x")
    assert list(splitter.tensors) == ["x/0", "x/2", "x/3"]
    joined = join_tensors(skeleton, tuple(splitter.tensors.values()))
    assert joined[0] is joined[1]


class Level(IntEnum):
    ONE = 1


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lambda: 1, "x/0 is a builtins.function"),
        (defaultdict(list), "x/0 is a collections.defaultdict"),
        (Level.ONE, "x/0 is a test_state_skeleton.Level"),
        (np.array([{}]), "x/0 is a numpy array of Python objects"),
        (torch.zeros(2, device="meta"), "x/0 is a Tensor .* device meta"),
    ],
)
def test_other_data_is_refused_with_its_place(value: Any, message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        TensorSplitter().split([value], "x")


@pytest.mark.parametrize(
    "skeleton", [["unheard of", 1], ["tensor", 5], ["dict", "a"], ["complex", "x", None], ["dtype", "nn"], []]
)
def test_a_damaged_skeleton_is_a_value_error(skeleton: Any) -> None:
    with pytest.raises(ValueError, match=r"skeleton|dtype|zip"):
        join_tensors(skeleton, ())


def test_leaves_leave_tensors_out_and_tell_empty_from_absent() -> None:
    value = {"a": [1.5, torch.zeros(1)], "b": (), "c": {}, "d": OrderedDict(e=None)}
    leaves = dict(iterate_leaves(TensorSplitter().split(value, "x"), "x"))
    assert leaves == {
        "x": ["dict", 4],
        "x/a": ["list", 2],
        "x/a/0": 1.5,
        "x/a/1": ["tensor", 0],
        "x/b": ["tuple", 0],
        "x/c": ["dict", 0],
        "x/d": ["OrderedDict", 1],
        "x/d/e": None,
    }


IMAGES = torch.arange(2 * 3 * 4 * 5, dtype=torch.float32).reshape(2, 3, 4, 5)


@pytest.mark.parametrize(
    ("tensor", "order"),
    [
        (IMAGES, ()),
        (IMAGES.to(memory_format=torch.channels_last), (0, 2, 3, 1)),
        (IMAGES[0, 0].t(), (1, 0)),
        (torch.zeros(4, 1, 3).as_strided((4, 1, 3), (3, 77, 1)), ()),
        (torch.zeros(3, 1, 4).as_strided((4, 1, 3), (1, 77, 4)), (1, 2, 0)),
        (IMAGES[:, :, ::2], None),
        (torch.zeros(1).expand(3), None),
        (torch.tensor(1.0), ()),
        (torch.ones(2, dtype=torch.complex64).conj(), None),
    ],
)
def test_memory_order(tensor: Tensor, order: tuple[int, ...] | None) -> None:
    assert memory_order(tensor) == order


@pytest.mark.parametrize(
    "dtype",
    [
        *(torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.float8_e4m3fn),
        *(torch.bool, torch.int64, torch.uint8, torch.complex64),
    ],
)
@pytest.mark.parametrize(
    "view",
    [
        lambda t: t,
        lambda t: t.to(memory_format=torch.channels_last),
        lambda t: t[:, :, ::2],
        lambda t: t[0, 0, 0, 0],
        lambda t: t[:0],
    ],
)
def test_a_tensor_is_rebuilt_from_its_entry_and_its_bytes(dtype: torch.dtype, view: Any) -> None:
    tensor = view(IMAGES.to(dtype))

    entry = describe_tensor("x", tensor)
    rebuilt = allocate_tensor(entry, torch.device("cpu"))
    flat_bytes(rebuilt).copy_(flat_bytes(tensor))

    assert describe_tensor("x", rebuilt) == entry
    assert flat_bytes(tensor).numel() == entry.nbytes
    assert rebuilt.tolist() == tensor.tolist()


def test_only_dtypes_are_dtypes() -> None:
    with pytest.raises(ValueError, match="no dtype 'nn'"):
        parse_dtype("nn")
