"""How long a device rests whose worker was slow, and when it may be used again.

Each time a device's worker has to go, the device rests for longer; it always comes back, and a device that
behaved well for as long as it had rested counts as new. Never for good: systems that banned a host after one
fault ran out of hosts. Times are monotonic seconds of whoever keeps the ledger.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from elastane.model.ids import DeviceId


@dataclass(frozen=True, slots=True, kw_only=True)
class CoolingSettings:
    """Hold the constants of the rest.

    Attributes:
        first_rest_s: after the first offence. Slowness by a neighbour's job or by heat lasts for minutes.
        longest_rest_s: the rest doubles with each offence up to this.
    """

    first_rest_s: float = 300.0
    longest_rest_s: float = 7200.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Offence:
    """Hold that the worker on a device had to go for its slowness, for the `count`-th time in a row."""

    count: int
    noted_at_s: float
    rests_until_s: float

    @property
    def forgotten_at_s(self) -> float:
        """Return when the next offence counts as the first again: after as long as it had rested."""
        return 2 * self.rests_until_s - self.noted_at_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Remember the offences of devices. Immutable: each change returns another ledger."""

    offences: Mapping[DeviceId, Offence] = field(default_factory=dict)

    def note(self, devices: Iterable[DeviceId], now_s: float, settings: CoolingSettings) -> "Ledger":
        """Return the ledger after the workers on `devices` had to go."""
        known = {device: o for device, o in self.offences.items() if now_s < o.forgotten_at_s}
        for device in devices:
            count = known[device].count + 1 if device in known else 1
            rest_s = compute_rest_s(count, settings)
            known[device] = Offence(count=count, noted_at_s=now_s, rests_until_s=now_s + rest_s)
        return Ledger(offences=known)

    def resting(self, now_s: float) -> frozenset[DeviceId]:
        """Return the devices on which no worker is to be started now."""
        return frozenset(device for device, o in self.offences.items() if now_s < o.rests_until_s)

    def next_change_s(self, now_s: float) -> float | None:
        """Return when the next device has rested; None if none rests."""
        return min((o.rests_until_s for o in self.offences.values() if now_s < o.rests_until_s), default=None)

    def rounds(self, now_s: float) -> int:
        """Return how many times workers had to go, as far as remembered; those that went together are one."""
        return len({o.noted_at_s for o in self.offences.values() if now_s < o.forgotten_at_s})

    def last_round_s(self, now_s: float) -> float | None:
        """Return when workers had to go last; None if that is forgotten."""
        return max((o.noted_at_s for o in self.offences.values() if now_s < o.forgotten_at_s), default=None)


def compute_rest_s(count: int, settings: CoolingSettings) -> float:
    """Return how long a device rests after its `count`-th offence: twice as long each time."""
    # Beyond 2^40 nothing is left of any limit, but floats would run over.
    rest_s: float = settings.first_rest_s * 2.0 ** min(count - 1, 40)
    return min(rest_s, settings.longest_rest_s)
