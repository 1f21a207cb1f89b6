"""Data that lie in shards (files), read from front to back: a data set for `Job.loader`.

A shard is whatever `open` takes: a path, a URL, a key. What it returns gives the shard's samples, either by
number (it has a length and can be indexed) or one after another. Where a virtual worker stands in which
shard is arithmetic (`core.shard_order`; `core.handout` where the workers' number changes), so no reader's
position is state: who takes over opens the shard and skips to the sample. Readers are a cache, nothing
else; what is random in them is seeded per batch.
"""

import hashlib
import os
from bisect import bisect_right
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

from elastane.model.errors import ConfigError, ModelMismatchError, ShardError
from elastane.worker.seeding import kept_random_state

MOST_READERS = 64
"""Shards that a process keeps open: a worker has one for each of its virtual workers, and descriptors are
few (often 1,024 for a process)."""
UNKNOWN = -1
"""Stands for a length that nobody knows yet."""
_END = object()


class Pick(NamedTuple):
    """Name a sample by its shard and its number there.

    Attributes:
        shard: number of the shard.
        offset: number of the sample in it.
        length: samples that the shard is known to have, or UNKNOWN.
    """

    shard: int
    offset: int
    length: int = UNKNOWN


class ShardedData:
    """Be the samples of all shards, numbered shard by shard: see `shards`.

    Args:
        names: the shards, in their given order.
        open_shard: opens one.
        lengths: samples of each; None: they are counted when they are first asked for.
    """

    def __init__(
        self, names: Sequence[Any], open_shard: Callable[[Any], Any], lengths: Sequence[int] | None
    ) -> None:
        self.names = tuple(names)
        self.known_lengths = None if lengths is None else tuple(lengths)
        self._open = open_shard
        self._readers: OrderedDict[_Reader, None] = OrderedDict()
        self._pid = os.getpid()

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """Return the samples of each shard; count them if they were not told.

        Raises:
            ShardError: a shard cannot be opened to be counted, or fails on the way.
        """
        if self.known_lengths is not None:
            return self.known_lengths
        with kept_random_state():
            return tuple(_count(name, self._open) for name in self.names)

    @cached_property
    def _ends(self) -> tuple[int, ...]:
        return tuple(accumulate(self.lengths))

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int | Pick]) -> list[Any]:
        """Return samples by their numbers, or by shard and number in it.

        Raises:
            ShardError: a shard cannot be opened, or does not have as many samples as it had.
        """
        samples = []
        reader = None
        for index in indices:
            pick = index if isinstance(index, Pick) else self._find(index)
            if reader is None or reader.number != pick.shard or reader.place != pick.offset:
                reader = self._reader(pick)
            samples.append(reader.read(pick))
            if reader.is_through:
                del self._readers[reader]
                reader = None
        return samples

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_readers": OrderedDict()}

    def open_source(self, shard: int) -> Any:
        """Open a shard and return what gives its samples. Raise ShardError if that fails."""
        return _opened(self.names[shard], self._open)

    def place_text(self, shard: int, offset: int) -> str:
        """Return where reading failed, for a note to the error."""
        return _place_text(self.names[shard], offset)

    def describe(self, *, counting: bool = True) -> dict[str, Any]:
        """Return what all workers' shards must have in common, however the way to them is called.

        Args:
            counting: whether lengths that were not told belong to it.
        """
        lengths = self.lengths if counting else self.known_lengths or (UNKNOWN,) * len(self.names)
        text = repr([(str(name).rpartition("/")[2], n) for name, n in zip(self.names, lengths, strict=True)])
        digest = hashlib.sha256(text.encode()).hexdigest()
        samples = UNKNOWN if UNKNOWN in lengths else sum(lengths)
        return {"shards": len(self.names), "samples": samples, "digest": digest}

    def _find(self, index: int) -> Pick:
        if not 0 <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        shard = bisect_right(self._ends, index)
        return Pick(shard, index - (self._ends[shard - 1] if shard else 0), self.lengths[shard])

    def _reader(self, pick: Pick) -> "_Reader":
        """Return the reader of a shard that has the least way to go, or a new one if all are beyond."""
        if self._pid != os.getpid():
            # A forked process shares the place in its parent's files: it opens its own.
            self._readers, self._pid = OrderedDict(), os.getpid()
        able = [r for r in self._readers if r.number == pick.shard and r.place <= pick.offset]
        if able:
            reader = max(able, key=_place_of)
        else:
            while len(self._readers) >= MOST_READERS:
                self._readers.popitem(last=False)[0].close()
            reader = _Reader(pick.shard, self.names[pick.shard], self._open)
            self._readers[reader] = None
        self._readers.move_to_end(reader)
        return reader


