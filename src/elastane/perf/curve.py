"""Turn a measured profile into a speed for every number of devices.

Throughput is piecewise linear between measured points, proportional below the first and flat beyond
the last (a job never gets faster than anybody saw it). A job spread over more machines than it needs is
slowed by the measured ratio. Unlike device types have curves of their own; a type that was not measured
counts as the profile's first one. Knows no jobs, no cluster and no clock.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elastane.model.cluster import Profile, SpeedPoint

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Hold throughput th(p), p = 0..n, for each device type, and the slow-down by extra machines.

    `spread[e]` is the speed on e machines more than needed, relative to the packed job.
    """

    reference: str
    by_type: dict[str, Floats]
    spread: Floats

    @property
    def packed(self) -> Floats:
        """Return th(p) of the packed job on the reference type; index 0 is no device and no speed."""
        return self.by_type[self.reference]

    def throughput(self, device_type: str) -> Floats:
        """Return th(p) on `device_type`, or on the reference type where that one was not measured."""
        return self.by_type.get(device_type, self.packed)

    def spread_factor(self, extra_nodes: int) -> float:
        """Return the relative speed on `extra_nodes` machines more than the fewest possible."""
        return float(self.spread[min(max(extra_nodes, 0), len(self.spread) - 1)])


def compute_curve(profile: Profile, largest: int) -> Curve:
    """Return the curve of a profile for 0..`largest` devices."""
    types = list(dict.fromkeys(point.device_type for point in profile.points))
    by_type = {kind: _interpolate(_packed_points(profile, kind), largest) for kind in types}
    return Curve(reference=types[0], by_type=by_type, spread=_compute_spread(profile))


def compute_speedups(profiles: Sequence[Profile], largest: int) -> Floats:
    """Return s(p) = th(p) / th(1) as a table [profile, p], p = 0..`largest`, of packed jobs."""
    curves = [compute_curve(profile, max(largest, 1)).packed for profile in profiles]
    return np.stack([curve / curve[1] for curve in curves])


def compute_capabilities(profiles: Sequence[Profile], device_types: Sequence[str]) -> Floats:
    """Return the speed on one device of each type, relative to the profile's reference type."""
    curves = [compute_curve(profile, 1) for profile in profiles]
    return np.array([[c.throughput(kind)[1] / c.packed[1] for kind in device_types] for c in curves])


def compute_largest_useful(speedups: Floats) -> npt.NDArray[np.int64]:
    """Return for each profile the fewest devices that reach its highest speed."""
    return np.asarray(np.argmax(speedups, axis=1), dtype=np.int64)


def compute_envelope_slopes(curve: Floats) -> Floats:
    """Return the slopes of the least concave function above a curve: entry i leads from point i to i + 1.

    Slopes fall or stay, and are 0 behind the highest point.
    """
    best = np.maximum.accumulate(curve)
    slopes = np.zeros(len(best) - 1)
    start, last = 0, int(np.argmax(best))
    while start < last:
        ahead = (best[start + 1 : last + 1] - best[start]) / np.arange(1, last - start + 1)
        # The farthest of equal slopes, so that straight stretches are taken in one step.
        reach = len(ahead) - int(np.argmax(ahead[::-1]))
        slopes[start : start + reach] = ahead[reach - 1]
        start += reach
    return slopes


def compute_mixed_speed(counts: Sequence[int], capabilities: Sequence[float], virtual_workers: int) -> float:
    """Return the speed of `virtual_workers` equal pieces split over unlike devices, in pieces per second.

    `counts[i]` devices of a type that does `capabilities[i]` pieces per second each. A step ends when the
    slowest device ends: with f = max_i ceil-share_i / C_i the speed is V / f (EasyScale, SC'23, Eq. 1:
    perf = maxP / f). The best split is found exactly: f is one of the values j / C_i.
    """
    pairs = [(n, c) for n, c in zip(counts, capabilities, strict=True) if n > 0]
    if not pairs:
        return 0.0
    candidates = sorted({pieces / c for _, c in pairs for pieces in range(1, virtual_workers + 1)})
    low, high = 0, len(candidates) - 1
    while low < high:
        middle = (low + high) // 2
        # The tiny slack keeps pieces / c * c from rounding below the whole number it stands for.
        room = sum(n * math.floor(candidates[middle] * c + 1e-9) for n, c in pairs)
        low, high = (low, middle) if room >= virtual_workers else (middle + 1, high)
    return virtual_workers / candidates[low]


def _packed_points(profile: Profile, kind: str) -> list[SpeedPoint]:
    """Return the points of one device type, for each count the one on the fewest machines."""
    best: dict[int, SpeedPoint] = {}
    for point in profile.points:
        if point.device_type == kind:
            known = best.get(point.devices)
            if known is None or point.nodes < known.nodes:
                best[point.devices] = point
    return [best[devices] for devices in sorted(best)]


def _interpolate(points: list[SpeedPoint], largest: int) -> Floats:
    counts = [0.0, *(float(point.devices) for point in points)]
    speeds = [0.0, *(point.samples_per_s for point in points)]
    # The line through the origin below the first point means perfect scaling up to it: the optimistic
    # reading, but the only one without a second figure.
    return np.interp(np.arange(largest + 1, dtype=np.float64), counts, speeds)


def _compute_spread(profile: Profile) -> Floats:
    """Return the mean relative speed by extra machines, linear between measured numbers of them."""
    ratios: dict[int, list[float]] = {}
    for kind in dict.fromkeys(point.device_type for point in profile.points):
        packed = {point.devices: point for point in _packed_points(profile, kind)}
        for point in profile.points:
            base = packed.get(point.devices)
            if point.device_type == kind and base is not None and point.nodes > base.nodes:
                ratio = point.samples_per_s / base.samples_per_s
                ratios.setdefault(point.nodes - base.nodes, []).append(ratio)
    extras = [0, *sorted(ratios)]
    factors = [1.0, *(sum(ratios[extra]) / len(ratios[extra]) for extra in sorted(ratios))]
    return np.interp(np.arange(extras[-1] + 1, dtype=np.float64), extras, factors)
