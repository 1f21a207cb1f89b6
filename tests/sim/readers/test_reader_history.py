"""What really happened, from traces that say when jobs started."""

from __future__ import annotations

import pytest

from elastane.sim.readers.history import History, compute_history
from elastane.sim.readers.rows import TraceRow


def row(submit_s: float, waited_s: float | None, duration_s: float | None, devices: int) -> TraceRow:
    return TraceRow(
        line=2,
        job_id=str(submit_s),
        submit_s=submit_s,
        devices=devices,
        duration_s=duration_s,
        waited_s=waited_s,
    )


def test_waits_completions_and_the_most_devices_at_once() -> None:
    rows = (row(0, 0, 100, 4), row(10, 20, 70, 8), row(20, 80, 50, 8))
    # The first two end at 100 s, when the third starts: their devices change hands and are not counted twice.
    assert compute_history(rows) == History(
        wait_mean_s=pytest.approx(100 / 3), jct_mean_s=pytest.approx(320 / 3), peak_devices=12
    )


def test_a_trace_that_says_it_for_few_jobs_only_says_nothing() -> None:
    assert compute_history((row(0, 0, 100, 4), row(1, None, 100, 4), row(2, 0, None, 4))) is None
    assert compute_history(()) is None
