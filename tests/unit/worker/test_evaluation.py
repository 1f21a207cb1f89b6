"""Evaluation: the shares cover every batch, and joined results are the same however they were dealt."""

import io
import pickle
from collections import namedtuple
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy
import pytest
import torch
from feed_samples import Augmented, as_list
from hypothesis import given
from hypothesis import strategies as st

from elastane.model.errors import ConfigError, UnsupportedModelError
from elastane.worker.data import FeedSettings
from elastane.worker.evaluation import (
    EvalLoader,
    compute_eval_shares,
    compute_missing,
    join_results,
    pack_results,
    unpack_results,
)

SETTINGS = FeedSettings(collate_fn=as_list)


def loader_of(share: list[int] | None = None, *, dataset: Any = None, batch_size: int = 3) -> EvalLoader:
    dataset = dataset if dataset is not None else Augmented(10)
    assign = None if share is None else lambda _: share
    return EvalLoader(dataset, batch_size, 7, settings=SETTINGS, assign=assign)


@given(st.integers(0, 50), st.integers(1, 12))
def test_shares_cover_all_batches_in_order_and_differ_by_one_at_most(batches: int, workers: int) -> None:
    shares = compute_eval_shares(batches, workers)
    lengths = [len(share) for share in shares]
    assert list(chain.from_iterable(shares)) == list(range(batches))
    assert len(shares) == workers
    assert max(lengths) - min(lengths) <= 1


def test_what_a_lost_worker_did_not_report_is_missing() -> None:
    assert compute_missing(6, [4, 0, 5, 0]) == (1, 2, 3)
    assert compute_missing(2, [0, 1]) == ()


def test_a_lone_worker_gets_all_batches_in_sample_order() -> None:
    loader = loader_of()
    batches = [[sample[0] for sample in batch] for batch in loader]
    assert batches == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
    assert (loader.batches, len(loader), loader.yielded) == (4, 4, (0, 1, 2, 3))


def test_a_batch_is_the_same_in_every_share_and_pass() -> None:
    whole = list(loader_of())
    loader = loader_of([3, 1])
    assert [list(loader), list(loader)] == [[whole[3], whole[1]]] * 2
    assert (len(loader), loader.yielded) == (2, (3, 1))


def test_code_between_two_batches_draws_numbers_that_belong_to_the_batch() -> None:
    def drawn(share: list[int], dataset: Any = None) -> dict[int, float]:
        loader = loader_of(share, dataset=dataset)
        return {number: torch.rand(()).item() for number, _ in zip(share, loader, strict=True)}

    whole = drawn([0, 1, 2, 3])
    assert drawn([0, 1, 2, 3], range(10)) == whole  # whatever the data set draws, here or in another process
    assert len(set(whole.values())) == 4
    assert drawn([2]) == {2: whole[2]}
    assert drawn([3, 1]) == {3: whole[3], 1: whole[1]}


@pytest.mark.parametrize("share", [[], [1], [0, 1, 2, 3]])
def test_an_evaluation_leaves_the_random_generators_where_they_were(share: list[int]) -> None:
    before = torch.get_rng_state(), numpy.random.get_state()[1].tolist()
    for _ in loader_of(share):
        torch.rand(3)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert numpy.random.get_state()[1].tolist() == before[1]


def test_a_pass_that_is_broken_off_ends_when_told_or_when_another_begins() -> None:
    loader = loader_of()
    before = torch.get_rng_state()
    first = iter(loader)
    next(first)
    loader.finish()
    assert torch.equal(torch.get_rng_state(), before)
    second = iter(loader)
    assert [sample[0] for sample in next(second)] == [0, 1, 2]
    assert list(first) == []
    assert len(list(second)) == 3
    assert loader.yielded == (0, 1, 2, 3)
    assert torch.equal(torch.get_rng_state(), before)
    loader.close()
    assert len(list(loader)) == 4


class Broken(Augmented):
    def __getitem__(self, index: int) -> Any:
        if index == 4:
            raise OSError("sample 4 is gone")
        return super().__getitem__(index)


def test_an_error_of_the_data_set_reaches_the_evaluation() -> None:
    loader = loader_of(dataset=Broken(10))
    with pytest.raises(OSError, match="sample 4 is gone"):
        list(loader)
    assert loader.yielded == (0,)


class Interrupted(Augmented):
    def __getitem__(self, index: int) -> Any:
        if index == 4:
            raise KeyboardInterrupt
        return super().__getitem__(index)


