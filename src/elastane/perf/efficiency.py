"""GPU efficiency and cluster efficiency as EDL defines them (TPDS 2021, section 2.2).

A device is efficient if the job it serves could not make more of it at another size. Pure arithmetic on
throughput curves; knows neither jobs nor time.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def compute_device_efficiency(throughput: Floats) -> Floats:
    """Return ef(p) = (th(p) / p) / max_q (th(q) / q) for p = 0..n along the last axis; ef(0) = 0."""
    counts = np.arange(throughput.shape[-1], dtype=np.float64)
    per_device = np.divide(throughput, counts, out=np.zeros_like(throughput), where=counts > 0)
    return np.asarray(per_device / per_device.max(axis=-1, keepdims=True))


def compute_cluster_efficiency(held: Floats, efficiency: Floats, capacity: int) -> float:
    """Return the sum of the devices' efficiency over all `capacity` devices; an idle one counts 0.

    `held[j]` devices of job j work at `efficiency[j]` each.
    """
    return float(np.dot(held, efficiency)) / capacity


def compute_active_efficiency(held: Floats, efficiency: Floats) -> float:
    """Return the mean efficiency of the devices in use, 0 where none is."""
    total = float(held.sum())
    return float(np.dot(held, efficiency)) / total if total > 0 else 0.0
