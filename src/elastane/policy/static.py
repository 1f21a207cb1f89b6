"""The fixed size of EDL's testbed comparison (TPDS 2021, section 6.3): all jobs on equally many devices.

Order of arrival, nothing is resized or preempted, whatever users asked for and whatever is idle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from elastane.model.cluster import KEEP, Change, Plan
from elastane.model.errors import ConfigError
from elastane.policy.base import devices
from elastane.policy.fill import select_strict
from elastane.policy.view import View


@dataclass(frozen=True, slots=True, kw_only=True)
class Static:
    """Give each job `parallelism` devices, or the nearest number that its limits allow; 0: as requested."""

    name: ClassVar[str] = "static"
    clairvoyant: ClassVar[bool] = False

    # EDL ran every job of its testbed on 4 GPUs; 0 leaves the choice to the users, as traces need.
    parallelism: int = 0

    def __post_init__(self) -> None:
        if self.parallelism < 0:
            raise ConfigError(f"parallelism {self.parallelism} is no number of devices; give 0 or more")

    def plan(self, view: View, now: float) -> Plan:
        """Start from the front of the queue while jobs fit at the fixed size."""
        jobs, waiting = view.jobs, view.waiting[: view.free]
        if not len(waiting):
            return KEEP
        size = jobs.requested[waiting]
        if self.parallelism:
            size = np.clip(self.parallelism, jobs.smallest[waiting], jobs.largest[waiting])
        fitting = select_strict(size, view.free)
        pairs = zip(jobs.number[waiting[:fitting]].tolist(), size[:fitting].tolist(), strict=True)
        changes = (Change(number, devices(count), "next in order of arrival") for number, count in pairs)
        return Plan(changes=tuple(changes))
