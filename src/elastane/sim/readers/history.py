"""Tell what really happened, where a trace says when its jobs started.

Gives the yardstick for a simulation: how long jobs waited, and how many devices were in use at once, which
is the best guess of the cluster's size. Pure arithmetic on rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from elastane.sim.readers.rows import TraceRow

_KNOWN_SHARE = 0.5
"""Starts of at least this share of the jobs must be known; fewer would describe odd jobs only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Hold the mean wait before the first start, the mean completion time, and the most devices at once."""

    wait_mean_s: float
    jct_mean_s: float
    peak_devices: int


def compute_history(rows: Sequence[TraceRow]) -> History | None:
    """Return what really happened, or None if the trace does not say."""
    known = [
        (row.submit_s, row.waited_s, row.duration_s, row.devices)
        for row in rows
        if row.waited_s is not None and row.duration_s is not None
    ]
    if not known or len(known) < _KNOWN_SHARE * len(rows):
        return None
    submit_s, waited_s, duration_s, devices = np.array(known, dtype=np.float64).T
    start_s = submit_s + waited_s
    times = np.concatenate([start_s + duration_s, start_s])
    steps = np.concatenate([-devices, devices])
    # Ends stand before starts, and the sort is stable: a device that changes hands is counted once.
    in_use = np.cumsum(steps[np.argsort(times, kind="stable")])
    return History(
        wait_mean_s=float(waited_s.mean()),
        jct_mean_s=float((waited_s + duration_s).mean()),
        peak_devices=int(in_use.max()),
    )
