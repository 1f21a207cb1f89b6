"""Evaluate together: deal batches, gather results, and do a lost worker's share anew."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from elastane.model.errors import ConfigError, JobStateError
from elastane.worker.data import FeedSettings
from elastane.worker.evaluation import (
    EvalLoader,
    compute_missing,
    join_results,
    pack_results,
    unpack_results,
)


class Evaluators(Protocol):
    """Be the members that evaluate together."""

    seed: int

    def deal(self, batches: int) -> range:
        """Return which of so many things are this worker's share."""
        ...

    def gather(self, payload: bytes) -> list[bytes] | None:
        """Collect all members' bytes; None if one was lost."""
        ...


def combine_results(members: Evaluators, batches: int, own: dict[int, Any], given: int) -> Any:
    """Join the members' results of one pass in sample order.

    Raises:
        ConfigError: there is not one result for each batch of this worker's share.
        JobStateError: a member was lost together with its results.
    """
    if given != len(own):
        raise ConfigError(
            f"job.combine was given {given} results, but the loader gave {len(own)} batches; "
            "give one for each"
        )
    known = _gather(members, own) or _gather(members, own)
    missing = compute_missing(batches, known or {})
    if missing:
        raise JobStateError(
            f"a worker was lost with the results of evaluation batches {list(missing)[:8]}; "
            "use job.evaluate, which has the others do its share"
        )
    return join_results((known or {}).items())


def evaluate_together(
    members: Evaluators,
    function: Callable[[Any], Any],
    dataset: Any,
    batch_size: int,
    settings: FeedSettings,
) -> Any:
    """Return `function` of all batches, joined in sample order; see `Job.evaluate`."""
    todo: Sequence[int] = ()
    loader = EvalLoader(dataset, batch_size, members.seed, settings=settings, assign=lambda _: todo)
    results: dict[int, Any] = {}
    try:
        missing: tuple[int, ...] = tuple(range(loader.batches))
        while missing:
            share = members.deal(len(missing))
            todo = missing[share.start : share.stop]
            results.update(zip(todo, [function(batch) for batch in loader], strict=True))
            # After a loss everybody begins again with what he has: the next round shows what is missing.
            gathered = _gather(members, results)
            if gathered is not None:
                results = gathered
            missing = compute_missing(loader.batches, results)
    finally:
        loader.close()
    return join_results(results.items())


def _gather(members: Evaluators, own: dict[int, Any]) -> dict[int, Any] | None:
    gathered = members.gather(pack_results(list(own), list(own.values())))
    if gathered is None:
        return None
    return dict(pair for packed in gathered for pair in unpack_results(packed))
