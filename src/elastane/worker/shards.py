"""Data that lie in shards (files), read from front to back: a data set for `Job.loader`.

A shard is whatever `open` takes: a path, a URL, a key. What it returns gives the shard's samples, either by
number (it has a length and can be indexed) or one after another. Where a virtual worker stands in which
shard is arithmetic (`core.shard_order`), so no reader's position is state: who takes over opens the shard
and skips to the sample. Readers are a cache, nothing else; what is random in them is seeded per batch.
"""

import hashlib
import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from itertools import accumulate
from typing import Any

from elastane.model.errors import ConfigError, ModelMismatchError, ShardError
from elastane.worker.seeding import apply_random_state, capture_random_state

MOST_READERS = 64
"""Shards that a process keeps open: a worker has one for each of its virtual workers, and descriptors are
few (often 1,024 for a process)."""
_END = object()


class ShardedData:
    """Be the samples of all shards, numbered shard by shard: see `shards`.

    Attributes:
        names: the shards, in their given order.
        lengths: samples of each.
    """

    def __init__(
        self, names: Sequence[Any], open_shard: Callable[[Any], Any], lengths: Sequence[int]
    ) -> None:
        self.names = tuple(names)
        self.lengths = tuple(lengths)
        self._ends = tuple(accumulate(self.lengths))
        self._open = open_shard
        self._readers: OrderedDict[_Reader, None] = OrderedDict()
        self._pid = os.getpid()

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return samples by their numbers.

        Raises:
            ShardError: a shard cannot be opened, or does not have as many samples as it had.
        """
        samples = []
        reader = None
        for index in indices:
            if not 0 <= index < len(self):
                raise IndexError(f"sample {index} of {len(self)}")
            number = bisect_right(self._ends, index)
            offset = index - (self._ends[number - 1] if number else 0)
            if reader is None or reader.number != number or reader.place != offset:
                reader = self._reader(number, offset)
            samples.append(reader.read(offset))
            if reader.is_through:
                del self._readers[reader]
                reader = None
        return samples

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_readers": OrderedDict()}

    def describe(self) -> dict[str, Any]:
        """Return what all workers' shards must have in common, however the way to them is called."""
        text = repr(
            [(str(name).rpartition("/")[2], n) for name, n in zip(self.names, self.lengths, strict=True)]
        )
        digest = hashlib.sha256(text.encode()).hexdigest()
        return {"shards": len(self.names), "samples": len(self), "digest": digest}

    def _reader(self, number: int, offset: int) -> "_Reader":
        """Return the reader of a shard that has the least way to go, or a new one if all are beyond."""
        if self._pid != os.getpid():
            # A forked process shares the place in its parent's files: it opens its own.
            self._readers, self._pid = OrderedDict(), os.getpid()
        able = [r for r in self._readers if r.number == number and r.place <= offset]
        if able:
            reader = max(able, key=_place_of)
        else:
            while len(self._readers) >= MOST_READERS:
                self._readers.popitem(last=False)[0].close()
            reader = _Reader(number, self.names[number], self._open, self.lengths[number])
            self._readers[reader] = None
        self._readers.move_to_end(reader)
        return reader


class ShardCatalogue:
    """Refuse to go on with other shards than the job began with: a part of the replicated state."""

    def __init__(self, data: ShardedData) -> None:
        self._own = data.describe()

    @property
    def text(self) -> str:
        """Return the shards in words, equal exactly where they are."""
        return _tell(self._own)

    def state_dict(self) -> dict[str, Any]:
        """Return what describes the shards."""
        return self._own

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Raise ModelMismatchError unless these are the job's shards."""
        if state != self._own:
            raise ModelMismatchError(
                f"this worker sees {_tell(self._own)}, the job trains on {_tell(state)}; all workers need "
                "the same shards in the same order (sort their list), and a job keeps them until its end"
            )


