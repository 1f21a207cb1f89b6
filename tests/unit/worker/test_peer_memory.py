"""Reading another process's memory: the bytes, and every way in which the other one can be gone."""

import ctypes
import errno
import os
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch

from elastane.worker import peer_memory
from elastane.worker.peer_memory import PeerMemory, allow_reads_by

FORK = get_context("fork")
ROOM = torch.zeros(4)


def _hold(told: Connection, wait: Connection) -> None:
    tensor = torch.arange(1000, dtype=torch.int64)
    told.send(tensor.data_ptr())
    wait.recv()


@pytest.fixture
def other() -> Iterator[tuple[int, int, Connection]]:
    """Run a process that holds the numbers 0 to 999; give its pid, their address, and a pipe that ends it."""
    (heard, told), (wait, end) = FORK.Pipe(duplex=False), FORK.Pipe(duplex=False)
    process = FORK.Process(target=_hold, args=(told, wait))
    process.start()
    yield process.pid, heard.recv(), end
    if process.is_alive():
        end.send("enough")
    process.join()


@pytest.mark.parametrize("chunk_bytes", [1 << 20, 24])
def test_another_process_s_memory_is_read_in_pieces_of_any_length(
    other: tuple[int, int, Connection], chunk_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_memory, "CHUNK_BYTES", chunk_bytes)
    pid, address, _ = other
    into = torch.full((10,), -1, dtype=torch.int64)
    memory = PeerMemory(pid)
    memory.read(address + 8 * 500, into[2:].data_ptr(), 8 * 7)
    memory.close()
    assert into.tolist() == [-1, -1, *range(500, 507), -1]


def test_memory_that_is_not_there_is_an_error_and_no_crash(other: tuple[int, int, Connection]) -> None:
    memory = PeerMemory(other[0])
    with pytest.raises(OSError, match=os.strerror(errno.EFAULT)):
        memory.read(8, ROOM.data_ptr(), 16)
    memory.close()


def test_a_process_that_has_ended_cannot_be_read(other: tuple[int, int, Connection]) -> None:
    pid, address, end = other
    memory = PeerMemory(pid)
    end.send("enough")
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(ProcessLookupError):
        memory.read(address, ROOM.data_ptr(), 16)
    memory.close()


def test_bytes_of_a_process_that_has_the_number_of_an_ended_one_are_refused(
    other: tuple[int, int, Connection],
) -> None:
    pid, _, end = other
    memory = PeerMemory(pid)
    end.send("enough")
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    memory._pid = os.getpid()  # as if this process had been given the number
    own = torch.arange(4.0)
    with pytest.raises(ProcessLookupError, match=f"process {os.getpid()} has ended"):
        memory.read(own.data_ptr(), ROOM.data_ptr(), 16)
    memory.close()


def test_a_number_that_no_process_has_is_an_error() -> None:
    with pytest.raises(OSError, match="No such process"):
        PeerMemory((1 << 22) + 1)  # above the largest number that Linux gives


def test_a_system_without_such_reads_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())
    with pytest.raises(OSError, match="does not let a process read"):
        PeerMemory(os.getpid())
    allow_reads_by(os.getppid())


def test_a_closed_one_leaves_no_descriptor() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    memory = PeerMemory(os.getpid())
    memory.close()
    memory.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
