"""Deal an evaluation data set to the workers batch by batch and join results in sample order.

The batches and the seeds under which they are fetched and evaluated depend on the data set and on
batch_size alone, so the joined results, and any metric of them, do not depend on the workers.
This module exchanges nothing: it makes shares, loads one, and packs and joins results.
"""

import io
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy
import torch

from elastane.model.errors import ConfigError
from elastane.worker.data import FeedSettings, FetchFailure, FetchRequest, check_dataset
from elastane.worker.loading import RequestPipe
from elastane.worker.seeding import (
    RandomState,
    apply_random_state,
    apply_seed,
    capture_random_state,
    compute_eval_seeds,
)


def compute_eval_shares(batches: int, workers: int) -> tuple[range, ...]:
    """Deal batches 0..batches-1 to workers as contiguous ranges that differ by one at most."""
    borders = [batches * worker // workers for worker in range(workers + 1)]
    return tuple(range(start, stop) for start, stop in pairwise(borders))


def compute_missing(batches: int, done: Iterable[int]) -> tuple[int, ...]:
    """Return the batch numbers not in `done`, in order: what the others cover for a lost worker."""
    present = set(done)
    return tuple(number for number in range(batches) if number not in present)


class EvalLoader:
    """Iterate over the batches of this worker's share.

    Each batch is fetched under its own seed, and the code between two batches runs under one that belongs
    to the batch; when a pass ends, all generators are where they were before it.

    Args:
        dataset: map-style data set.
        batch_size: samples per batch.
        seed: the job's.
        settings: how batches are loaded; `shuffle` must be False.
        assign: called at the start of each pass with the number of batches of the data set; returns the
            numbers of those to yield. Default: all.

    Raises:
        ConfigError: batch_size < 1, shuffle, or something that is no data set.
        UnsupportedModelError: the data set is iterable-style.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        seed: int,
        *,
        settings: FeedSettings,
        assign: Callable[[int], Sequence[int]] | None = None,
    ) -> None:
        if batch_size < 1:
            raise ConfigError(
                f"batch_size is {batch_size}; it is the number of samples per batch, at least 1"
            )
        if settings.shuffle:
            raise ConfigError("an evaluation goes through its data in order; leave shuffle out")
        self._samples = check_dataset(dataset)
        self._batch_size = batch_size
        self._seed = seed
        self._assign = assign if assign is not None else range
        self._pipe = RequestPipe(dataset, settings, self._next_request)
        self._pass = 0
        self._waiting: deque[int] = deque()
        self._asked: deque[tuple[int, int | None]] = deque()
        self._yielded: list[int] = []
        self._before: RandomState | None = None

    @property
    def batches(self) -> int:
        """Return the number of batches of the whole data set."""
        return -(-self._samples // self._batch_size)

    @property
    def yielded(self) -> tuple[int, ...]:
        """Return the batch numbers yielded in the present or last pass, in the order of results."""
        return tuple(self._yielded)

    def __len__(self) -> int:
        """Return the number of batches of the share."""
        return len(self._assign(self.batches))

    def __iter__(self) -> Iterator[Any]:
        """Begin a pass; a pass begun before and not yet ended is over."""
        self.finish()
        self._pass += 1
        numbers = tuple(self._assign(self.batches))
        self._waiting = deque(numbers)
        self._yielded = []
        self._before = capture_random_state()
        return self._share(self._pass, numbers)

    def finish(self) -> None:
        """End a pass before its last batch: put the random generators back. Else without effect."""
        self._waiting.clear()
        if self._before is not None:
            apply_random_state(self._before)
            self._before = None

    def close(self) -> None:
        """End the data-loading processes; a later pass starts new ones."""
        self.finish()
        self._pipe.close()
        self._asked.clear()

    def _share(self, number_of_pass: int, numbers: Sequence[int]) -> Iterator[Any]:
        for number in numbers:
            if self._pass != number_of_pass:
                return
            batch = self._take(number_of_pass, number)
            apply_seed(compute_eval_seeds(self._seed, number)[1])
            self._yielded.append(number)
            yield batch
        if self._pass == number_of_pass:
            self.finish()

    def _take(self, number_of_pass: int, number: int) -> Any:
        while True:
            try:
                batch = self._pipe.pull()
            except BaseException:
                self._asked.clear()
                raise
            if self._asked.popleft() != (number_of_pass, number):  # of a pass that was broken off
                continue
            if isinstance(batch, FetchFailure):
                raise batch.error
            return batch

    def _next_request(self) -> FetchRequest | None:
        number = self._waiting.popleft() if self._waiting else None
        self._asked.append((self._pass, number))
        if number is None:
            return None
        first = number * self._batch_size
        indices = list(range(first, min(first + self._batch_size, self._samples)))
        return FetchRequest(compute_eval_seeds(self._seed, number)[0], indices)


def pack_results(numbers: Sequence[int], results: Sequence[Any]) -> bytes:
    """Pack one result per batch number: tensors, arrays, numbers, or dicts, lists and tuples of those.

    Raises:
        ConfigError: there are more or fewer results than batches, or a result holds something else.
    """
    if len(numbers) != len(results):
        raise ConfigError(
            f"{len(results)} results for {len(numbers)} batches; give one result for each batch that the "
            "loader yielded"
        )
    buffer = io.BytesIO()
    torch.save((list(numbers), [_portable(result) for result in results]), buffer)
    return buffer.getvalue()


def unpack_results(packed: bytes) -> list[tuple[int, Any]]:
    """Return the (batch number, result) pairs of `pack_results`; runs no code from `packed`."""
    numbers, results = torch.load(io.BytesIO(packed), weights_only=True)
    return list(zip(numbers, results, strict=True))


def join_results(results: Iterable[tuple[int, Any]]) -> Any:
    """Join the results of all batches in sample order.

    Tensors are joined along their first dimension (samples), scalars become one vector with a value per
    batch. A batch that was evaluated twice, when a lost worker's share was covered, counts once.

    Raises:
        ConfigError: there are no results, or the results of two batches are built differently.
    """
    by_number = dict(results)
    if not by_number:
        raise ConfigError("there are no results to join; the evaluation data set gave no batch")
    return _joined([_portable(by_number[number]) for number in sorted(by_number)])


def _portable(result: Any) -> Any:
    # Plain containers of CPU tensors, the same on every worker, whether the result travels or not.
    if isinstance(result, Mapping):
        return {key: _portable(value) for key, value in result.items()}
    if isinstance(result, (list, tuple)):
        return tuple(_portable(value) for value in result)
    if isinstance(result, torch.Tensor):
        return _own_storage(result.detach().cpu())
    if isinstance(result, float):
        return torch.tensor(result, dtype=torch.float64)  # Python's precision
    if isinstance(result, (bool, int, numpy.ndarray, numpy.generic)):
        return torch.as_tensor(result)
    raise ConfigError(
        f"a result holds a {type(result).__name__}; give tensors, numbers, or dicts, lists and tuples "
        "of those"
    )


def _own_storage(tensor: torch.Tensor) -> torch.Tensor:
    # Saving a view would save all that it is a view of.
    whole = tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
    return tensor if whole else tensor.clone()


def _joined(results: list[Any]) -> Any:
    first = results[0]
    if len({_shape(result) for result in results}) > 1:
        raise ConfigError(
            "the results of two batches are built differently; give the same kind for every batch"
        )
    if isinstance(first, dict):
        return {key: _joined([result[key] for result in results]) for key in first}
    if isinstance(first, tuple):
        return tuple(_joined(list(parts)) for parts in zip(*results, strict=True))
    return torch.stack(results) if first.dim() == 0 else torch.cat(results)


def _shape(result: Any) -> tuple[Any, ...]:
    if isinstance(result, dict):
        return ("dict", frozenset(result))
    if isinstance(result, tuple):
        return ("tuple", len(result))
    return ("tensor", result.dim())
