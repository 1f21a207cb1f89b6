"""Rebuild who held which device when, as a picture: a row for each device, a column for each slice of time.

A run knows only how many devices each job held. Here they get numbers: a new job takes free devices side
by side, one that grows takes the nearest. That is one of the many true pictures of the run.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from elastane.sim.recording import ChangeLog

Places = npt.NDArray[np.int64]
Pixels = npt.NDArray[np.int32]

IDLE = -1
"""Pixel of a device that no job holds."""


def draw_allocation(
    changes: ChangeLog, finish_s: npt.NDArray[np.float64], capacity: int, middles_s: npt.NDArray[np.float64]
) -> Pixels:
    """Return pixels [device, column] with job numbers; a column shows the moment `middles_s[column]`."""
    pixels = np.full((capacity, len(middles_s)), IDLE, dtype=np.int32)
    owner = np.full(capacity, IDLE, dtype=np.int32)
    floor = _Floor(owner)
    column = 0
    for time_s, job, devices in _merge(changes, finish_s):
        upto = int(np.searchsorted(middles_s, time_s, side="left"))
        pixels[:, column:upto] = owner[:, None]
        column = upto
        floor.set(job, devices)
    return pixels


class _Floor:
    """Hand out numbered devices, side by side where it can, so that a job is a block and not a comb."""

    def __init__(self, owner: Pixels) -> None:
        self._owner = owner

    def set(self, job: int, devices: int) -> None:
        """Give `job` as many devices as it should hold now."""
        owner = self._owner
        held = np.flatnonzero(owner == job)
        surplus = len(held) - devices
        if surplus > 0:
            owner[_farthest(held, surplus)] = IDLE
        elif surplus < 0:
            free = np.flatnonzero(owner == IDLE)
            owner[_nearest(free, held, -surplus) if len(held) else _tightest(free, -surplus)] = job


def _farthest(held: Places, count: int) -> Places:
    """Return the `count` devices that lie farthest from the middle of a job's own."""
    distance = np.abs(held - np.median(held))
    return held[np.argsort(-distance, kind="stable")[:count]]


def _nearest(free: Places, held: Places, count: int) -> Places:
    """Return the `count` free devices that lie nearest to a job's own."""
    distance = np.abs(free - np.median(held))
    return free[np.argsort(distance, kind="stable")[:count]]


def _tightest(free: Places, count: int) -> Places:
    """Return `count` free devices that span as little as possible."""
    start = int(np.argmin(free[count - 1 :] - free[: len(free) - count + 1]))
    return free[start : start + count]


def _merge(changes: ChangeLog, finish_s: npt.NDArray[np.float64]) -> Iterator[tuple[float, int, int]]:
    """Yield (time, job, devices) in order: at one moment ends first, then what shrinks, then what grows."""
    ends = np.argsort(finish_s, kind="stable")
    times = np.concatenate([finish_s[ends], changes.time_s])
    jobs = np.concatenate([ends, changes.job])
    devices = np.concatenate([np.zeros(len(ends), dtype=np.int64), changes.devices])
    held = dict.fromkeys(range(len(finish_s)), 0)
    # The log keeps a policy's own order; what gives back must come before what takes, as the engine does it.
    batch: list[tuple[float, int, int]] = []
    for place in np.argsort(times, kind="stable"):
        entry = (float(times[place]), int(jobs[place]), int(devices[place]))
        if batch and entry[0] != batch[0][0]:
            yield from _givers_first(batch, held)
            batch = []
        batch.append(entry)
    yield from _givers_first(batch, held)


def _givers_first(
    batch: list[tuple[float, int, int]], held: dict[int, int]
) -> Iterator[tuple[float, int, int]]:
    for entry in sorted(batch, key=lambda entry: entry[2] - held[entry[1]]):
        held[entry[1]] = entry[2]
        yield entry
