"""Starting Python programs as leaders of their own sessions, with everything they inherit spelt out."""

import fcntl
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from elastane.agent.jobs import log_path

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

_LOWEST_COPY = 100
"""Above every number that a child is given."""


def build_environment(base: Mapping[str, str], intra_op_threads: int) -> dict[str, str]:
    """Return the environment of worker processes.

    The number of threads per operation decides how sums are split, so it is a setting of the job and never
    left to the machine. CUDA devices are counted without initialising CUDA, which no fork survives.
    """
    threads = dict.fromkeys(THREAD_VARIABLES, str(intra_op_threads))
    return {**base, **threads, "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}


def open_log(directory: Path, worker: str) -> int:
    """Open (0600) the log file of a worker for appending and return its descriptor.

    Raises:
        OSError: the folder cannot be written or the disk is full.
    """
    path = log_path(directory, worker)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def spawn_python(
    arguments: Sequence[str], environment: Mapping[str, str], descriptors: Mapping[int, int]
) -> int:
    """Start this interpreter, unbuffered, in a session of its own; return its process id.

    Args:
        arguments: what follows the interpreter, for example ("-m", "package.module").
        environment: the whole environment.
        descriptors: number in the child -> our descriptor. Without 0 in it, input is empty.

    Raises:
        OSError: the operating system refuses.
    """
    # Numbers in the child may collide with ours, so ours are first copied out of the way.
    copies = {
        number: fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _LOWEST_COPY)
        for number, descriptor in descriptors.items()
    }
    try:
        actions: list[tuple[int, int, int] | tuple[int, int, str, int, int]] = [
            (os.POSIX_SPAWN_DUP2, copy, number) for number, copy in copies.items()
        ]
        if 0 not in descriptors:
            actions.append((os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0))
        return os.posix_spawn(
            sys.executable,
            # -u: a kill loses no output. -P: the current folder is not searched for modules.
            [sys.executable, "-u", "-P", *arguments],
            dict(environment),
            file_actions=actions,
            setsid=True,
            setsigmask=(),
            setsigdef=(signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE),
        )
    finally:
        for copy in copies.values():
            os.close(copy)
