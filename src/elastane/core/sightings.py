"""What is known of the lengths of shards: told by the user, or found by reading ahead.

That a shard has at least so many samples, or exactly so many, is a fact: it stays true whoever comes or
goes, and knowing more changes no plan (see `handout`). But who knows what decides who asks whom, so all
workers must know the same: what was found since the last committed step is kept apart until the next
one, and forgotten where a step is begun anew. Nothing is read here.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Sighting(NamedTuple):
    """Say that a shard has `samples` samples: exactly if `whole`, else at least."""

    samples: int
    whole: bool


UNSEEN = Sighting(0, False)


class Sightings:
    """Collect what is known of each shard's length.

    Args:
        kept: what is known of each shard to begin with.
    """

    def __init__(self, kept: Sequence[Sighting]) -> None:
        self._kept = list(kept)
        self._fresh: dict[int, Sighting] = {}
        self._open = sum(1 for seen in kept if not seen.whole)
        self._total: int | None = None

    @property
    def are_whole(self) -> bool:
        """Tell whether all lengths are known."""
        return not self._open

    @property
    def kept(self) -> list[Sighting]:
        """Return what was known when the last step was committed, of each shard."""
        return list(self._kept)

    @property
    def total(self) -> int | None:
        """Return how many samples all shards have; None unless all lengths are known."""
        if self._total is None and self.are_whole:
            self._total = sum(self.of(shard).samples for shard in range(len(self._kept)))
        return self._total

    def estimate_total(self) -> int:
        """Return about how many samples all shards have, as if the others were like those that are known.

        As long as no length is known, those that were looked into count with what was seen of them.
        """
        seen = [self.of(shard) for shard in range(len(self._kept))]
        whole = [one.samples for one in seen if one.whole]
        known = whole or [one.samples for one in seen if one.samples]
        if not known:
            return 0
        mean = sum(known) / len(known)
        return sum(one.samples if one.whole else max(one.samples, round(mean)) for one in seen)

    def of(self, shard: int) -> Sighting:
        """Return what is known of a shard."""
        return self._fresh.get(shard) or self._kept[shard]

    def count(self, shard: int, offset: int, most: int) -> int | None:
        """Return how many samples a shard has from `offset` on, or `most`; None if more must be seen."""
        seen = self.of(shard)
        found = seen.samples - offset
        if found >= most:
            return most
        return max(0, found) if seen.whole else None

    def note(self, shard: int, seen: Sighting) -> bool:
        """Take note of what somebody found; tell whether it agrees with what is known."""
        known = self.of(shard)
        ends = [one.samples for one in (known, seen) if one.whole]
        if ends and min(ends) < max(known.samples, seen.samples):
            return False
        if seen.samples > known.samples or seen.whole > known.whole:
            self._fresh[shard] = seen
            self._open -= seen.whole and not known.whole
        return True

    def keep(self) -> None:
        """Take note that a step was committed: what was found for it is now known to all for good."""
        for shard, seen in self._fresh.items():
            self._kept[shard] = seen
        self._fresh.clear()

    def forget(self) -> None:
        """Go back to what was known when the last step was committed."""
        self._open += sum(seen.whole and not self._kept[shard].whole for shard, seen in self._fresh.items())
        self._fresh.clear()
        self._total = None
