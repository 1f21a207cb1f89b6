"""Discretised attained service: which queue a job is in, and when it will move down.

Shared by Tiresias and its elastic descendants. A job enters queue 0 and moves down at the exact moment its
attained service reaches the queue's limit. Pure arithmetic on columns.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from elastane.model.errors import ConfigError
from elastane.policy.view import RUNNING, WAITING, Floats, Ints, Rows, View

LEVEL_STRIDE = float(1 << 34)
"""Distance of two queues in the order key: above any time in seconds, start order and row; small enough for
float64 to keep 4 microseconds apart in the eighth queue."""

CLASS_STRIDE = float(1 << 32)
"""Distance of running, waiting and just demoted jobs inside one queue."""

SERVICE_SLACK = 1e-6
"""Device-seconds by which a limit counts as reached: rounding of (limit - service) / devices must not
make the policy ask for a moment that never quite comes."""

DEMOTION_SLACK = 1e-3
"""Device-seconds past a limit up to which a job counts as moving down at this moment."""


def compute_service(view: View, rows: Rows) -> Floats:
    """Return the service attained since the job's last promotion, in device-seconds (see `note`)."""
    return np.asarray(view.attained(rows) - view.jobs.note[rows])


def compute_levels(service: Floats, limits: tuple[float, ...]) -> Ints:
    """Return the queue of each job: how many of the rising `limits` its service has reached."""
    return np.searchsorted(np.asarray(limits), service + SERVICE_SLACK, side="right")


def compute_queue_keys(view: View, service: Floats, levels: Ints, limits: tuple[float, ...]) -> Floats:
    """Return keys that order `view.live` queue by queue as the published simulator does.

    Inside a queue: running jobs by when they got their devices, then waiting ones by since when they wait; a
    running job that moves down at this very moment enters its new queue at the end, behind those that wait.
    """
    jobs, rows = view.jobs, view.live
    entered = np.concatenate([[-math.inf], np.asarray(limits)])[levels]
    running = jobs.state[rows] == RUNNING
    place = np.where(running, np.where(service - entered <= DEMOTION_SLACK, 2.0, 0.0), 1.0)
    return np.asarray(levels * LEVEL_STRIDE + place * CLASS_STRIDE + jobs.changed_s[rows])


def compute_first_start_keys(view: View, levels: Ints) -> Floats:
    """Return keys that order `view.live` by queue, inside a queue by first start; never-started last."""
    jobs, rows = view.jobs, view.live
    ran = np.isfinite(jobs.started_s[rows])
    inside = np.where(ran, jobs.start_order[rows], CLASS_STRIDE + rows)
    return np.asarray(levels * LEVEL_STRIDE + inside)


def compute_arrival_keys(view: View, levels: Ints) -> Floats:
    """Return keys that order `view.live` by queue, inside a queue by submission."""
    return np.asarray(levels * LEVEL_STRIDE + view.live)


def compute_next_demotion_s(
    now: float, service: Floats, levels: Ints, devices: Ints, limits: tuple[float, ...]
) -> float:
    """Return when the first of some jobs reaches its queue's limit; infinity if none will.

    `service` is what each has attained now, `devices` what it will hold from now on; 0: it will wait.
    """
    moving = np.flatnonzero((levels < len(limits)) & (devices > 0))
    if not len(moving):
        return math.inf
    wait_s = ((np.asarray(limits)[levels[moving]] - service[moving]) / devices[moving]).min()
    return float(max(now + wait_s, math.nextafter(now, math.inf)))


def find_promoted(view: View, service: Floats, limits: tuple[float, ...], knob: float) -> tuple[Rows, float]:
    """Return which places of `view.live` go back to the first queue now, and when the next one will.

    A waiting job below the first queue is promoted when its wait reaches `knob` times its run time since the
    last promotion; `knob` 0: never.
    """
    if knob <= 0.0:
        return np.empty(0, dtype=np.int64), math.inf
    jobs, rows = view.jobs, view.live
    able = (jobs.state[rows] == WAITING) & (compute_levels(service, limits) > 0)
    due_s = jobs.changed_s[rows] + knob * service / jobs.requested[rows]
    later = due_s[able & (due_s > view.now)]
    return np.flatnonzero(able & (due_s <= view.now)), float(later.min(initial=math.inf))


def note_promotions(view: View, rows: Rows) -> tuple[tuple[int, float], ...]:
    """Return the notes that make the rows' service count from zero again."""
    return tuple(zip(view.jobs.number[rows].tolist(), view.attained(rows).tolist(), strict=True))


def check_queue_limits(limits: tuple[float, ...]) -> None:
    """Raise ConfigError unless the limits are positive and rise."""
    if not limits or limits[0] <= 0.0 or any(b <= a for a, b in pairwise(limits)):
        raise ConfigError(f"queue limits {limits} must be positive device-seconds in rising order")