class _Reader:
    """Read one shard, from front to back or by number.

    Attributes:
        number: of the shard.
        place: the next sample, where samples come one after another; it never goes back.
        is_through: the last sample has been read.
    """

    def __init__(self, number: int, name: Any, open_shard: Callable[[Any], Any], length: int) -> None:
        self.number = number
        self.place = 0
        self.is_through = False
        self._name = name
        self._open = open_shard
        self._length = length
        self._source: Any = None
        self._samples: Iterator[Any] | None = None

    def read(self, offset: int) -> Any:
        """Return a sample. Raise ShardError if the shard cannot be opened or has another length."""
        if self._source is None or (self._samples is not None and offset != self.place):
            # How far a reader has to go must not show in what the sample's own code draws.
            drawn = capture_random_state()
            self._go_to(offset)
            apply_random_state(drawn)
        if self._samples is None:
            return self._source[offset]
        sample = self._take()
        if self.place == self._length:
            drawn = capture_random_state()
            if next(self._samples, _END) is not _END:
                raise self._changed("more")
            apply_random_state(drawn)
            self.is_through = True
            self.close()
        return sample

    def close(self) -> None:
        """Close the source, if it can be."""
        source, self._source, self._samples = self._source, None, None
        if hasattr(source, "close"):
            source.close()

    def _go_to(self, offset: int) -> None:
        if self._source is None:
            self._source, self.place = _opened(self._name, self._open), 0
            if _is_indexed(self._source):
                if len(self._source) != self._length:
                    raise self._changed(str(len(self._source)))
                return
            self._samples = iter(self._source)
        while self.place < offset:
            self._take()

    def _take(self) -> Any:
        assert self._samples is not None
        sample = next(self._samples, _END)
        if sample is _END:
            raise self._changed(str(self.place))
        self.place += 1
        return sample

    def _changed(self, found: str) -> ShardError:
        self.close()
        return ShardError(
            f"shard {self._name!s} has {found} samples, but {self._length} when training began; a shard must "
            "not change while a job trains on it: put it back, or start a new job"
        )


def shards(
    names: Iterable[Any] | Callable[[], Iterable[Any]],
    *,
    open: Callable[[Any], Any],
    lengths: Sequence[int] | Callable[[Any], int] | None = None,
) -> ShardedData:
    """Return a data set of samples that lie in shards, for `job.loader`.

    Each epoch has the shards in an order of its own (with `shuffle=True`); within a shard samples come from
    front to back.

    Args:
        names: the shards (paths, URLs, keys, ...), or a function that lists them; everywhere in one order.
        open: opens a shard: returns its samples, as a sequence, or as an iterable that is read once. May have
            `close`. With data-loading processes it must be a module's function where they are spawned.
        lengths: samples of each shard, or a function of a shard that tells; None: each is counted once, on
            every worker that starts, by reading it through if it is no sequence.

    Raises:
        ConfigError: no shards, not one length for each, or a length below 0.
        ShardError: a shard cannot be opened to be counted.
    """
    listed = tuple(names() if callable(names) else names)
    if not listed:
        raise ConfigError("elastane.shards was given no shards; is the pattern or folder right?")
    if lengths is None:
        drawn = capture_random_state()
        counted = [_count(name, open) for name in listed]
        apply_random_state(drawn)
    else:
        counted = [lengths(name) for name in listed] if callable(lengths) else list(lengths)
    if len(counted) != len(listed):
        raise ConfigError(f"elastane.shards was given {len(listed)} shards and {len(counted)} lengths")
    for name, length in zip(listed, counted, strict=True):
        if not isinstance(length, int) or length < 0:
            raise ConfigError(f"the length of shard {name!s} is {length!r}; it is a number of samples")
    return ShardedData(listed, open, counted)


def _count(name: Any, open_shard: Callable[[Any], Any]) -> int:
    source = _opened(name, open_shard)
    try:
        return len(source) if _is_indexed(source) else sum(1 for _ in source)
    finally:
        if hasattr(source, "close"):
            source.close()


def _opened(name: Any, open_shard: Callable[[Any], Any]) -> Any:
    try:
        return open_shard(name)
    except Exception as error:
        raise ShardError(
            f"shard {name!s} cannot be opened: {type(error).__name__}: {error}; every worker must be able to "
            "read every shard"
        ) from error


def _is_indexed(source: Any) -> bool:
    return isinstance(source, Sized) and hasattr(source, "__getitem__")


def _place_of(reader: _Reader) -> int:
    return reader.place


def _tell(described: dict[str, Any]) -> str:
    digest = described["digest"][:12]
    return f"{described['shards']} shards with {described['samples']} samples (sha256 {digest})"
