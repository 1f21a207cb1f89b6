"""Look ahead in shards whose lengths were not told, and say how many samples they have.

A scout opens a shard a second time, beside whoever reads it for training, and counts what comes: nothing
is kept. It goes on where it stopped, so a shard is read through once by each worker that holds it, unless
many others came between. What it answers depends on the shards and the question alone, not on how far it
has been. What is random in `open` is drawn as if nobody had looked. Who is to look where is decided in
`core.handout`.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from elastane.core.handout import Goal
from elastane.core.sightings import Sighting
from elastane.worker.seeding import kept_random_state
from elastane.worker.shards import ShardedData, is_indexed

MOST_SCOUTS = 8
"""Shards that are kept open between two looks: a worker holds one at a time, and those before it may be
asked for again by a recovery."""
_END = object()


@dataclass(slots=True)
class _Scout:
    """Stand in a shard after `place` samples."""

    source: Any
    samples: Iterator[Any]
    place: int = 0


class Scouts:
    """Count ahead in the shards of one data set."""

    def __init__(self, data: ShardedData) -> None:
        self._data = data
        self._scouts: OrderedDict[int, _Scout] = OrderedDict()
        self._lengths: dict[int, int] = {}
        self._indexed: set[int] = set()

    def look(self, goals: Sequence[Goal], enough: int) -> list[tuple[int, int, bool]]:
        """Return (shard, samples, whether that is all of it) for one goal after another.

        Args:
            goals: where to look.
            enough: once so many untrained samples are found, the look ends: the other goals are not needed
                now, and most of them never.

        Raises:
            ShardError: a shard cannot be opened.
        """
        found: list[tuple[int, int, bool]] = []
        ahead = 0
        with kept_random_state():
            for goal in goals:
                seen = self._look(goal)
                found.append((goal.shard, *seen))
                ahead += max(0, seen.samples - goal.offset)
                if ahead >= enough:
                    break
        return found

    def close(self) -> None:
        """Close all shards that were looked into."""
        for shard in list(self._scouts):
            self._close(shard)

    def _look(self, goal: Goal) -> Sighting:
        shard = goal.shard
        if shard not in self._lengths and shard not in self._scouts:
            self._open(shard)
        if shard in self._scouts:
            self._scouts.move_to_end(shard)
        while shard not in self._lengths and self._scouts[shard].place < goal.samples:
            self._go_on(shard, self._scouts[shard])
        # Also where more is known: one that was here before a loss may have looked further than the others.
        length = self._lengths.get(shard, goal.samples)
        if shard in self._indexed or length < goal.samples:
            return Sighting(length, whole=True)
        return Sighting(goal.samples, whole=False)

    def _open(self, shard: int) -> None:
        source = self._data.open_source(shard)
        if is_indexed(source):
            self._indexed.add(shard)
            self._lengths[shard] = len(source)
            _close_source(source)
            return
        self._scouts[shard] = _Scout(source, iter(source))
        while len(self._scouts) > MOST_SCOUTS:
            self._close(next(iter(self._scouts)))

    def _go_on(self, shard: int, scout: _Scout) -> None:
        try:
            sample = next(scout.samples, _END)
        except Exception as error:
            error.add_note(self._data.place_text(shard, scout.place))
            self._close(shard)
            raise
        if sample is _END:
            self._lengths[shard] = scout.place
            self._close(shard)
        else:
            scout.place += 1

    def _close(self, shard: int) -> None:
        _close_source(self._scouts.pop(shard).source)


def _close_source(source: Any) -> None:
    if hasattr(source, "close"):
        source.close()
