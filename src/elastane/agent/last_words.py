"""What a worker's end means, in words for people: from its exit code and from the end of its log."""

import signal
from pathlib import Path

from elastane.model.exits import EXIT_FENCED

_TAIL_BYTES = 8192
"""Enough for a traceback of some 60 frames; the log itself holds everything."""
_MOST_CHARACTERS = 2000
_LAST_LINES = 12
_TRACEBACK = "Traceback (most recent call last)"

_MEANINGS = {
    signal.SIGKILL: "killed from outside, or by the system because memory ran out",
    signal.SIGTERM: "asked to end",
    signal.SIGINT: "interrupted",
    signal.SIGSEGV: "crashed in native code: invalid memory access",
    signal.SIGABRT: "native code gave up (abort)",
    signal.SIGBUS: "crashed in native code: bus error; shared memory may be full",
    signal.SIGFPE: "crashed in native code: arithmetic error",
    signal.SIGILL: "crashed in native code: the processor does not know an instruction",
}


def name_signal(code: int | None) -> str:
    """Return the name of the signal in an exit code, "" if none ended the process."""
    if code is None or code >= 0:
        return ""
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def explain_exit(code: int | None) -> str:
    """Say what an exit code means; -N stands for signal N, None for one that nobody saw."""
    if code is None:
        return "ended while no agent watched it: how is not known"
    if code == 0:
        return "ended by itself"
    if code == EXIT_FENCED:
        return "stopped by itself, since the others go on without it"
    if code > 0:
        return f"ended with an error (exit code {code})"
    try:
        return _MEANINGS.get(signal.Signals(-code), f"ended by {name_signal(code)}")
    except ValueError:
        return f"ended by {name_signal(code)}"


def read_last_words(path: Path) -> str:
    """Return the last traceback of a log file, or its last lines without one; "" if there is nothing."""
    try:
        with path.open("rb") as log:
            log.seek(0, 2)
            log.seek(max(0, log.tell() - _TAIL_BYTES))
            text = log.read().decode(errors="replace")
    except OSError:
        return ""
    found = text.rfind(_TRACEBACK)
    if found < 0:
        return "\n".join(text.strip().splitlines()[-_LAST_LINES:])[-_MOST_CHARACTERS:]
    return text[found:].strip()[-_MOST_CHARACTERS:]
