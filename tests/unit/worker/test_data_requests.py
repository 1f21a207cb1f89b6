"""One request gives one batch, the same wherever and whenever it is answered; wrong data sets are refused."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from feed_samples import Augmented, as_list
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

from elastane.model.errors import ConfigError, UnsupportedModelError
from elastane.worker.data import (
    FeedSettings,
    FetchFailure,
    FetchRequest,
    RequestedBatches,
    check_dataset,
)


def answer(dataset: Any, *indices: int, seed: int = 1, collate_fn: Any = None) -> Any:
    return RequestedBatches(dataset, collate_fn).__getitems__(FetchRequest(seed, list(indices)))


def test_samples_are_collated_as_torch_does() -> None:
    dataset = TensorDataset(torch.arange(10), torch.arange(10) * 2.0)
    batch = answer(dataset, 3, 1)
    assert [part.tolist() for part in batch] == [[3, 1], [6.0, 2.0]]


def test_a_tensor_data_set_that_is_read_at_once_gives_the_batch_that_its_samples_stack_to() -> None:
    images = torch.randn(6, 8, 4).transpose(1, 2)
    dataset = TensorDataset(images, torch.arange(6), torch.randn(6, 1).half())
    batch = answer(dataset, 5, 0, 5)
    stacked = default_collate([dataset[index] for index in (5, 0, 5)])
    assert type(batch) is type(stacked) is list
    for part, expected in zip(batch, stacked, strict=True):
        assert torch.equal(part, expected)
        assert (part.dtype, part.stride()) == (expected.dtype, expected.stride())


def test_a_subclass_of_a_tensor_data_set_is_read_by_its_own_samples() -> None:
    class Doubled(TensorDataset):
        def __getitem__(self, index: int) -> tuple[torch.Tensor, ...]:
            return tuple(2 * part for part in super().__getitem__(index))

    assert [part.tolist() for part in answer(Doubled(torch.arange(5)), 4, 1)] == [[8, 2]]


def test_a_request_draws_the_same_numbers_whatever_was_answered_before() -> None:
    dataset = Augmented(10)
    batches = RequestedBatches(dataset, as_list)
    first = batches.__getitems__(FetchRequest(5, [1, 2]))
    batches.__getitems__(FetchRequest(6, [1, 2]))
    random.seed(0)
    assert batches.__getitems__(FetchRequest(5, [1, 2])) == first
    assert batches.__getitems__(FetchRequest(7, [1, 2])) != first


def test_collating_draws_from_the_request_s_seed_too() -> None:
    def mixed(samples: list[int]) -> list[Any]:
        return [*samples, torch.rand(()).item()]

    assert answer(range(9), 4, collate_fn=mixed) == answer(range(9), 4, collate_fn=mixed)


def test_a_data_set_that_reads_many_samples_at_once_is_asked_once() -> None:
    class Many(Augmented):
        def __getitems__(self, indices: list[int]) -> list[Any]:
            return [("many", index) for index in indices]

    assert answer(Many(9), 2, 5, collate_fn=as_list) == [("many", 2), ("many", 5)]


def test_no_request_gives_no_batch() -> None:
    assert RequestedBatches(Augmented(3), None).__getitems__(None) is None


def test_data_is_read_on_one_thread_as_in_a_data_loading_process() -> None:
    class Threads(Augmented):
        def __getitem__(self, index: int) -> Any:
            if index > 5:
                raise KeyError(index)
            return torch.get_num_threads()

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        batch = answer(Threads(9), 1, 2, collate_fn=as_list)
        failure = answer(Threads(9), 6, collate_fn=as_list)
        after = torch.get_num_threads()
    finally:
        torch.set_num_threads(before)
    assert batch == [1, 1]
    assert isinstance(failure, FetchFailure)
    assert after == 3


def test_an_error_of_the_data_set_comes_back_with_the_samples_that_were_asked_for() -> None:
    class Broken(Augmented):
        def __getitem__(self, index: int) -> Any:
            raise KeyError(f"no file for {index}")

    failure = answer(Broken(20), *range(10))
    assert isinstance(failure, FetchFailure)
    assert type(failure.error) is KeyError
    assert failure.error.args == ("no file for 0",)
    assert failure.error.__notes__ == ["while fetching samples [0, 1, 2, 3, 4, 5, 6, 7] and 2 more"]


def test_a_data_set_that_stops_iteration_cannot_end_the_epoch_unseen() -> None:
    class Stopping(Augmented):
        def __getitem__(self, index: int) -> Any:
            return next(iter(()))

    failure = answer(Stopping(3), 0)
    assert isinstance(failure.error, RuntimeError)
    assert isinstance(failure.error.__cause__, StopIteration)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_workers": -1}, "num_workers is -1; .* at least 0"),
        ({"prefetch_factor": 0}, "prefetch_factor is 0; .* at least 1"),
        ({"timeout_s": -0.5}, r"timeout_s is -0\.5; give seconds, or 0"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FeedSettings(**settings)


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


class Endless(Dataset[int]):
    def __getitem__(self, index: int) -> int:
        return index


def test_the_length_of_a_data_set_is_told() -> None:
    assert check_dataset(Augmented(7)) == 7
    assert check_dataset([1, 2, 3]) == 3


def test_a_data_loader_is_refused_with_what_to_pass_instead() -> None:
    with pytest.raises(ConfigError, match=r"DataLoader was passed .* pass its data set \(loader\.dataset\)"):
        check_dataset(DataLoader(Augmented(3)))  # type: ignore[arg-type]


def test_an_iterable_data_set_is_refused_with_what_to_do() -> None:
    with pytest.raises(UnsupportedModelError, match=r"Stream is an IterableDataset.*wrap it"):
        check_dataset(Stream())


def test_a_data_set_without_a_length_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"Endless has no __len__.*define __len__"):
        check_dataset(Endless())


def test_something_that_cannot_be_indexed_is_refused() -> None:
    with pytest.raises(ConfigError, match="set has no __getitem__"):
        check_dataset({1, 2})
