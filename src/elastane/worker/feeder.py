"""Give the batch of any (epoch, step, vrank), prefetched along a schedule that may change at any time.

One DataLoader lives as long as the feeder: topology switches and borders of epochs change what is
asked of it next, never the DataLoader itself. Its answers come in the order of the requests and are
matched with the keys asked. A batch that comes before it is fetched waits in a stash while it is still
wanted; one that no plan wants any more is dropped. What is prefetched and where decides how long
`fetch` takes, never what it returns.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Protocol

from elastane.core.data_order import DataOrder
from elastane.model.errors import ConfigError
from elastane.model.topology import VrankRange
from elastane.worker.data import FeedSettings, FetchFailure, FetchRequest, check_dataset
from elastane.worker.feed_plan import BatchKey, FeedPlan, Promise
from elastane.worker.handing import Handing
from elastane.worker.loading import RequestPipe, RequestSource
from elastane.worker.permutation import EpochOrders, ShardOrders
from elastane.worker.seeding import compute_batch_seed
from elastane.worker.shards import ShardedData

_OUTDATED = BatchKey(-1, -1, -1)
"""Stands in the place of batches under way that are cut as no step is any more: no plan wants it."""


class Pipe(Protocol):
    """Answer requests from a source in their order, as `RequestPipe` does."""

    @property
    def depth(self) -> int:
        """Return how many requests are under way between two pulls."""

    def start(self) -> None:
        """Take the first `depth` requests from the source, unless it has been done."""

    def pull(self) -> Any:
        """Take one more request; return the answer to the oldest."""

    def close(self) -> None:
        """Forget the requests under way."""


class BatchFeeder:
    """Fetch batches of a map-style data set.

    Args:
        dataset: gives sample i as dataset[i], or a list of samples by `__getitems__`.
        order: which positions of an epoch a virtual worker takes in a step.
        seed: the job's.
        settings: how batches are loaded.
        open_pipe: makes what answers the requests.
        handing: says which samples a batch has where shards are handed out.

    `step` is everywhere the step within its epoch. Not for use by several threads at a time.

    Raises:
        ConfigError: the data set is none, or not the one that `order` was made for.
        UnsupportedModelError: the data set is iterable-style.
    """

    def __init__(
        self,
        dataset: Any,
        order: DataOrder,
        seed: int,
        *,
        settings: FeedSettings,
        open_pipe: Callable[[Any, FeedSettings, RequestSource], Pipe] = RequestPipe,
        handing: Handing | None = None,
    ) -> None:
        samples = check_dataset(dataset) if handing is None else order.samples
        if samples != order.samples:
            raise ConfigError(
                f"the data set has {samples} samples, but the data order was made for {order.samples}; a "
                "data set must keep its length while a job trains on it"
            )
        self._order = order
        self._seed = seed
        self._epoch_orders: EpochOrders | ShardOrders | None
        self._handing = handing
        if handing is not None:
            self._epoch_orders = None
        elif isinstance(dataset, ShardedData):
            self._epoch_orders = ShardOrders(
                dataset.lengths, seed, order.virtual_workers, shuffle=settings.shuffle
            )
        else:
            self._epoch_orders = EpochOrders(samples, seed, shuffle=settings.shuffle)
        self._pipe = open_pipe(dataset, settings, self._next_request)
        self._plan = FeedPlan(order=order, position=BatchKey(0, 0, 0), vranks=VrankRange(0, 0))
        self._upcoming: Iterator[BatchKey] = self._plan.keys()
        self._urgent: BatchKey | None = None
        self._asked: deque[BatchKey | None] = deque()
        self._stash: dict[BatchKey, Any] = {}

    @property
    def waiting(self) -> int:
        """Return how many batches came before they were fetched and are kept."""
        return len(self._stash)

    def start(self) -> None:
        """Start the data-loading processes ahead of the first schedule; without effect if they run."""
        self._pipe.start()

    def recut(self, order: DataOrder) -> None:
        """Cut the data into steps in another way from now on; tell what comes next by `schedule`.

        Batches that were fetched ahead are of no use any more: their names mean others now.
        """
        self._order = order
        self._stash.clear()
        self._asked = deque(None if key is None else _OUTDATED for key in self._asked)
        self._replan(replace(self._plan, order=order, promise=None))

    def resize(self, order: DataOrder) -> None:
        """Take the order of a data set whose length has become known; the steps ahead stay as they are."""
        self._order = order
        self._replan(replace(self._plan, order=order))

    def schedule(self, epoch: int, step: int, vranks: VrankRange) -> None:
        """Say that the next batch fetched is that of (epoch, step, vranks.start), and what follows it.

        Drops every promise. Prefetched batches that are still wanted are kept. A schedule may go back:
        steps that are repeated are fetched again.
        """
        position = BatchKey(epoch, step, vranks.start)
        self._replan(replace(self._plan, position=position, vranks=vranks, promise=None))
        self._prime()

    def promise(self, epoch: int, step: int, vranks: VrankRange) -> None:
        """Say that from that step on `vranks` are fetched; takes the place of a promise not yet due."""
        self._replan(replace(self._plan, promise=Promise((epoch, step), vranks)))

    def withdraw_promise(self) -> None:
        """Say that the promised change does not come."""
        self._replan(replace(self._plan, promise=None))

    def end_after(self, epochs: int) -> None:
        """Say that the job trains `epochs` epochs: nothing beyond them is prefetched."""
        self._replan(replace(self._plan, epochs=epochs))

    def fetch(self, epoch: int, step: int, vrank: int) -> Any:
        """Return the batch; None if `vrank` has no sample in that step.

        Any batch may be fetched; those that the schedule told come faster. Loading in this process leaves
        the global random generators wherever the data set left them.

        Raises:
            Exception: whatever the data set or collate_fn raised; notes tell the samples and, if it was
                raised in a data-loading process, the traceback there.
            RuntimeError: a data-loading process died or did not answer in time.
        """
        key = BatchKey(epoch, step, vrank)
        if not self._order.positions(epoch, step, vrank):
            return None
        batch = self._take(key)
        self._plan = self._plan.after(key)
        if self._stash:
            self._drop_unwanted()
        if isinstance(batch, FetchFailure):
            raise batch.error
        return batch

    def close(self) -> None:
        """End the data-loading processes; a later fetch starts new ones."""
        self._pipe.close()
        self._forget_requests()
        self._stash.clear()

    def _take(self, key: BatchKey) -> Any:
        if key in self._stash:
            return self._stash.pop(key)
        if key not in self._asked:
            self._urgent = key
            self._plan = replace(self._plan, position=key)
            self._upcoming = self._plan.keys()
        while True:
            answered, batch = self._pull()
            if answered == key:
                return batch
            if answered is not None:
                self._stash[answered] = batch

    def _pull(self) -> tuple[BatchKey | None, Any]:
        try:
            batch = self._pipe.pull()
        except BaseException:
            self._forget_requests()
            raise
        return self._asked.popleft(), batch

    def _next_request(self) -> FetchRequest | None:
        key = self._next_key()
        indices = None if key is None else self._indices(key)
        if key is not None and indices is None:  # nobody knows yet: asked for again with the next request
            self._upcoming = chain([key], self._upcoming)
            key = None
        self._asked.append(key)
        if key is None or indices is None:
            return None
        return FetchRequest(compute_batch_seed(self._seed, *key), indices)

    def _indices(self, key: BatchKey) -> Sequence[Any] | None:
        if self._epoch_orders is not None:
            return self._epoch_orders.indices(key.epoch, self._order.positions(*key))
        assert self._handing is not None
        return self._handing.picks(key)

    def _next_key(self) -> BatchKey | None:
        key, self._urgent = self._urgent, None
        if key is not None:
            return key
        if len(self._stash) > self._pipe.depth:  # fetched in another order than scheduled: bound the memory
            return None
        return next((k for k in self._upcoming if k not in self._stash and k not in self._asked), None)

    def _replan(self, plan: FeedPlan) -> None:
        self._plan = plan
        self._upcoming = plan.keys()
        self._drop_unwanted()

    def _drop_unwanted(self) -> None:
        for key in [key for key in self._stash if not self._plan.wants(key)]:
            del self._stash[key]

    def _prime(self) -> None:
        # Processes that were started ahead hold requests for nothing; exchange them for batches.
        for _ in range(self._pipe.depth):
            if not self._asked or self._asked[0] is not None:
                return
            self._pull()

    def _forget_requests(self) -> None:
        self._asked.clear()
        self._urgent = None
        self._upcoming = self._plan.keys()
