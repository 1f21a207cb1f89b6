"""Small tensors between processes: what goes by value, and that it arrives as it was."""

import io
import pickle
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from elastane.worker.parcel import LARGEST_BYTES, Parcel, pack, unpack


class Pair(NamedTuple):
    x: Tensor
    y: Any


@dataclass
class Opaque:
    x: Tensor


def send(batch: Any) -> Any:
    """Take the way between two processes, without a second process."""
    return unpack(pickle.load(io.BytesIO(ForkingPickler.dumps(pack(batch)))))


@pytest.mark.parametrize(
    "dtype",
    [
        *(torch.float16, torch.float32, torch.float64, torch.bool, torch.uint8),
        *(torch.int8, torch.int16, torch.int32, torch.int64),
    ],
)
def test_a_small_tensor_arrives_with_the_same_bits_and_can_be_written_to(dtype: torch.dtype) -> None:
    tensor = torch.tensor([[0, 1, 2], [3, 4, 5]]).to(dtype)
    assert type(pack(tensor)) is Parcel
    arrived = send(tensor)
    assert (arrived.dtype, arrived.tolist()) == (dtype, tensor.tolist())
    arrived += tensor
    assert arrived.tolist() == (tensor + tensor).tolist()


def test_numbers_that_are_none_keep_their_bits() -> None:
    bits = torch.tensor([0x7FC00001, -0x80000000, 0x7F800000, 1], dtype=torch.int64).to(torch.int32)
    assert send(bits.view(torch.float32)).view(torch.int32).tolist() == bits.tolist()


@pytest.mark.parametrize(
    "strides", [(12, 4, 1, 1), (12, 1, 1, 99), (12, 4, 1, 7)], ids=["usual", "channels last", "odd"]
)
def test_a_layout_that_can_be_said_in_several_ways_is_said_in_the_same_one(strides: tuple[int, ...]) -> None:
    # A convolution chooses its kernel by the strides, also by those of dimensions with one element.
    tensor = torch.arange(24.0).as_strided((2, 1, 12, 1), (12, strides[1], 1, strides[3]))
    assert type(pack(tensor)) is Parcel
    arrived = send(tensor)
    assert (arrived.stride(), arrived.tolist()) == (tensor.stride(), tensor.tolist())


def test_whatever_holds_the_tensors_keeps_its_shape_and_all_else() -> None:
    array = np.arange(3)
    batch = {"pair": Pair(torch.tensor([1.0]), ["a", None]), "n": 3, "more": (torch.tensor(2), array)}
    arrived = send(batch)
    assert list(arrived) == ["pair", "n", "more"]
    assert type(arrived["pair"]) is Pair
    assert (arrived["pair"].x.tolist(), arrived["pair"].y) == ([1.0], ["a", None])
    assert arrived["n"] == 3
    assert (arrived["more"][0].tolist(), type(arrived["more"][0])) == (2, Tensor)
    assert type(arrived["more"][1]) is np.ndarray
    assert arrived["more"][1].tolist() == [0, 1, 2]


WHOLE = torch.arange(12.0)


@pytest.mark.parametrize(
    "batch",
    [
        torch.zeros(LARGEST_BYTES // 4 + 1),
        torch.zeros(0, 3),
        torch.ones(2, 2, dtype=torch.bfloat16),
        torch.ones(2, 2, dtype=torch.complex64),
        torch.ones(2, 3, 4, 4).to(memory_format=torch.channels_last),
        torch.ones(2, requires_grad=True),
        torch.ones(2).to_sparse(),
        torch.nn.Parameter(torch.ones(2), requires_grad=False),
        torch.tensor([1 + 2j]).conj().imag,
        [WHOLE[:8], WHOLE[4:]],
        [WHOLE, "and again", WHOLE],
        Opaque(torch.ones(2)),
        [1, "no tensor", None],
    ],
    ids=lambda batch: type(batch).__name__,
)
def test_what_is_large_or_special_or_shares_memory_goes_as_torch_sends_it(batch: Any) -> None:
    assert pack(batch) is batch
    assert unpack(batch) is batch


def test_views_of_one_tensor_share_memory_after_the_way() -> None:
    whole = torch.arange(12.0)
    left, right = send([whole[:8], whole[4:]])
    right[0] = -1.0
    assert left.tolist() == [0.0, 1.0, 2.0, 3.0, -1.0, 5.0, 6.0, 7.0]


def test_small_tensors_go_by_value_beside_large_ones() -> None:
    small, large = torch.ones(3), torch.ones(LARGEST_BYTES)
    packed = pack((small, large))
    assert list(packed.strides) == [0]
    assert packed.content[1] is large
    arrived = send((small, large))
    assert [tensor.sum().item() for tensor in arrived] == [3.0, float(LARGEST_BYTES)]
