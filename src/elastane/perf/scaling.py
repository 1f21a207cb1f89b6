"""Predict a job's throughput at numbers of workers that were not measured, from those that were.

The time per sample with k workers is taken for a + b w(k) + c k: what is done once however many there are,
what is shared out, and what grows with each worker (messages, their arrival). w(k) is the largest share that
one worker has: 1 / k, or ceil(N / k) / N where N virtual workers cannot be cut. So the curve of a fixed
batch bends, can fall, and stands still between divisors of N; and a batch that grows with the workers has
the same form, with a as the time of a message per sample. Knows no jobs and no clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np

TERMS = 3
TINY = 1e-9
"""Relative error below which a further term explains nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingModel:
    """Hold the time per sample in seconds, by its cause.

    Attributes:
        fixed_s: a, whatever the number of workers.
        shared_s: b, shared out among them.
        each_s: c, once more for each worker.
        virtual_workers: N; 0 if any share is possible.
    """

    fixed_s: float
    shared_s: float
    each_s: float
    virtual_workers: int = 0

    def predict_throughput(self, workers: int) -> float:
        """Return samples per second with so many workers."""
        share = compute_largest_share(workers, self.virtual_workers)
        return 1 / (self.fixed_s + self.shared_s * share + self.each_s * workers)


def compute_largest_share(workers: int, virtual_workers: int = 0) -> float:
    """Return the part of a step that the busiest of `workers` has; N = 0: any part is possible."""
    if virtual_workers:
        return -(-virtual_workers // workers) / virtual_workers
    return 1 / workers


def fit_scaling(measured: Mapping[int, float], virtual_workers: int = 0) -> ScalingModel:
    """Return the model that is nearest to what was measured, by relative error, with no term below 0.

    With one measurement all is taken to be shared out; no more terms than measurements are used, and
    none that explains nothing.

    Args:
        measured: samples per second by number of workers, at least one, all above 0.
        virtual_workers: N; 0 if any share is possible.
    """
    sizes = sorted(measured)
    seconds = np.array([1 / measured[size] for size in sizes])
    shares = [compute_largest_share(size, virtual_workers) for size in sizes]
    table = np.array([[1.0, share, float(size)] for share, size in zip(shares, sizes, strict=True)])
    scaled = table / seconds[:, None]
    best, least = np.array([0.0, seconds[0] / shares[0], 0.0]), np.inf
    for count in range(1, min(TERMS, len(sizes)) + 1):
        # The shared part alone comes first: of one measurement it is the usual reading.
        for terms in sorted(combinations(range(TERMS), count), key=lambda chosen: 1 not in chosen):
            solved, *_ = np.linalg.lstsq(scaled[:, terms], np.ones(len(sizes)), rcond=None)
            error = float(np.sum((scaled[:, terms] @ solved - 1) ** 2))
            if (solved >= 0).all() and error < least - TINY:
                best, least = np.zeros(TERMS), error
                best[list(terms)] = solved
    fixed_s, shared_s, each_s = (float(value) for value in best)
    return ScalingModel(fixed_s=fixed_s, shared_s=shared_s, each_s=each_s, virtual_workers=virtual_workers)
