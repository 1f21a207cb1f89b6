"""Share devices by one price: each job takes them while its weight x slope of utility is above it.

The sizes maximise the sum of weight x utility of speedup. Jobs of equal weight, profile and limits form one
group, so the price is found on a table of groups, whatever the number of jobs. Pure arithmetic on columns;
what the weights mean is the caller's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from elastane.perf.curve import compute_envelope_slopes
from elastane.policy.view import Floats, Ints, Rows, View

MINIMUM_WORTH = 1e12
"""Worth of each device of a job's minimum, in utility: above any growth times any ratio of weights."""

MOST_LEVELS = 128
"""Levels that a group key has room for; weights fall by a step each, so far fewer occur."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighing:
    """Say what speedups are worth: the weight of each level, and the utility's fairness.

    The utility of speedup s is U(s) = s ** (1 - fairness) / (1 - fairness), or log s at 1 (Mo and Walrand,
    2000): 0 maximises throughput, 1 is proportional fairness, 2 minimises the sum of 1 / s, the time for
    equal work.
    """

    weight_of_level: Floats
    fairness: float


def compute_ideal_sizes(view: View, rows: Rows, levels: Ints, weighing: Weighing) -> Ints:
    """Return the devices of each job at the price at which all are taken; 0 where the price is too high."""
    jobs = view.jobs
    least, most = jobs.smallest[rows], jobs.largest[rows]
    limit = int(most.max(initial=1)) + 1
    keys = ((jobs.profile[rows] * limit + most) * limit + least) * MOST_LEVELS + levels
    _, first, group, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    worth = _compute_worth(view, rows[first], weighing.fairness)
    worth *= weighing.weight_of_level[levels[first]][:, None]
    share, next_groups = _find_price(worth, counts, view.capacity)
    # The price may fall inside the minimum of one group: nobody of it has a usable size yet.
    share[share < least[first]] = 0
    sizes = share[group]
    spare = view.capacity - int(sizes.sum())
    for place in next_groups:
        if spare <= 0:
            break
        spare = _hand_out(view, rows, sizes, (np.flatnonzero(group == place), spare))
    return sizes


def _compute_worth(view: View, rows: Rows, fairness: float) -> Floats:
    """Return what each device is worth to each group: [group, k - 1], falling along k, 0 beyond the largest.

    A job's minimum is worth more than anybody's growth: whoever holds nothing makes no progress at all.
    """
    jobs = view.jobs
    least, most = jobs.smallest[rows], jobs.largest[rows]
    worth = _compute_slopes(view.speedups.tobytes(), view.speedups.shape, fairness)[jobs.profile[rows]]
    places = np.arange(1, worth.shape[1] + 1)
    worth = np.where(places <= least[:, None], MINIMUM_WORTH, worth)
    return np.where(places <= most[:, None], worth, 0.0)


@lru_cache(maxsize=16)
def _compute_slopes(table: bytes, shape: tuple[int, int], fairness: float) -> Floats:
    """Return the slopes of the concave envelopes of U(s(k)), k >= 1: entry k - 1 belongs to device k.

    Takes bytes so that equal tables, that is all plans of one run, are computed once.
    """
    speedups = np.frombuffer(table).reshape(shape)[:, 1:]
    utility = np.log(speedups) if fairness == 1.0 else speedups ** (1.0 - fairness) / (1.0 - fairness)
    slopes = np.zeros(shape)[:, 1:]
    for profile, curve in enumerate(utility):
        slopes[profile, 1:] = compute_envelope_slopes(curve)
    return slopes


def _find_price(worth: Floats, counts: Ints, capacity: int) -> tuple[Ints, list[int]]:
    """Return the devices that every job of each group gets, and whose turn comes next."""
    flat = worth.ravel()
    useful = np.flatnonzero(flat > 0.0)
    order = useful[np.argsort(-flat[useful], kind="stable")]
    groups = order // worth.shape[1]
    taken = np.cumsum(counts[groups])
    cut = int(np.searchsorted(taken, capacity, side="right"))
    share = np.bincount(groups[:cut], minlength=len(counts))
    # A few turns are enough: each but the last serves whole jobs only where minima are above one device.
    following = list(dict.fromkeys(groups[cut : cut + 16].tolist()))
    return share, following


def _hand_out(view: View, rows: Rows, sizes: Ints, group: tuple[Rows, int]) -> int:
    """Give members of one group one step more, those that hold most first; return what is left."""
    members, spare = group
    jobs = view.jobs
    step = 1 if sizes[members[0]] else int(jobs.smallest[rows[members[0]]])
    lucky = np.lexsort((members, jobs.changed_s[rows[members]], -jobs.held[rows[members]]))
    served = members[lucky[: spare // step]]
    sizes[served] += step
    return spare - step * len(served)
