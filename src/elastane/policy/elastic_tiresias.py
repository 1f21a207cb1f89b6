"""Elastic-Tiresias (EDL, TPDS 2021, section 5.1): Tiresias whose jobs may shrink and grow.

Order and queues are those of Tiresias. R1, when more than N jobs wait: running jobs outside the top queue
shrink, least loss of normalised throughput per freed device first, never below a floor. R2: idle devices go
one at a time to the largest gain s(k+1) - s(k), a waiting job counting s(min) / min; stop at no gain. The
exact text of the floor and of R1 was not at hand: both readings of each are options.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np

from elastane.model.cluster import Change, Plan
from elastane.policy.base import devices
from elastane.policy.fill import compute_order, select_skipping
from elastane.policy.grow import Sizes, grow, shed
from elastane.policy.levels import (
    check_queue_limits,
    compute_levels,
    compute_next_demotion_s,
    compute_queue_keys,
    compute_service,
)
from elastane.policy.view import Ints, Rows, View


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticTiresias:
    """Shrink under pressure, grow into idle devices.

    `waiting_trigger`: R1 acts when more jobs wait (N). `floor_share` (r) with `floor`: a shrunk job keeps
    `throughput` th(p) >= r th(requested), or `gpus` p >= r requested. `r1`: shrink only as far `as-needed`,
    or `to-floor` at once. `cooldown_s`: a running job grows only that long after its last change, so that R1
    and R2 do not undo each other; it covers the join latency of the costliest preset.
    """

    name: ClassVar[str] = "elastic-tiresias"
    clairvoyant: ClassVar[bool] = False

    # EDL, section 6: three queues with quanta of 500 and 10,000 GPU-seconds, N = 10, r = 0.5.
    limits: tuple[float, ...] = (500.0, 10_000.0)
    waiting_trigger: int = 10
    floor_share: float = 0.5
    floor: Literal["throughput", "gpus"] = "throughput"
    r1: Literal["as-needed", "to-floor"] = "as-needed"
    cooldown_s: float = 60.0

    def __post_init__(self) -> None:
        check_queue_limits(self.limits)

    def plan(self, view: View, now: float) -> Plan:
        """Serve Tiresias' order, then apply R1 if too many wait, then R2 to what is idle."""
        rows = view.live
        service = compute_service(view, rows)
        levels = compute_levels(service, self.limits)
        order = compute_order(compute_queue_keys(view, service, levels, self.limits))
        sizes, room = self._serve(view, rows, order)
        waiting = order[sizes.target[order] == 0]
        if len(waiting) > self.waiting_trigger:
            room += self._shrink(sizes, levels, waiting, room)
        if room > 0:
            room = grow(sizes, self._find_growable(sizes, order), levels, room)
        again_s = compute_next_demotion_s(now, service, levels, sizes.target, self.limits)
        return self._build(sizes, again_s, idle=room > 0)

    def _serve(self, view: View, rows: Rows, order: Rows) -> tuple[Sizes, int]:
        """Return targets after Tiresias' walk, and the idle devices.

        A running job counts with what it holds, but no more than it requested: the rest is lent, and stays
        lent only while nobody in the order needs it.
        """
        jobs = view.jobs
        held, requested = jobs.held[rows], jobs.requested[rows]
        need = np.where(held > 0, np.minimum(held, requested), requested)
        target = np.zeros_like(held)
        chosen = order[select_skipping(need[order], view.capacity)]
        target[chosen] = np.maximum(need[chosen], held[chosen])
        sizes = Sizes(view, rows, target)
        room = view.capacity - int(target.sum())
        if room < 0:
            lent = chosen[target[chosen] > need[chosen]]
            room += shed(sizes, lent, need[lent], -room)
        return sizes, room

    def _shrink(self, sizes: Sizes, levels: Ints, waiting: Rows, room: int) -> int:
        """Apply R1; return how many devices it frees."""
        jobs = sizes.view.jobs
        victims = np.flatnonzero((sizes.target > 0) & (levels > 0))
        floors = self._compute_floors(sizes, victims)
        needed = int(jobs.smallest[sizes.rows[waiting]].sum()) - room
        if self.r1 == "to-floor":
            needed = int(np.maximum(sizes.target[victims] - floors, 0).sum())
        return shed(sizes, victims, floors, needed) if needed > 0 else 0

    def _compute_floors(self, sizes: Sizes, places: Rows) -> Ints:
        """Return the fewest devices that R1 may leave to each of the places."""
        jobs, view = sizes.view.jobs, sizes.view
        rows = sizes.rows[places]
        if self.floor == "gpus":
            kept = np.ceil(self.floor_share * jobs.requested[rows]).astype(np.int64)
        else:
            floors = _compute_speed_floors(view.speedups.tobytes(), view.speedups.shape, self.floor_share)
            kept = floors[jobs.profile[rows], jobs.requested[rows]]
        return np.asarray(np.maximum(kept, jobs.smallest[rows]))

    def _find_growable(self, sizes: Sizes, order: Rows) -> Rows:
        """Return the places that R2 may serve, in Tiresias' order."""
        jobs, now = sizes.view.jobs, sizes.view.now
        rows, target = sizes.rows[order], sizes.target[order]
        held = jobs.held[rows]
        rested = (held == 0) | ((now - jobs.changed_s[rows] >= self.cooldown_s) & (target == held))
        return np.asarray(order[rested & (target < jobs.largest[rows])])

    def _build(self, sizes: Sizes, again_s: float, *, idle: bool) -> Plan:
        """Return the changes from what is held to the targets, and when to be asked again."""
        view, target = sizes.view, sizes.target
        jobs, now = view.jobs, view.now
        held = jobs.held[sizes.rows]
        changed = np.flatnonzero(target != held)
        reasons = (
            Change(number, devices(new), _explain(old, new))
            for number, old, new in zip(
                jobs.number[sizes.rows[changed]].tolist(),
                held[changed].tolist(),
                target[changed].tolist(),
                strict=True,
            )
        )
        resting = (target > 0) & (now - jobs.changed_s[sizes.rows] < self.cooldown_s)
        if idle and bool(resting.any()):
            again_s = min(again_s, now + self.cooldown_s)
        return Plan(changes=tuple(reasons), ask_again_s=again_s)


@lru_cache(maxsize=16)
def _compute_speed_floors(table: bytes, shape: tuple[int, int], share: float) -> Ints:
    """Return for each profile and requested size the fewest devices with `share` of its speed.

    Takes bytes so that equal tables, that is all plans of one run, are computed once.
    """
    speedups = np.frombuffer(table).reshape(shape)
    return np.stack(
        [np.argmax(curve[None, :] >= share * curve[:, None] - 1e-12, axis=1) for curve in speedups]
    )


def _explain(old: int, new: int) -> str:
    """Return the reason of a change, by its kind."""
    if new == 0:
        return "preempted: others have attained less service"
    if old == 0:
        return "least attained service"
    return "R2: gains most from idle devices" if new > old else "gives up what others need more"
