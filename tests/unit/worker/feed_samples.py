"""Data sets and a pipe without processes, for the tests of data feeding."""

import random
from collections import deque
from typing import Any

import numpy
import torch
from torch.utils.data import Dataset

from elastane.worker.data import FeedSettings, FetchRequest, RequestedBatches
from elastane.worker.loading import RequestSource

Sample = tuple[int, float, float, float]


class Augmented(Dataset[Sample]):
    """Sample i comes with draws of all three random generators, as an augmentation makes them."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> Sample:
        return index, torch.rand(()).item(), float(numpy.random.rand()), random.random()


def as_list(samples: list[Any]) -> list[Any]:
    """Collate nothing: batches that compare with ==."""
    return samples


class FakePipe:
    """Answer in order with `depth` requests under way, like a DataLoader with processes, but in this one."""

    def __init__(self, dataset: Any, settings: FeedSettings, source: RequestSource) -> None:
        self.depth = settings.num_workers * settings.prefetch_factor
        self.requested: list[FetchRequest | None] = []
        self._batches = RequestedBatches(dataset, settings.collate_fn)
        self._source = source
        self._under_way: deque[FetchRequest | None] = deque()
        self._started = False

    def start(self) -> None:
        if not self._started:
            self._started = True
            for _ in range(self.depth):
                self._take_request()

    def pull(self) -> Any:
        self.start()
        self._take_request()
        return self._batches.__getitems__(self._under_way.popleft())

    def close(self) -> None:
        self._under_way.clear()
        self._started = False

    def _take_request(self) -> None:
        request = self._source()
        self._under_way.append(request)
        self.requested.append(request)