class ShardCatalogue:
    """Refuse to go on with other shards than the job began with: a part of the replicated state."""

    def __init__(self, described: dict[str, Any]) -> None:
        self._own = described

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

    def __init__(self, number: int, name: Any, open_shard: Callable[[Any], Any]) -> None:
        self.number = number
        self.place = 0
        self.is_through = False
        self._name = name
        self._open = open_shard
        self._length = UNKNOWN
        self._source: Any = None
        self._samples: Iterator[Any] | None = None

    def read(self, pick: Pick) -> Any:
        """Return a sample. Raise ShardError if the shard cannot be opened or has another length."""
        offset, self._length = pick.offset, pick.length
        if self._source is None or (self._samples is not None and offset != self.place):
            # How far a reader has to go must not show in what the sample's own code draws.
            with kept_random_state():
                self._go_to(offset)
        if self._samples is None:
            return self._source[offset]
        sample = self._take()
        if self.place == self._length:
            with kept_random_state():
                if next(self._samples, _END) is not _END:
                    raise self._changed("more")
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
            if is_indexed(self._source):
                found = len(self._source)
                if found <= offset or self._length not in (UNKNOWN, found):
                    raise self._changed(str(found))
                return
            self._samples = iter(self._source)
        while self.place < offset:
            self._take()

    def _take(self) -> Any:
        assert self._samples is not None
        try:
            sample = next(self._samples, _END)
        except Exception as error:
            error.add_note(_place_text(self._name, self.place))
            self.close()  # a generator that raised is at its end: the next try opens the shard anew
            raise
        if sample is _END:
            raise self._changed(str(self.place))
        self.place += 1
        return sample

    def _changed(self, found: str) -> ShardError:
        self.close()
        before = "more" if self._length == UNKNOWN else str(self._length)
        return ShardError(
            f"shard {self._name!s} has {found} samples, but {before} when training began; a shard must "
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
        lengths: samples of each shard, or a function of a shard that tells. None: with virtual workers each
            is counted, on every worker that starts, by reading it through if it is no sequence; under a
            batch policy workers look ahead in the shards that are due, and tell each other what they find.

    Raises:
        ConfigError: no shards, one that is listed twice, not one length for each, or a length below 0.
    """
    listed = _list_shards(names)
    if lengths is None:
        return ShardedData(listed, open, None)
    told = [lengths(name) for name in listed] if callable(lengths) else list(lengths)
    if len(told) != len(listed):
        raise ConfigError(f"elastane.shards was given {len(listed)} shards and {len(told)} lengths")
    for name, length in zip(listed, told, strict=True):
        if not isinstance(length, int) or isinstance(length, bool) or length < 0:
            raise ConfigError(f"the length of shard {name!s} is {length!r}; it is a number of samples")
    return ShardedData(listed, open, told)


def _list_shards(names: Iterable[Any] | Callable[[], Iterable[Any]]) -> tuple[Any, ...]:
    given = names() if callable(names) else names
    if isinstance(given, str | bytes | os.PathLike):
        raise ConfigError(
            f"elastane.shards was given {given!r} where it needs a list of shards; for one shard write "
            f"[{given!r}], for a pattern sorted(glob.glob(...))"
        )
    listed = tuple(given)
    if not listed:
        raise ConfigError("elastane.shards was given no shards; is the pattern or folder right?")
    paths = Counter(os.fspath(name) for name in listed if isinstance(name, str | os.PathLike))
    twice = [path for path, times in paths.items() if times > 1]
    if twice:
        raise ConfigError(
            f"elastane.shards was given {twice[0]!r} {paths[twice[0]]} times; its samples would be trained "
            "as often in each epoch. List it once; to weight it so on purpose, use keys that differ, such "
            f"as ({twice[0]!r}, 2), which `open` takes apart"
        )
    return listed


def _count(name: Any, open_shard: Callable[[Any], Any]) -> int:
    source = _opened(name, open_shard)
    try:
        return len(source) if is_indexed(source) else sum(1 for _ in source)
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


def is_indexed(source: Any) -> bool:
    """Tell whether a shard's samples are given by number, rather than one after another."""
    return isinstance(source, Sized) and hasattr(source, "__getitem__")


def _place_text(name: Any, offset: int) -> str:
    return f"in shard {name!s}, after {offset} samples"


def _place_of(reader: _Reader) -> int:
    return reader.place


def _tell(described: dict[str, Any]) -> str:
    digest = described["digest"][:12]
    samples = "" if described["samples"] == UNKNOWN else f" with {described['samples']} samples"
    return f"{described['shards']} shards{samples} (sha256 {digest})"
