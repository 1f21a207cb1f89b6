"""What finishing a job by some time is worth: utility functions of the job's total time.

The shapes of Or, Zhang and Freedman (MLSys 2020, section 4.2.2): linear, concave, steps, or a table of one's
own. A utility may never rise with time. Where it falls in steps it says nothing about how to get to the next
step, so the gaps are bridged by straight lines before it is compared with a cost. Knows no currency.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from typing import Protocol

from elastane.model.errors import ConfigError

Point = tuple[float, float]
"""(total time in seconds, value)"""


class Utility(Protocol):
    """Value a job by its total time."""

    def value(self, total_s: float, initial_s: float) -> float:
        """Return what it is worth that the job takes `total_s` in all.

        `initial_s` is the total time that was expected at first: where steps are bridged, the line from the
        last step ends there.
        """
        ...


@dataclass(frozen=True, slots=True)
class Linear:
    """Be worth `most` at once and nothing from `end_s` on, in a straight line."""

    end_s: float
    most: float

    def __post_init__(self) -> None:
        _check_shape("linear", self.end_s, self.most)

    def value(self, total_s: float, initial_s: float) -> float:
        """Return most (1 - t / end), at least 0."""
        del initial_s
        return self.most * max(0.0, 1 - total_s / self.end_s)


@dataclass(frozen=True, slots=True)
class Concave:
    """Be worth `most` at once and nothing from `end_s` on, falling faster and faster: late time is dear."""

    end_s: float
    most: float

    def __post_init__(self) -> None:
        _check_shape("concave", self.end_s, self.most)

    def value(self, total_s: float, initial_s: float) -> float:
        """Return most (1 - (t / end)^2), at least 0."""
        del initial_s
        return self.most * max(0.0, 1 - (total_s / self.end_s) ** 2)


@dataclass(frozen=True, slots=True)
class Steps:
    """Be worth the value of the first step whose time is kept, and nothing after the last.

    Attributes:
        points: (until when in seconds, value); one point is a deadline.
    """

    points: tuple[Point, ...]

    def __post_init__(self) -> None:
        _check_points("steps", self.points)
        if self.points[-1][1] < 0:
            raise ConfigError(
                f"the last step is worth {self.points[-1][1]:g}, less than the nothing after it"
            )

    def value(self, total_s: float, initial_s: float) -> float:
        """Return the value with its gaps bridged: from each step's end to the next one's, at last to 0."""
        last_s = self.points[-1][0]
        if total_s <= last_s:
            return _interpolate(self.points, total_s)
        if total_s >= initial_s:
            return 0.0
        return self.points[-1][1] * (initial_s - total_s) / (initial_s - last_s)


@dataclass(frozen=True, slots=True)
class Table:
    """Be worth what the points say: straight between them, constant before the first and after the last."""

    points: tuple[Point, ...]

    def __post_init__(self) -> None:
        _check_points("table", self.points)

    def value(self, total_s: float, initial_s: float) -> float:
        """Return the value on the line between the two points around `total_s`."""
        del initial_s
        return _interpolate(self.points, total_s)


def _interpolate(points: Sequence[Point], total_s: float) -> float:
    place = bisect_right(points, total_s, key=lambda point: point[0])
    if place == 0:
        return points[0][1]
    if place == len(points):
        return points[-1][1]
    (before_s, before), (after_s, after) = points[place - 1], points[place]
    return before + (after - before) * (total_s - before_s) / (after_s - before_s)


def _check_shape(name: str, end_s: float, most: float) -> None:
    if not (isfinite(end_s) and end_s > 0 and isfinite(most) and most > 0):
        raise ConfigError(f"a {name} utility needs a time and a value above 0; got {end_s:g} s and {most:g}")


def _check_points(name: str, points: Sequence[Point]) -> None:
    """Raise ConfigError unless times rise and values do not."""
    if not points:
        raise ConfigError(f"a {name} utility needs at least one time with its value")
    if not all(isfinite(time_s) and isfinite(value) for time_s, value in points) or points[0][0] < 0:
        raise ConfigError(f"times and values of a {name} utility must be numbers, times not below 0")
    for (before_s, before), (after_s, after) in pairwise(points):
        if after_s <= before_s:
            raise ConfigError(f"times of a {name} utility must rise: {after_s:g} s follows {before_s:g} s")
        if after > before:
            raise ConfigError(
                f"the utility rises from {before:g} at {before_s:g} s to {after:g} at {after_s:g} s; a job "
                "that takes longer cannot be worth more: swap the values"
            )
