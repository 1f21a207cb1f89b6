"""Tell a process from a later one that got its number: by the boot of the machine and the tick of its
start."""

import os
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_START_TICKS = 19
"""Where the start time stands after the command in /proc/PID/stat (proc(5): field 22 of all)."""


def read_birth(pid: int) -> str:
    """Return what identifies the living process `pid` for ever; "" if there is none, or only its remains."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        boot = read_boot()
    except OSError:
        return ""
    # "pid (command) state ...": the command may hold anything, brackets too.
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else f"{boot}:{fields[_START_TICKS]}"


def read_boot() -> str:
    """Return what identifies the present run of this machine's kernel."""
    return _BOOT_ID.read_text().strip()


def read_own_birth() -> str:
    """Return what identifies this process."""
    return read_birth(os.getpid())


def is_alive(pid: int, born: str) -> bool:
    """Tell whether the process that was identified as `born` still lives under its number."""
    return bool(pid and born) and read_birth(pid) == born


def is_known_dead(pid: int, born: str) -> bool:
    """Tell whether a process is certainly gone: it was one of this machine's present run, and is no more."""
    return born.partition(":")[0] == read_boot() and not is_alive(pid, born)
