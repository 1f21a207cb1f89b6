"""Processes of this machine: notice their exits at once, and leave nothing of their trees behind.

Every child leads its own process group. Its exit is noticed through a pidfd in an epoll set, without
polling and without SIGCHLD (so it works in any thread and beside other users of child processes). The group
is killed while the leader is still a zombie: until it is reaped its number cannot name another group.

The calling process is made a *child subreaper*: processes whose parent dies (workers forked through a short
middleman, data-loading workers of a killed worker) become its children, so their exits are seen here.
Only the Linux kernel gives this. Processes that a worker moves into a session of their own escape.
"""

import ctypes
import os
import select
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_PR_GET_CHILD_SUBREAPER = 37  # linux/prctl.h

_DRAIN_POLL_S = 0.002
"""Pause between looks for killed group members while closing: the kernel needs well under a millisecond."""
_DRAIN_LIMIT_S = 5.0
"""Longest wait for killed group members: one in uninterruptible I/O may take seconds to die."""


@dataclass(frozen=True, slots=True)
class ChildExit:
    """Say that the child called `name` ended with `code` (-N for signal N, None if only its parent knows)."""

    name: str
    code: int | None


@dataclass(frozen=True, slots=True)
class _Child:
    name: str
    pid: int
    descriptor: int
    foreign: bool


class Children:
    """Watch a set of child processes by name. Used by one thread only."""

    def __init__(self) -> None:
        _subreaping.begin()
        self._epoll = select.epoll()
        self._by_name: dict[str, _Child] = {}
        self._by_descriptor: dict[int, _Child] = {}
        self._draining: set[int] = set()
        self._closed = False

    def fileno(self) -> int:
        """Return a descriptor that is readable while a child's exit waits to be collected."""
        return self._epoll.fileno()

    def watch(self, descriptor: int) -> None:
        """Make `fileno` readable also while `descriptor` is."""
        self._epoll.register(descriptor, select.EPOLLIN)

    def unwatch(self, descriptor: int) -> None:
        """Undo `watch`, before the descriptor is closed."""
        self._epoll.unregister(descriptor)

    def adopt(self, name: str, pid: int, *, foreign: bool = False) -> None:
        """Watch the process `pid` under `name`; it may have ended already.

        A foreign one is no child of this process, so how it ends cannot be seen, but only that it does.

        Raises:
            ProcessLookupError: there is no such process.
        """
        descriptor = os.pidfd_open(pid)
        child = _Child(name, pid, descriptor, foreign)
        self._by_name[name] = child
        self._by_descriptor[descriptor] = child
        self._epoll.register(descriptor, select.EPOLLIN)

    def names(self) -> tuple[str, ...]:
        """Return the names of all children whose exit has not been collected."""
        return tuple(self._by_name)

    def signal(self, name: str, signal_number: int) -> None:
        """Send a signal to one child; nothing happens if it is gone."""
        child = self._by_name.get(name)
        if child is None:
            return
        try:
            signal.pidfd_send_signal(child.descriptor, signal_number)
        except ProcessLookupError:
            return  # it has ended in this moment; `collect` tells

    def find_stopped(self) -> tuple[str, ...]:
        """Return the names of children that a signal (SIGSTOP, SIGTSTP) has frozen."""
        return tuple(child.name for child in self._by_name.values() if _is_stopped(child.pid))

    def kill(self, name: str) -> None:
        """Kill the process group of one child; nothing happens if it is gone."""
        child = self._by_name.get(name)
        if child is None:
            return
        # It may not have made its group yet, so the process itself is killed as well.
        self.signal(name, signal.SIGKILL)
        _kill_group(child.pid)

    def collect(self) -> list[ChildExit]:
        """Return the exits since the last call; kill and reap what is left of the groups."""
        exits = []
        for descriptor, _ in self._epoll.poll(0):
            child = self._by_descriptor.get(descriptor)
            if child is None:
                continue
            try:
                code = _peek_exit_code(child)
            except ChildProcessError:
                if not child.foreign:
                    continue  # its middleman has not ended yet: the next look finds it
                code = None
            # The group of a foreign leader may have lost its number by now, but numbers come around slowly.
            _kill_group(child.pid)
            self._forget(child)
            if code is not None:
                os.waitpid(child.pid, 0)
                self._draining.add(child.pid)
            exits.append(ChildExit(child.name, code))
        self._drain()
        return exits

    def close(self) -> None:
        """Kill and reap everything; harmless if called twice."""
        if self._closed:
            return
        self._closed = True
        for child in tuple(self._by_name.values()):
            self.kill(child.name)
            select.select([child.descriptor], [], [], _DRAIN_LIMIT_S)
        deadline_s = time.monotonic() + _DRAIN_LIMIT_S
        self.collect()
        while (self._draining or self._by_name) and time.monotonic() < deadline_s:
            time.sleep(_DRAIN_POLL_S)
            self.collect()
        for child in tuple(self._by_name.values()):
            self._forget(child)
        self._epoll.close()
        _subreaping.end()

    def _forget(self, child: _Child) -> None:
        self._epoll.unregister(child.descriptor)
        os.close(child.descriptor)
        del self._by_descriptor[child.descriptor], self._by_name[child.name]

    def _drain(self) -> None:
        """Reap the killed members of groups whose leaders have ended."""
        self._draining = {group for group in self._draining if not _reap_group(group)}


class _Subreaping:
    """Make this process a child subreaper as long as anybody needs it, and then what it was before.

    A process has one such flag, and may hold several agents, so the uses are counted.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._uses = 0
        self._was_set = False

    def begin(self) -> None:
        """Count one more use. Raises OSError if the kernel refuses."""
        with self._lock:
            if self._uses == 0:
                self._was_set = is_subreaper()
                _prctl(_PR_SET_CHILD_SUBREAPER, 1)
            self._uses += 1

    def end(self) -> None:
        """Count one use less."""
        with self._lock:
            self._uses -= 1
            if self._uses == 0:
                _prctl(_PR_SET_CHILD_SUBREAPER, int(self._was_set))


_subreaping = _Subreaping()


def is_subreaper() -> bool:
    """Tell whether orphaned descendants become children of this process."""
    flag = ctypes.c_int(0)
    _prctl(_PR_GET_CHILD_SUBREAPER, ctypes.addressof(flag))
    return bool(flag.value)


def _prctl(option: int, argument: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(argument), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _peek_exit_code(child: _Child) -> int:
    """Return an ended child's exit code without reaping it. Raises ChildProcessError if it is not ours to
    reap."""
    result = os.waitid(os.P_PIDFD, child.descriptor, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    if result is None:
        raise ChildProcessError(f"process {child.pid} has not ended")
    return result.si_status if result.si_code == os.CLD_EXITED else -result.si_status


def _is_stopped(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return False  # it ended in this moment
    # "pid (command) state ...": the command may hold anything, brackets too.
    return stat.rpartition(")")[2].split()[0] == "T"


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return  # nobody is left, which is what we want
    except PermissionError:
        return  # it holds a process of another user (a set-uid program), which is not ours to end


def _reap_group(group: int) -> bool:
    """Reap ended members of a group; tell whether none is left among our children."""
    try:
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False
