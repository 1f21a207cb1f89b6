"""How fast each job runs on what it holds, relative to its requested size.

Builds plain lists once for each profile, because the engine looks up single values far more often than
columns. Knows the pools' types and sizes; knows no time and no state.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elastane.model.cluster import Cluster, Workload
from elastane.perf.curve import compute_capabilities, compute_curve, compute_mixed_speed, compute_speedups
from elastane.perf.efficiency import compute_device_efficiency

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Speeds:
    """Answer rate and efficiency questions for the jobs of one workload on one cluster."""

    def __init__(self, workload: Workload, cluster: Cluster) -> None:
        pools = cluster.pools
        self.pool_types = tuple(pool.device_type for pool in pools)
        self._types = list(dict.fromkeys(self.pool_types))
        self._type_of_pool = np.array([self._types.index(kind) for kind in self.pool_types])
        self._by_node = cluster.pooling == "node"
        self._node_devices = max(pool.devices for pool in pools)
        self.profile_names = sorted({job.profile for job in workload.jobs})
        self.profile_index = {name: i for i, name in enumerate(self.profile_names)}
        profiles = [workload.profiles[name] for name in self.profile_names]
        wanted = max((job.largest for job in workload.jobs), default=1)
        self.largest = max(wanted, max((job.requested for job in workload.jobs), default=1))
        self._curves = [compute_curve(profile, self.largest) for profile in profiles]
        self.speedups = compute_speedups(profiles, self.largest)
        self.curve: list[list[float]] = [curve.packed.tolist() for curve in self._curves]
        self.efficiency: list[list[float]] = [
            compute_device_efficiency(curve.packed).tolist() for curve in self._curves
        ]
        self.capabilities = compute_capabilities(profiles, self.pool_types)

    def compute_rate(self, profile: int, requested: int, held: int) -> float:
        """Return the speed on `held` packed devices over that on `requested`: exactly 1 if equal."""
        curve = self.curve[profile]
        return curve[held] / curve[requested]

    def compute_placed_rate(self, profile: int, requested: int, counts: Ints, virtual_workers: int) -> float:
        """Return the relative speed on `counts[i]` devices of pool i: types and spread both matter."""
        curve = self._curves[profile]
        by_type = np.bincount(self._type_of_pool, weights=counts, minlength=len(self._types)).astype(int)
        if virtual_workers:
            unit = [float(curve.throughput(kind)[1] / curve.packed[1]) for kind in self._types]
            speed = compute_mixed_speed(by_type.tolist(), unit, virtual_workers)
            return speed / compute_mixed_speed([requested], [1.0], virtual_workers)
        held = int(by_type.sum())
        # Equal shares make the slowest type set the pace of all.
        used = [kind for kind, n in zip(self._types, by_type, strict=True) if n]
        speed = min(float(curve.throughput(kind)[held]) for kind in used)
        return speed * self._spread_factor(profile, held, counts) / self.curve[profile][requested]

    def _spread_factor(self, profile: int, held: int, counts: Ints) -> float:
        if not self._by_node:
            return 1.0
        fewest = -(-held // self._node_devices)
        return self._curves[profile].spread_factor(int(np.count_nonzero(counts)) - fewest)
