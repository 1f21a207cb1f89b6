"""Start processes that a benchmark measures, and end every one of them, by its recorded number."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import psutil

ROOT = Path(__file__).parent.parent
DEADLINE_S = 120.0
"""Beyond anything that is measured: only a hang meets it."""
LOOK_S = 0.03
"""Time between two looks; the looks must not take time from what is measured."""
EXIT_S = 10.0


def start_python(
    arguments: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start this Python in a process group of its own, one thread per operation; its output goes to `log`."""
    settings = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}",
        "PYTHONUNBUFFERED": "1",
        **(environment or {}),
    }
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, *arguments],
            env=settings,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def wait_until(look: Callable[[], object], what: str, processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """Look until `look` returns something true.

    Raises:
        RuntimeError: that did not happen in time, or one of the processes has ended.
    """
    deadline_s = time.monotonic() + DEADLINE_S
    processes = tuple(processes)
    while not look():
        ended = [p for p in processes if p.poll() is not None]
        if ended and not look():
            codes = ", ".join(str(p.returncode) for p in ended)
            raise RuntimeError(f"waiting for {what}: a process ended with code {codes}; see its log")
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"waited {DEADLINE_S:g} s in vain for {what}")
        time.sleep(LOOK_S)


def wait_exit(process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait for a process to end well. Raise RuntimeError with the end of its output if it does not."""
    code = process.wait(DEADLINE_S)
    if code:
        text = log.read_text(encoding="utf-8", errors="replace")
        raise RuntimeError(f"{process.args!r} ended with code {code}:\n{text[-2000:]}")


def end_tree(process: subprocess.Popen[bytes]) -> None:
    """Ask a process to end, and kill it and all its descendants if that takes long."""
    family = _family(process.pid)
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(EXIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for relative in family:
        _kill(relative)


def find_free_port() -> int:
    """Return a port of the loopback interface that is free now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _family(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return
