"""Shards in memory, for tests of data that lie in shards."""

import random
from collections.abc import Iterator
from typing import Any

import torch

import elastane
from elastane.worker.shards import ShardedData


class Files:
    """Shards in memory that remember how they were used; shard s has samples (s, 0), (s, 1), ..."""

    def __init__(self, lengths: list[int], *, indexed: bool = False, noisy: bool = False) -> None:
        self.lengths = list(lengths)
        self.indexed = indexed
        self.noisy = noisy
        self.opened: list[int] = []
        self.read = 0
        self.closed = 0

    def open(self, number: int) -> Any:
        self.opened.append(number)
        if self.indexed:
            return [(number, offset) for offset in range(self.lengths[number])]
        return Source(self, number)


class Source:
    def __init__(self, files: Files, number: int) -> None:
        self.files, self.number = files, number
        if files.noisy:
            torch.rand(1)

    def __iter__(self) -> Iterator[Any]:
        for offset in range(self.files.lengths[self.number]):
            self.files.read += 1
            noise = (torch.rand(()).item(), random.random()) if self.files.noisy else ()
            yield (self.number, offset, *noise)
        if self.files.noisy:
            torch.rand(1)

    def close(self) -> None:
        self.files.closed += 1


def make(files: Files, **settings: Any) -> ShardedData:
    return elastane.shards(range(len(files.lengths)), open=files.open, **settings)


def as_list(samples: list[Any]) -> list[Any]:
    return samples
