"""The process of a worker is found by its number and its own log, and nobody else's is."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from elastane.agent.strike import find_worker_process
from elastane.jobs.registry import log_path
from elastane.model.ids import WorkerId

W1, W2 = WorkerId("w1"), WorkerId("w2")
SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that writes to the log of w1, as a worker does."""
    path = log_path(tmp_path, W1)
    path.parent.mkdir()
    with path.open("ab") as log, subprocess.Popen(SLEEP, stdout=log, stderr=log) as process:
        yield process
        process.kill()


def test_a_worker_is_known_by_its_log(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    mark = find_worker_process(tmp_path, W1, sleeper.pid)
    assert mark is not None
    assert (mark.worker, mark.pid) == (W1, sleeper.pid)
    assert mark.signal(signal.SIGKILL)
    assert sleeper.wait() == -signal.SIGKILL
    assert not mark.signal(signal.SIGKILL)
    mark.release()
    mark.release()


def test_a_process_with_another_log_is_a_stranger(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    log_path(tmp_path, W2).touch()
    assert find_worker_process(tmp_path, W2, sleeper.pid) is None
    assert find_worker_process(tmp_path, W1, os.getpid()) is None
    assert find_worker_process(tmp_path / "other", W1, sleeper.pid) is None


def test_a_process_that_has_ended_is_nobody(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.kill()
    sleeper.wait()
    assert find_worker_process(tmp_path, W1, sleeper.pid) is None


def test_looking_leaves_no_descriptor_open(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    assert find_worker_process(tmp_path, W2, sleeper.pid) is None
    mark = find_worker_process(tmp_path, W1, sleeper.pid)
    assert mark is not None
    mark.release()
    assert len(os.listdir("/proc/self/fd")) == before
