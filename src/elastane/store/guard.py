"""Whose a store handle is: one thread of one process, until it is closed.

SQLite forbids connections carried over a fork (sqlite.org, "How To Corrupt An SQLite Database File"), and two
threads on one handle would mix their transactions. The rule is the same for every back end, so that code
tested on one of them is right on all.
"""

import os
import threading

from elastane.model.errors import StoreHandleError


class HandleGuard:
    """Remember who opened a handle, and refuse everybody else."""

    __slots__ = ("_process_id", "_thread_id", "closed", "url")

    def __init__(self, url: str) -> None:
        self.url = url
        self.closed = False
        self._process_id = os.getpid()
        self._thread_id = threading.get_ident()

    @property
    def is_forked(self) -> bool:
        """Return whether this process inherited the handle through a fork."""
        return os.getpid() != self._process_id

    def check_use(self) -> None:
        """Raise StoreHandleError unless the handle is open and the caller is its owner."""
        if self.closed:
            raise StoreHandleError(f"the handle on {self.url} is closed; open another with open_store")
        self.check_owner()

    def check_owner(self) -> None:
        """Raise StoreHandleError unless the calling thread opened the handle in this very process."""
        if self.is_forked:
            raise StoreHandleError(
                f"the handle on {self.url} was opened by process {self._process_id} and inherited by "
                f"{os.getpid()} through a fork; open another with open_store in the child"
            )
        if threading.get_ident() != self._thread_id:
            raise StoreHandleError(
                f"the handle on {self.url} belongs to thread {self._thread_id}, not to "
                f"{threading.get_ident()} ({threading.current_thread().name}); open one per thread"
            )
