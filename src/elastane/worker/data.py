"""Settings of data loading, and what is done with one request for a batch.

A request names the samples and the seed under which they are fetched, so a batch's bits depend on
neither the process that fetches it nor on what that process fetched before.
"""

import pickle
import traceback
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, default_collate

from elastane.model.errors import ConfigError, UnsupportedModelError
from elastane.worker.seeding import apply_seed


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedSettings:
    """Say how batches are loaded; the names and meanings are those of torch's DataLoader.

    Attributes:
        shuffle: a new order each epoch (DistributedSampler's) instead of the data set's own.
        num_workers: data-loading processes; 0 loads in the training process.
        collate_fn: makes a batch of a list of samples; None takes torch's default_collate.
        pin_memory: put batches into page-locked memory.
        prefetch_factor: batches that each data-loading process prepares ahead.
        worker_init_fn: called with its number in each data-loading process when it starts.
        multiprocessing_context: "fork", "spawn", "forkserver" or a context; None takes torch's default.
        timeout_s: longest wait for one batch from the data-loading processes; 0 waits for ever.
    """

    shuffle: bool = False
    num_workers: int = 0
    collate_fn: Callable[[Any], Any] | None = None
    pin_memory: bool = False
    prefetch_factor: int = 2  # DataLoader's default
    worker_init_fn: Callable[[int], None] | None = None
    multiprocessing_context: Any = None
    timeout_s: float = 0.0

    def __post_init__(self) -> None:
        if self.num_workers < 0:
            raise ConfigError(
                f"num_workers is {self.num_workers}; it is the number of data-loading processes, at least 0"
            )
        if self.prefetch_factor < 1:
            raise ConfigError(
                f"prefetch_factor is {self.prefetch_factor}; it is the number of batches that each "
                "data-loading process prepares ahead, at least 1"
            )
        if self.timeout_s < 0:
            raise ConfigError(f"timeout_s is {self.timeout_s}; give seconds, or 0 to wait for ever")


def check_dataset(dataset: object) -> int:
    """Return the number of samples of a map-style data set.

    Raises:
        ConfigError: a DataLoader was given, or something without a length or without indexing.
        UnsupportedModelError: the data set is iterable-style: it has no positions to deal out.
    """
    name = type(dataset).__name__
    if isinstance(dataset, DataLoader):
        raise ConfigError(
            "a DataLoader was passed where a data set is needed: its order and batches are made for one "
            "process; pass its data set (loader.dataset) together with batch_size, shuffle, num_workers "
            "and collate_fn"
        )
    if isinstance(dataset, IterableDataset):
        raise UnsupportedModelError(
            f"{name} is an IterableDataset: its samples have no positions, so they cannot be dealt exactly "
            "once to workers that come and go; wrap it in a data set with __len__ and __getitem__, for "
            "example read it once into a list or into an index of file offsets; for files: elastane.shards"
        )
    if not hasattr(dataset, "__getitem__"):
        raise ConfigError(f"{name} has no __getitem__; a data set gives sample i as dataset[i]")
    if not isinstance(dataset, Sized):
        raise ConfigError(
            f"{name} has no __len__; every worker must know the number of samples to find its own: "
            "define __len__"
        )
    return len(dataset)


class FetchRequest(NamedTuple):
    """Ask for one batch: the samples and the seed under which they are fetched and collated."""

    seed: int
    indices: Sequence[Any]
    """Numbers of samples; of data in shards also picks: see `worker.shards`."""


@dataclass(frozen=True, slots=True)
class FetchFailure:
    """Carry the exception that a data set raised to the process that asked for the batch."""

    error: Exception


class RequestedBatches:
    """Answer requests from a data set; looks to a DataLoader like a data set that is read batch by batch."""

    def __init__(self, dataset: Any, collate_fn: Callable[[Any], Any] | None) -> None:
        self.dataset = dataset
        self._collate = collate_fn if collate_fn is not None else default_collate
        self._tensors = _indexable_tensors(dataset) if collate_fn is None else None

    def __getitems__(self, request: FetchRequest | None) -> Any:
        """Return the batch; None for no request; a FetchFailure where the data set or collate_fn raised."""
        if request is None:
            return None
        if self._tensors is None:  # rows of tensors are the same under any seed
            apply_seed(request.seed)
        # Data-loading processes compute on one thread; sums over several threads may differ in their bits.
        threads = torch.get_num_threads()
        if threads != 1:
            torch.set_num_threads(1)
        try:
            if self._tensors is not None:
                places = torch.tensor(request.indices)
                return [tensor.index_select(0, places) for tensor in self._tensors]
            return self._collate(self._samples(request.indices))
        except Exception as error:  # noqa: BLE001 - handed to the caller of fetch, whichever it is
            return FetchFailure(_portable(error, request.indices))
        finally:
            if threads != 1:
                torch.set_num_threads(threads)

    def _samples(self, indices: Sequence[Any]) -> Any:
        many = getattr(self.dataset, "__getitems__", None)
        if many is not None:
            return many(indices)
        return [self.dataset[index] for index in indices]


def _indexable_tensors(dataset: Any) -> tuple[torch.Tensor, ...] | None:
    # Taking all samples at once gives the batch that default_collate stacks of single ones, for a tenth of
    # the time. A subclass may do more in __getitem__.
    if type(dataset) is not TensorDataset:
        return None
    plain = all(t.layout is torch.strided and t.device.type == "cpu" for t in dataset.tensors)
    return dataset.tensors if plain else None


def _portable(error: Exception, indices: Sequence[Any]) -> Exception:
    # The traceback does not survive the way between processes, so its text goes along as a note.
    if isinstance(error, StopIteration):  # would end the caller's loop as if the epoch were over
        cause, error = error, RuntimeError("the data set raised StopIteration")
        error.__cause__ = cause
    error.add_note(f"while fetching samples {_shortened(indices)}")
    if torch.utils.data.get_worker_info() is None:
        return error
    text = "".join(traceback.format_exception(error))
    try:
        copy = pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - any fault of the user's class means: send the text alone
        copy = None
    if type(copy) is not type(error):
        error = RuntimeError(f"{type(error).__name__} in a data-loading process: {error}")
    error.add_note(f"raised in a data-loading process:\n{text}")
    return error


def _shortened(indices: Sequence[Any]) -> str:
    shown = 8  # enough to find the sample, short enough for one line
    first = str(list(indices[:shown]))
    return first if len(indices) <= shown else f"{first} and {len(indices) - shown} more"
