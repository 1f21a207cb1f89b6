"""Read a sweep from the text a user types, and list the points it has.

A sweep varies one or two axes: `load` (arrivals faster or slower), `nodes` (the cluster's size), `seed`, and
`elastic` (the share of jobs that can change size). Two axes make a regime map.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from elastane.model.errors import ConfigError

AXES = ("load", "nodes", "seed", "elastic")
WHOLE_AXES = frozenset({"nodes", "seed"})
MOST_POINTS = 400
"""Points of one sweep; each is a simulation for each policy, so more is a mistyped step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Hold one axis of a sweep and its values in rising order."""

    name: str
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPoint:
    """Hold one point: the value on each axis, in the order of the axes."""

    axes: tuple[str, ...]
    values: tuple[float, ...]

    def value(self, axis: str, default: float) -> float:
        """Return the value on `axis`, or `default` if the sweep does not vary it."""
        return self.values[self.axes.index(axis)] if axis in self.axes else default


def parse_sweep(texts: Sequence[str]) -> tuple[Axis, ...]:
    """Return the axes of `load=0.5:2.0:0.25` (from, to, step) or `nodes=16,32,64`; raise ConfigError."""
    axes = tuple(_parse_axis(text) for text in texts)
    names = [axis.name for axis in axes]
    if len(set(names)) < len(names):
        raise ConfigError(f"--sweep names {', '.join(names)}: each axis can be varied once.")
    if len(axes) > 2:
        raise ConfigError(f"--sweep varies {len(axes)} axes; a map has one or two.")
    points = math.prod(len(axis.values) for axis in axes)
    if points > MOST_POINTS:
        raise ConfigError(
            f"--sweep has {points:,} points; at most {MOST_POINTS} are run. Take a larger step."
        )
    return axes


def list_points(axes: Sequence[Axis]) -> tuple[SweepPoint, ...]:
    """Return every combination of the axes' values."""
    names = tuple(axis.name for axis in axes)
    return tuple(
        SweepPoint(axes=names, values=values) for values in itertools.product(*(axis.values for axis in axes))
    )


def _parse_axis(text: str) -> Axis:
    name, equals, rest = text.partition("=")
    if name not in AXES or not equals or not rest:
        raise ConfigError(
            f"--sweep {text!r} is not understood; write AXIS=FROM:TO:STEP or AXIS=A,B,C with an axis of "
            f"{', '.join(AXES)}."
        )
    try:
        values = (
            _span(*map(float, rest.split(":"))) if ":" in rest else [float(item) for item in rest.split(",")]
        )
    except (TypeError, ValueError) as error:
        raise ConfigError(f"--sweep {text!r}: {rest!r} is no FROM:TO:STEP and no list of numbers.") from error
    values = sorted(set(values))
    if not values or not all(map(math.isfinite, values)):
        raise ConfigError(f"--sweep {text!r} has no values; FROM must not be above TO, STEP more than 0.")
    if name in WHOLE_AXES and any(value != int(value) or value < 0 for value in values):
        raise ConfigError(f"--sweep {text!r}: {name} takes whole numbers.")
    if name in ("load", "nodes") and values[0] <= 0:
        raise ConfigError(f"--sweep {text!r}: {name} must be more than 0.")
    if name == "elastic" and not (values[0] >= 0 and values[-1] <= 1):
        raise ConfigError(f"--sweep {text!r}: elastic is a share from 0 to 1.")
    return Axis(name=name, values=tuple(values))


def _span(start: float, stop: float, step: float) -> list[float]:
    if not (step > 0 and math.isfinite(step) and math.isfinite(start) and math.isfinite(stop)):
        return []
    # Counted in whole steps: adding up 0.1 ten times would miss the end.
    count = math.floor((stop - start) / step + 1e-9) + 1
    if count > MOST_POINTS:
        raise ConfigError(f"{start:g}:{stop:g}:{step:g} has {count:,} steps; at most {MOST_POINTS} are run.")
    return [round(start + i * step, 9) for i in range(count)]
