"""Where a store cuts its history."""

import pytest

from elastane.store.history import HistoryLimits, compute_cutoff

LIMITS = HistoryLimits(events=8, total_bytes=100)


@pytest.mark.parametrize(
    ("events", "total_bytes", "passed"), [(8, 100, False), (9, 0, True), (1, 101, True), (0, 0, False)]
)
def test_either_bound_can_be_passed(events: int, total_bytes: int, passed: bool) -> None:
    assert LIMITS.is_passed(events, total_bytes) == passed


@pytest.mark.parametrize(
    ("newest_first", "cutoff"),
    [
        ([], 0),
        ([(5, 1), (4, 1), (3, 1), (2, 1)], 0),
        ([(9, 1), (8, 1), (7, 1), (6, 1), (5, 1), (4, 1)], 5),
        ([(9, 1), (8, 1), (7, 1), (6, 1), (6, 1), (5, 1)], 6),
        ([(9, 20), (8, 30), (7, 1), (6, 1)], 7),
        ([(9, 1)] * 7 + [(8, 1), (7, 1)], 8),
        ([(9, 1000), (8, 1)], 8),
        ([(9, 1000)], 0),
    ],
    ids=[
        "nothing to keep or to forget",
        "half of the events fit",
        "the older half goes",
        "a revision that does not fit whole goes whole",
        "half of the bytes stay",
        "the newest revision stays whole",
        "the newest revision stays however large",
        "a lone revision stays",
    ],
)
def test_about_half_of_the_limits_remains(newest_first: list[tuple[int, int]], cutoff: int) -> None:
    assert compute_cutoff(newest_first, LIMITS) == cutoff
