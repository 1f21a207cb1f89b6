"""How much of the past a store keeps for its watches: bounds, and where to cut when they are passed.

Pure: knows neither tables nor clocks. Watches look every few milliseconds, so a bounded past is enough; one
that slept through more of it is told so (CompactedError) and reads the range again.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryLimits:
    """Bound the history that a store keeps; passing either bound makes it forget the older half.

    4096 events are a minute of 64 workers that report every second; 16 MiB keep the file small even if some
    of the values are large.
    """

    events: int = 4096
    total_bytes: int = 16 << 20

    def is_passed(self, events: int, total_bytes: int) -> bool:
        """Return whether a history of `events` events and `total_bytes` bytes has to be cut."""
        return events > self.events or total_bytes > self.total_bytes


def compute_cutoff(newest_first: Iterable[tuple[int, int]], limits: HistoryLimits) -> int:
    """Return the last revision to forget, so that about half of `limits` remains; 0 for none.

    `newest_first` are (revision, bytes) of all events. A revision is kept or forgotten whole, and the newest
    one is always kept, so that one very large transaction still reaches the watches.
    """
    newest: int | None = None
    total_bytes = 0
    for events, (revision, event_bytes) in enumerate(newest_first, start=1):
        newest = revision if newest is None else newest
        total_bytes += event_bytes
        half_is_full = events > limits.events // 2 or total_bytes > limits.total_bytes // 2
        if half_is_full and revision != newest:
            return revision
    return 0
