"""Starting Python programs as leaders of their own sessions, with everything they inherit spelt out."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from elastane.jobs.registry import log_path

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


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
    arguments: Sequence[str], environment: Mapping[str, str], log: int, passed: Sequence[int] = ()
) -> int:
    """Start this interpreter, unbuffered, in a session of its own and without input; return its process id.

    Args:
        arguments: what follows the interpreter, for example ("-m", "package.module").
        environment: the whole environment.
        log: descriptor that standard output and error go to.
        passed: further descriptors that it has under the same numbers; it has no others.

    Raises:
        OSError: the operating system refuses.
    """
    # -u: a kill loses no output. -P: the current folder is not searched for modules.
    process = subprocess.Popen(
        [sys.executable, "-u", "-P", *arguments],
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        pass_fds=tuple(passed),
        start_new_session=True,
    )
    process.returncode = 0  # its exit is collected by pid: this object must not try, or warn that it did not
    return process.pid
