"""Which pools a job's devices come from when the policy names only a number.

Grows where the job already is, then best fit; shrinks from where it has fewest. Pure functions on counts;
clusters of one pool never get here.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def place(own: Ints, free: Ints, devices: int) -> Ints:
    """Return counts by pool for `devices` in all, given its own and the free ones (own not included)."""
    counts = own.copy()
    missing = devices - int(own.sum())
    return _grow(counts, free.copy(), missing) if missing >= 0 else _shrink(counts, -missing)


def _grow(counts: Ints, free: Ints, missing: int) -> Ints:
    while missing > 0:
        pool = _choose_pool(counts, free, missing)
        taken = min(missing, int(free[pool]))
        counts[pool] += taken
        free[pool] -= taken
        missing -= taken
    return counts


def _choose_pool(counts: Ints, free: Ints, missing: int) -> int:
    """Return the pool to take from: one in use, else the tightest that holds all, else the emptiest."""
    used = np.flatnonzero((counts > 0) & (free > 0))
    if len(used):
        return int(used[np.argmax(free[used])])
    roomy = np.flatnonzero(free >= missing)
    if len(roomy):
        return int(roomy[np.argmin(free[roomy])])
    return int(np.argmax(free))


def _shrink(counts: Ints, surplus: int) -> Ints:
    while surplus > 0:
        used = np.flatnonzero(counts)
        pool = int(used[np.argmin(counts[used])])
        given = min(surplus, int(counts[pool]))
        counts[pool] -= given
        surplus -= given
    return counts
