"""Search the addresses of hosts without waiting for longer than the caller can.

A name server that hangs keeps `getaddrinfo` for half a minute, and nothing can call it off: so it is asked
in a thread. One at a time for each host: whoever asks meanwhile waits for the same answer, so that threads do
not pile up behind a name server that is away. The thread touches nothing else; a forked child, in which it
does not exist, asks anew.
"""

import os
import socket
import threading
import time

Address = tuple[socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]]


class _Search:
    """Be one search on its way: what it found, or why it found nothing."""

    __slots__ = ("done", "error", "found")

    def __init__(self) -> None:
        self.done = threading.Event()
        self.found: list[Address] = []
        self.error: OSError | None = None


class AddressBook:
    """Search addresses; for all threads of a process together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._searches: dict[tuple[str, int], _Search] = {}

    def look_up(self, host: str, port: int, deadline_s: float) -> list[Address]:
        """Return the addresses of a host, numbers at once.

        Args:
            host: a name or a number.
            port: of the service.
            deadline_s: until when to wait, on the clock of `time.monotonic`.

        Raises:
            TimeoutError: there was no answer until then.
            OSError: the name is not known, or there can be no more threads.
        """
        if is_number(host):
            return _ask(host, port)
        search = self._join(host, port)
        if not search.done.wait(max(0.0, deadline_s - time.monotonic())):
            raise TimeoutError(f"{host} could not be looked up in time")
        if search.error is not None:
            raise search.error
        return search.found

    def forget(self) -> None:
        """Forget all searches: their threads do not exist in a forked child."""
        self._lock = threading.Lock()
        self._searches = {}

    def _join(self, host: str, port: int) -> _Search:
        """Return the search that is under way, or begin one."""
        with self._lock:
            search = self._searches.get((host, port))
            if search is None:
                search = _Search()
                thread = threading.Thread(
                    target=self._run, args=(host, port, search), name="etcd-address", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError as error:
                    raise OSError(str(error)) from error
                self._searches[host, port] = search
        return search

    def _run(self, host: str, port: int, search: _Search) -> None:
        try:
            search.found = _ask(host, port)
        except OSError as error:
            search.error = error
        except UnicodeError as error:  # a name that is none
            search.error = OSError(str(error))
        finally:
            with self._lock:
                self._searches.pop((host, port), None)
            search.done.set()


def is_number(host: str) -> bool:
    """Tell whether a host is given by its number, which needs no name server."""
    try:
        socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return False
    return True


def _ask(host: str, port: int) -> list[Address]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, address) for family, _, _, _, address in found]


book = AddressBook()
"""That of this process."""

os.register_at_fork(after_in_child=book.forget)
