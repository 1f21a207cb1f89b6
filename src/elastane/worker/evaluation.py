"""Deal an evaluation data set to the workers batch by batch and join results in sample order.

The batches and the seeds under which they are fetched and evaluated depend on the data set and on
batch_size alone, so the joined results, and any metric of them, do not depend on the workers.
This module exchanges nothing: it makes shares, loads one, and packs and joins results.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from elastane.worker.data import FeedSettings


def compute_eval_shares(batches: int, workers: int) -> tuple[range, ...]:
    """Deal batches 0..batches-1 to workers as contiguous ranges that differ by one at most."""
    raise NotImplementedError


def compute_missing(batches: int, done: Iterable[int]) -> tuple[int, ...]:
    """Return the batch numbers not in `done`, in order: what the others cover for a lost worker."""
    raise NotImplementedError


class EvalLoader:
    """Iterate over the batches of this worker's share.

    Args:
        dataset: map-style data set.
        batch_size: samples per batch.
        seed: the job's.
        settings: how batches are loaded; shuffle must be False.
        assign: called at the start of each pass with the number of batches of the data set; returns the
            numbers of those to yield. Default: all.
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
        raise NotImplementedError

    @property
    def batches(self) -> int:
        """Return the number of batches of the whole data set."""
        raise NotImplementedError

    @property
    def yielded(self) -> tuple[int, ...]:
        """Return the batch numbers yielded in the present or last pass, in the order of results."""
        raise NotImplementedError

    def __len__(self) -> int:
        """Return the number of batches of the share."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError

    def close(self) -> None:
        """End the data-loading processes."""
        raise NotImplementedError


def pack_results(numbers: Sequence[int], results: Sequence[Any]) -> bytes:
    """Pack one result per batch number: tensors, numbers, or dicts, lists and tuples of those."""
    raise NotImplementedError


def unpack_results(packed: bytes) -> list[tuple[int, Any]]:
    """Return the (batch number, result) pairs of `pack_results`; runs no code from `packed`."""
    raise NotImplementedError


def join_results(results: Iterable[tuple[int, Any]]) -> Any:
    """Join the results of all batches in sample order.

    Tensors are joined along their first dimension (samples), scalars become one vector with a value per batch.
    """
    raise NotImplementedError