def test_an_interrupted_evaluation_can_be_begun_again() -> None:
    loader = loader_of(dataset=Interrupted(10))
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            list(loader)


class Stream(torch.utils.data.IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"batch_size is 0; .* at least 1"):
        loader_of(batch_size=0)
    with pytest.raises(ConfigError, match="leave shuffle out"):
        EvalLoader(Augmented(3), 1, 0, settings=FeedSettings(shuffle=True))
    with pytest.raises(UnsupportedModelError):
        EvalLoader(Stream(), 1, 0, settings=FeedSettings())


def sample_results(count: int) -> list[Any]:
    """Results per batch of 3 samples: per-sample tensors, and scalars of every kind."""
    made = torch.Generator().manual_seed(0)
    return [
        {
            "logits": torch.randn(3, 2, generator=made),
            "loss": torch.randn((), generator=made, dtype=torch.float64),
            "parts": (torch.full((3,), number), [0.1 * number, number, number % 2 == 0]),
        }
        for number in range(count)
    ]


def as_bytes(joined: Any) -> Any:
    if isinstance(joined, dict):
        return {key: as_bytes(value) for key, value in joined.items()}
    if isinstance(joined, tuple):
        return tuple(as_bytes(value) for value in joined)
    return joined.dtype, tuple(joined.shape), joined.numpy().tobytes()


@given(st.integers(1, 9), st.integers(1, 5), st.randoms(use_true_random=False))
def test_joined_results_do_not_depend_on_workers_order_or_covering(
    batches: int, workers: int, order: Any
) -> None:
    results = sample_results(batches)
    packed = [
        pack_results(share, [results[number] for number in share])
        for share in compute_eval_shares(batches, workers)
    ]
    pairs = [pair for share in [*packed, packed[-1]] for pair in unpack_results(share)]  # the last one twice
    order.shuffle(pairs)
    assert as_bytes(join_results(pairs)) == as_bytes(join_results(enumerate(results)))


def test_tensors_are_joined_by_samples_and_scalars_by_batches() -> None:
    joined = join_results(
        [(1, {"a": torch.tensor([3]), "b": 0.5}), (0, {"b": 0.25, "a": torch.tensor([1, 2])})]
    )
    assert joined["a"].tolist() == [1, 2, 3]
    assert (joined["b"].dtype, joined["b"].tolist()) == (torch.float64, [0.25, 0.5])


def test_arrays_and_named_tuples_become_tensors_and_tuples_whether_they_travel_or_not() -> None:
    scores = namedtuple("scores", ["hits", "total"])
    result = scores(numpy.array([True, False]), numpy.float32(1.5))
    stayed = join_results([(0, result)])
    travelled = join_results(unpack_results(pack_results([0], [result])))
    assert type(stayed) is tuple
    assert as_bytes(stayed) == as_bytes(travelled)
    assert as_bytes(stayed) == ((torch.bool, (2,), b"\x01\x00"), (torch.float32, (1,), b"\x00\x00\xc0\x3f"))


def test_results_with_gradients_and_views_are_packed_small() -> None:
    large = torch.zeros(100_000, requires_grad=True)
    packed = pack_results([0], [large[:3] * 1.0 + large[5:8]])
    view = pack_results([0], [large[:3]])
    assert max(len(packed), len(view)) < 4_000
    assert unpack_results(view)[0][1].requires_grad is False


class Payload:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return pytest.fail, ("code from a message was run",)


def test_unpacking_runs_no_code_of_the_sender() -> None:
    hostile = io.BytesIO()
    torch.save(([0], [Payload()]), hostile)
    with pytest.raises(pickle.UnpicklingError):
        unpack_results(hostile.getvalue())


def test_results_that_cannot_be_joined_are_refused_with_what_to_give() -> None:
    with pytest.raises(ConfigError, match="1 results for 2 batches; give one result for each batch"):
        pack_results([0, 1], [torch.zeros(1)])
    with pytest.raises(ConfigError, match="a result holds a str; give tensors, numbers"):
        pack_results([0], ["accuracy"])
    with pytest.raises(ConfigError, match="there are no results to join"):
        join_results([])
    with pytest.raises(ConfigError, match="built differently"):
        join_results([(0, {"a": 1}), (1, {"b": 1})])
    with pytest.raises(ConfigError, match="built differently"):
        join_results([(0, torch.zeros(())), (1, torch.zeros(1))])
