"""Read the memory of another process of this machine: one copy, where a socket takes two and a protocol.

Linux allows it among processes of one user that it would let debug each other (process_vm_readv(2)). Whether
it does, and whether the process is the one that is meant, nobody needs to know beforehand: see `direct`,
which tries.
"""

import ctypes
import os
import select
from typing import Any

CHUNK_BYTES = 8 << 20
"""Read at a time: 300 MB take 41 ms in pieces of 8 MiB, 53 ms in pieces of 256 KiB (2-core machine)."""

_PR_SET_PTRACER = 0x59616D61  # from <linux/prctl.h>


class _Range(ctypes.Structure):
    """Be the C library's `struct iovec`."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class PeerMemory:
    """Read from one process.

    Raises:
        OSError: there is no such process, or this system cannot tell one from another by its number.
    """

    def __init__(self, pid: int) -> None:
        self._read: Any = _find_read()
        self._pid = pid
        # The number may come to mean another process; this does not.
        self._handle = os.pidfd_open(pid)

    def read(self, address: int, into: int, length: int) -> None:
        """Copy `length` bytes from `address` in the process to the address `into` in this one.

        Raises:
            OSError: this is not allowed, or the memory or the process is gone; some bytes may have come.
        """
        done = 0
        while done < length:
            part = min(CHUNK_BYTES, length - done)
            local, remote = _Range(into + done, part), _Range(address + done, part)
            copied = self._read(self._pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
            if copied <= 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))
            done += copied
        self._check_alive()

    def _check_alive(self) -> None:
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        if poll.poll(0):
            raise ProcessLookupError(f"process {self._pid} has ended")

    def close(self) -> None:
        """Let go of the process; closing twice does nothing."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)


def allow_reads_by(pid: int) -> None:
    """Let process `pid` and its descendants read this process, where Linux keeps that to a process's parents.

    That is so where the kernel's module Yama has ptrace_scope at 1; elsewhere this does nothing.
    """
    control = getattr(ctypes.CDLL(None), "prctl", None)
    if control is not None:
        control(_PR_SET_PTRACER, ctypes.c_ulong(pid), 0, 0, 0)


def _find_read() -> Any:
    function = getattr(ctypes.CDLL(None, use_errno=True), "process_vm_readv", None)
    if function is None or not hasattr(os, "pidfd_open"):
        raise OSError("this system does not let a process read another one's memory")
    function.restype = ctypes.c_ssize_t
    ranges = (ctypes.c_void_p, ctypes.c_ulong)
    function.argtypes = (ctypes.c_int, *ranges, *ranges, ctypes.c_ulong)
    return function
