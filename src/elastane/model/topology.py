"""Who trains what: generations, ordered members and the placement of virtual workers on them."""

from enum import StrEnum
from typing import NamedTuple

import msgspec

from elastane.model.ids import WorkerId


class VrankRange(NamedTuple):
    """Name the virtual workers start, start + 1, ..., stop - 1."""

    start: int
    stop: int

    @property
    def width(self) -> int:
        """Return how many virtual workers the range holds."""
        return self.stop - self.start


class Mode(StrEnum):
    """Say why a generation came to be, and so how its members enter it."""

    START = "start"
    """The first generation: everybody waits before the first step. One more if it fails before that step."""
    PLANNED = "planned"
    """Scale out, scale in, migrate: all old members enter together at the switch step."""
    RECOVERY = "recovery"
    """Members were lost or cut off: survivors enter from wherever they halted."""
    RESTORE = "restore"
    """All that held the state were lost: those that began anew have loaded the newest checkpoint."""
    STOP = "stop"
    """Everybody leaves at the switch step; the first of them that is still there saves the state."""

    @property
    def repairs(self) -> bool:
        """Tell whether members enter from wherever they stand, rather than together at a switch step."""
        return self in (Mode.START, Mode.RECOVERY, Mode.RESTORE)

    @property
    def begins(self) -> bool:
        """Tell whether one member brings the state, from wherever, and all others are sent it."""
        return self in (Mode.START, Mode.RESTORE)


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """Place the virtual workers `vranks` on one worker."""

    worker: WorkerId
    vranks: VrankRange


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """Describe one generation of a job. Once committed it never changes.

    The peers of a generation's link are its members in order, then its leavers in order: leavers take
    part in the transfer of state and then go.
    """

    generation: int
    attempt: int = 0
    """Tells two proposals for one generation apart."""
    mode: Mode
    members: tuple[Member, ...]
    leaving: tuple[WorkerId, ...] = ()
    switch_step: int | None = None
    """The step before which all enter; None while it is not yet chosen."""
    asked: int = 0
    """How often a switch step was asked for; every refusal doubles the time left for the next."""
    gathered: int = 0
    """After a failure: gatherings since the step before that the suppliers have been through."""
    suppliers: tuple[WorkerId, ...] = ()
    """Workers that hold the state of the switch step and send a share of it each."""
    reason: str = ""

    @property
    def peers(self) -> tuple[WorkerId, ...]:
        """Return the workers that the generation's link connects, in link order."""
        return (*(m.worker for m in self.members), *self.leaving)

    @property
    def awaited(self) -> tuple[WorkerId, ...]:
        """Return the workers that must have entered before the switch is over: members; in a stop leavers."""
        return tuple(m.worker for m in self.members) or self.leaving

    @property
    def receivers(self) -> tuple[WorkerId, ...]:
        """Return the members that must be sent the state of the switch step."""
        return tuple(m.worker for m in self.members if m.worker not in self.suppliers)

    def member(self, worker: WorkerId) -> Member | None:
        """Return the entry of `worker`, or None if it is not a member."""
        return next((m for m in self.members if m.worker == worker), None)
