"""Settings of data loading, and what one data-loading process does with one request.

A request names the samples and the seed under which they are fetched, so a batch's bits depend on
neither the process that fetches it nor on what that process fetched before.
"""

from collections.abc import Callable, Sized
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from elastane.model.errors import ConfigError, UnsupportedModelError


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedSettings:
    """Say how batches are loaded; the names and meanings are those of torch's DataLoader.

    Attributes:
        shuffle: a new order each epoch (DistributedSampler's) instead of the data set's own.
        num_workers: data-loading processes; 0 loads in the training process.
        prefetch_factor: batches that each data-loading process prepares ahead.
        timeout_s: longest wait for one batch from the data-loading processes; 0 waits for ever.
        multiprocessing_context: "fork", "spawn", "forkserver" or a context; None takes torch's default.
    """

    shuffle: bool = False
    num_workers: int = 0
    collate_fn: Callable[[Any], Any] | None = None
    pin_memory: bool = False
    prefetch_factor: int = 2  # DataLoader's default
    worker_init_fn: Callable[[int], None] | None = None
    multiprocessing_context: Any = None
    timeout_s: float = 0.0


def check_dataset(dataset: object) -> int:
    """Return the number of samples of a map-style data set.

    Raises:
        ConfigError: a DataLoader was given, or something without a length or without indexing.
        UnsupportedModelError: the data set is iterable-style: it has no positions to deal out.
    """
    if isinstance(dataset, DataLoader):
        raise ConfigError(
            "a DataLoader was passed where a data set is needed: its order and batches are fixed to one "
            "process; pass its data set (loader.dataset) together with batch_size, shuffle, num_workers and "
            "collate_fn"
        )
    if isinstance(dataset, IterableDataset):
        raise UnsupportedModelError(
            f"{type(dataset).__name__} is an IterableDataset: its samples have no positions, so they cannot be "
            "dealt exactly once to workers that come and go; wrap it in a data set with __len__ and "
            "__getitem__ (for example read it once into a list or an index of file offsets)"
        )
    if not hasattr(dataset, "__getitem__"):
        raise ConfigError(
            f"{type(dataset).__name__} has no __getitem__; a data set gives sample i as dataset[i]"
        )
    if not isinstance(dataset, Sized):
        raise ConfigError(
            f"{type(dataset).__name__} has no __len__; every worker must know the number of samples to find its "
            "own, so define __len__"
        )
    return len(dataset)
