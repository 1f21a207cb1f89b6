"""The most memory that a worker has held since it was last asked to begin anew.

Resident memory counts pages that a forked worker shares with its parent. Processes that load data for the
worker are not in it. On an accelerator it is what torch had allocated there, without its context.
"""

import logging
import re
from pathlib import Path

import torch

STATUS = Path("/proc/self/status")
CLEAR_REFS = Path("/proc/self/clear_refs")
RESET_PEAK = "5"
"""Written to `clear_refs` it sets the high-water mark back to the present size (proc(5), since Linux 4.0)."""

_log = logging.getLogger(__name__)


class MemoryMeter:
    """Hold the high-water marks of this process and its device.

    Args:
        device: that the worker trains on.
        status, clear_refs: files of the kernel about this process.
    """

    def __init__(self, device: torch.device, status: Path = STATUS, clear_refs: Path = CLEAR_REFS) -> None:
        self._device = device
        self._status = status
        self._clear_refs = clear_refs

    def restart(self) -> None:
        """Begin anew from what is held now.

        A kernel that does not let the mark be set back leaves it: then it is the highest since the start.
        """
        try:
            self._clear_refs.write_text(RESET_PEAK)
        except OSError as error:
            _log.info("the peak of resident memory counts from the start of the process: %s", error)
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)

    def read_rss(self) -> int:
        """Return the most bytes that were resident at once; 0 where the kernel does not tell."""
        try:
            told = self._status.read_text()
        except OSError as error:
            _log.info("the peak of resident memory is not known: %s", error)
            return 0
        found = re.search(r"^VmHWM:\s+(\d+) kB$", told, re.MULTILINE)
        return int(found[1]) << 10 if found else 0

    def read_device(self) -> int | None:
        """Return the most bytes that torch had allocated on the device; None on a processor."""
        return torch.cuda.max_memory_allocated(self._device) if self._device.type == "cuda" else None

    def name_device(self) -> str:
        """Return the kind of device: "cpu", or the name of the accelerator."""
        return torch.cuda.get_device_name(self._device) if self._device.type == "cuda" else "cpu"
