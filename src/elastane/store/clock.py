"""The time that leases are counted in: one clock for a whole machine, and one that tests move by hand.

A store on one machine needs a clock on which all its processes agree and that nobody can set back, so never
the wall clock. CLOCK_MONOTONIC rather than CLOCK_BOOTTIME: it stands still while the machine is suspended,
and so do all owners of leases, since they run on that machine. A laptop that wakes up goes on with its jobs;
with CLOCK_BOOTTIME it would find every lease expired. Both start anew at a reboot: hence `origin_id`.
"""

import subprocess
import sys
import time
from pathlib import Path
from typing import Protocol

from elastane.model.errors import StoreError

LINUX_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")  # proc(5): a random UUID, new at every boot
DARWIN_SYSCTL = Path("/usr/sbin/sysctl")


class Clock(Protocol):
    """Tell and pass the time by which leases expire."""

    @property
    def origin_id(self) -> str:
        """Return the name of the clock's zero; times of two origins cannot be compared."""

    def now_s(self) -> float:
        """Return the seconds since the origin; never goes back."""

    def sleep(self, duration_s: float) -> None:
        """Let `duration_s` seconds pass, without holding the interpreter's lock."""


class MonotonicClock:
    """Be the machine-wide monotonic clock (CLOCK_MONOTONIC), whose origin is the machine's boot."""

    __slots__ = ("origin_id",)

    def __init__(self) -> None:
        self.origin_id = read_boot_id()

    def now_s(self) -> float:
        """Return the seconds of CLOCK_MONOTONIC, the same in every process of this machine."""
        return time.monotonic()

    def sleep(self, duration_s: float) -> None:
        """Sleep for `duration_s` seconds."""
        time.sleep(duration_s)


class ManualClock:
    """Be a clock that only moves when told to: `advance` and `sleep` move it and return at once."""

    __slots__ = ("_now_s", "origin_id")

    def __init__(self, now_s: float = 0.0, origin_id: str = "manual") -> None:
        self.origin_id = origin_id
        self._now_s = now_s

    def now_s(self) -> float:
        """Return the time it was moved to."""
        return self._now_s

    def sleep(self, duration_s: float) -> None:
        """Move the clock on by `duration_s` seconds instead of sleeping."""
        self.advance(duration_s)

    def advance(self, duration_s: float) -> None:
        """Move the clock on by `duration_s` seconds."""
        self._now_s += duration_s


def read_boot_id(platform: str = sys.platform) -> str:
    """Return the name of the machine's current boot. Raises StoreError where the system tells none."""
    try:
        if platform == "darwin":
            command = [str(DARWIN_SYSCTL), "-n", "kern.bootsessionuuid"]
            boot_id = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
        else:
            boot_id = LINUX_BOOT_ID.read_text().strip()
    except (OSError, subprocess.CalledProcessError) as error:
        raise StoreError(
            f"cannot tell which boot of this machine it is ({error}), so leases of an earlier boot would "
            "never expire; mount /proc, or use an etcd store"
        ) from error
    return boot_id
