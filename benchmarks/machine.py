"""Say on which machine and with which versions something was measured."""

import importlib.metadata
import os
import platform
import re
from pathlib import Path

PACKAGES = ("elastane", "torch", "numpy")


def describe_machine() -> dict[str, str]:
    """Return the machine's processor, cores, memory, system, and how busy it was beforehand."""
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return {
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "accelerator": "none",
        "priority": f"nice {os.getpriority(os.PRIO_PROCESS, 0)}",
        "load": f"{load} (1, 5, 15 minutes, at the beginning)",
    }


def collect_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that decide the figures."""
    found = {package: importlib.metadata.version(package) for package in PACKAGES}
    return {"python": platform.python_version(), **found}


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    text = info.read_text(encoding="utf-8") if info.exists() else ""
    named = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return named.group(1) if named else platform.machine()
