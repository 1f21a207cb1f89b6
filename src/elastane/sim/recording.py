"""Keep what a policy changed, when, and for whom, so that a run can be drawn device by device afterwards.

A recording policy passes every question on and writes the answer down; the engine does not know that it
records. It keeps 20 bytes for each change and knows nothing about drawing.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from elastane.model.cluster import Plan
from elastane.policy.base import Policy
from elastane.policy.view import View


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeLog:
    """Hold every change of allocation in order: at `time_s` job number `job` went to `devices` devices.

    Jobs that end are not in it: they give their devices back at their finish time.
    """

    time_s: npt.NDArray[np.float64]
    job: npt.NDArray[np.int64]
    devices: npt.NDArray[np.int64]


class RecordingPolicy:
    """Ask `policy` and write its changes down."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._time_s, self._job, self._devices = array("d"), array("q"), array("i")

    @property
    def name(self) -> str:
        """Return the name of the policy that is asked."""
        return self._policy.name

    @property
    def clairvoyant(self) -> bool:
        """Say whether the policy that is asked may know the future."""
        return self._policy.clairvoyant

    def plan(self, view: View, now: float) -> Plan:
        """Return the policy's own plan."""
        plan = self._policy.plan(view, now)
        for change in plan.changes:
            self._time_s.append(now)
            self._job.append(change.job)
            self._devices.append(change.allocation.devices)
        return plan

    def log(self) -> ChangeLog:
        """Return what was written down so far."""
        return ChangeLog(
            time_s=np.array(self._time_s, dtype=np.float64),
            job=np.array(self._job, dtype=np.int64),
            devices=np.array(self._devices, dtype=np.int64),
        )


def describe_settings(policy: Policy) -> dict[str, Any]:
    """Return a policy's settings by name, in the order of declaration."""
    names = getattr(policy, "__dataclass_fields__", {})
    return {name: getattr(policy, name) for name in names}
