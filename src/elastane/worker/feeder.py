"""Give the batch of any (epoch, step, vrank), prefetched along a schedule that may change at any time.

One DataLoader lives as long as the feeder: topology switches and borders of epochs change what is
asked of it next, never the DataLoader itself.
"""

from typing import Any

from elastane.core.data_order import DataOrder
from elastane.model.topology import VrankRange
from elastane.worker.data import FeedSettings


class BatchFeeder:
    """Fetch batches of a map-style data set.

    Args:
        dataset: gives sample i as dataset[i], or a list of samples by `__getitems__`.
        order: which positions of an epoch a virtual worker takes in a step.
        seed: the job's.
        settings: how batches are loaded.

    `step` is everywhere the step within its epoch.
    """

    def __init__(self, dataset: Any, order: DataOrder, seed: int, *, settings: FeedSettings) -> None:
        raise NotImplementedError

    def start(self) -> None:
        """Start the data-loading processes ahead of the first schedule; without effect if they run."""
        raise NotImplementedError

    def schedule(self, epoch: int, step: int, vranks: VrankRange) -> None:
        """Say that the next batch fetched is that of (epoch, step, vranks.start), and what follows it.

        Drops every promise. Prefetched batches that are still wanted are kept.
        """
        raise NotImplementedError

    def promise(self, epoch: int, step: int, vranks: VrankRange) -> None:
        """Say that from that step on `vranks` are fetched; takes the place of an earlier promise not yet due."""
        raise NotImplementedError

    def withdraw_promise(self) -> None:
        """Say that the promised change does not come."""
        raise NotImplementedError

    def end_after(self, epochs: int) -> None:
        """Say that the job trains `epochs` epochs: nothing beyond them is prefetched."""
        raise NotImplementedError

    def fetch(self, epoch: int, step: int, vrank: int) -> Any:
        """Return the batch; None if `vrank` has no sample in that step.

        In-process loading leaves the global random generators wherever the data set left them.
        """
        raise NotImplementedError

    def close(self) -> None:
        """End the data-loading processes; a later fetch starts new ones."""
        raise NotImplementedError
