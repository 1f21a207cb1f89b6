"""The peer: torchft, two replicas of one process each over gloo, and the lighthouse that counts them.

Its wheel is installed into a folder of its own when it is first needed, without its dependency on torch: it
runs with the torch that is measured here, and the development environment never sees it.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from subprocess import Popen

from benchmarks.analysis import Commit
from benchmarks.processes import end_tree, find_free_port, start_python, wait_until
from benchmarks.stock_losses import STEPS_BEFORE, Loss, compute_loss
from benchmarks.workloads import Workload

VERSION = "torchft==0.2.0"
DEPENDENCIES = ("opentelemetry-exporter-otlp-proto-http>=1.39.0", "opentelemetry-sdk>=1.39.0")
"""What the wheel needs beside torch."""
FOLDER = Path(__file__).parent.parent / "bench-out" / "peers" / VERSION


class PeerMissingError(RuntimeError):
    """Report that the peer cannot be had on this machine."""


def install() -> Path:
    """Return the folder with torchft in it, installing it first if it is not there.

    Raises:
        PeerMissingError: the package index does not have it, or cannot be reached.
    """
    if not (FOLDER / "torchft").is_dir():
        for what in (DEPENDENCIES, ("--no-deps", VERSION)):
            command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(FOLDER), *what]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise PeerMissingError(f"{VERSION} cannot be installed: {done.stderr.strip()[-300:]}")
    return FOLDER


def measure_loss(workload: Workload, number: signal.Signals, give_up_s: float) -> Loss:
    """Signal one of two replicas in the middle of training; return what that cost the other.

    Raises:
        PeerMissingError: torchft cannot be had.
    """
    environment = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent.parent), str(install())])}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        processes: list[Popen[bytes]] = []
        try:
            port = find_free_port()
            lighthouse = ["-m", "benchmarks.scripts.torchft_lighthouse", "--port", str(port)]
            processes.append(start_python(lighthouse, folder / "lighthouse.log", environment))
            for place, replica in enumerate(("a", "b")):
                arguments = _arguments(workload, replica, place, port, folder)
                processes.append(start_python(arguments, folder / f"{replica}.log", environment))

            def warm() -> bool:
                return sum(commit.workers == 2 for commit in _read(folder)) >= STEPS_BEFORE

            wait_until(warm, "steps with both replicas", processes)
            struck_s = time.time()
            processes[-1].send_signal(number)
            return _await_loss(folder, struck_s, give_up_s, processes[:2])
        finally:
            for process in reversed(processes):
                process.send_signal(signal.SIGCONT)
                end_tree(process)


def _await_loss(folder: Path, struck_s: float, give_up_s: float, others: list[Popen[bytes]]) -> Loss:
    deadline_s = time.monotonic() + give_up_s

    def decided() -> bool:
        after = [c for c in _read(folder) if c.at_s > struck_s and c.workers == 1]
        return len(after) > 1 or time.monotonic() > deadline_s

    wait_until(decided, "the other replica to go on", others)
    return compute_loss(_read(folder), struck_s, workers_after=1, give_up_s=give_up_s)


def _arguments(workload: Workload, replica: str, place: int, port: int, folder: Path) -> list[str]:
    return [
        *("-m", "benchmarks.scripts.torchft_replica", "--workload", workload.name, "--name", replica),
        *("--number", str(place), "--lighthouse", f"http://127.0.0.1:{port}"),
        *("--out", str(folder / f"{replica}.jsonl")),
    ]


def _read(folder: Path) -> list[Commit]:
    path = folder / "a.jsonl"
    if not path.exists():
        return []
    whole, _, _ = path.read_text().rpartition("\n")
    return [Commit(**json.loads(line)) for line in whole.splitlines()]
