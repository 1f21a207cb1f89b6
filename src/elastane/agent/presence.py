"""An agent's second thread: keeps its records alive under a lease, and wakes it when its job changes.

Its own record exists only once: who finds one of that name there must not act. Shared records (the job's
name) belong to all agents of the job: each puts them back should they be gone with another's lease.

It has a store handle of its own, outlives any trouble with the store (it tries again until told to stop),
and never touches processes.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from elastane.model.errors import CompactedError, LeaseLostError, StoreError
from elastane.store.base import Absent, LeaseId, Put, Store
from elastane.store.open import open_store

_log = logging.getLogger(__name__)

_RETRY_S = 0.5
"""Pause after an error of the store: short beside a lease, long beside a transaction."""
_JOIN_LIMIT_S = 10.0
"""Longest wait for the thread's end: a store call waits a few seconds for a lock at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PresenceSettings:
    """Hold what is kept alive and what is watched."""

    store_url: str
    prefix: str
    key: str
    """Where this agent's own record lies."""
    record: bytes
    shared: dict[str, bytes] = field(default_factory=dict)
    """Key -> value of what the agents of a job keep alive together."""
    lease_ttl_s: float
    ignored: tuple[str, ...] = ()
    """Prefixes under the watched one whose changes wake nobody."""


class Presence:
    """Keep records under a lease and watch a prefix, in a thread, from `start` to `stop`."""

    def __init__(self, settings: PresenceSettings, wake: Callable[[], None]) -> None:
        """Prepare; `wake` is called from the thread whenever something under the prefix has changed."""
        self._settings = settings
        self._wake = wake
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="elastane-presence", daemon=True)
        self._lease: LeaseId | None = None
        self._tried: LeaseId | None = None
        """Lease of an attempt to register that was not answered."""
        self.displaced = False
        """Another agent has taken this one's place while its lease was lost; this one must end."""

    def start(self, store: Store) -> bool:
        """Write the records with the caller's handle, so that they are there on return; start the thread.

        False, and nothing is done, if there is a record under this agent's key.
        """
        if not self._register(store):
            return False
        self._thread.start()
        return True

    def stop(self, store: Store) -> None:
        """Delete the records and end the thread. Harmless if it was never started."""
        self._stopping.set()
        self._give_up_lease(store)  # the change under the prefix also ends the thread's wait
        if self._thread.ident is not None:
            self._thread.join(_JOIN_LIMIT_S)
            self._give_up_lease(store)  # the thread may have taken a new one in the same moment

    def _give_up_lease(self, store: Store) -> None:
        try:
            for lease in (self._lease, self._tried):
                if lease is not None:
                    store.revoke(lease)
        except StoreError as error:
            _log.warning("the agent's lease could not be given up, it will expire: %s", error)

    def _register(self, store: Store) -> bool:
        """Write the records under a new lease; False, and nothing is written, if another's record is there.

        May be called again after an error. The lease is kept for that: an attempt may have been carried out
        though its answer was lost, and by its lease the record is then known for this agent's own.
        """
        settings = self._settings
        if self._tried is None:
            self._tried = store.grant(settings.lease_ttl_s)
        lease = self._tried
        # The shared ones come to this lease, from that of whoever made the job or of the last agent to come.
        records = {**settings.shared, settings.key: settings.record}
        puts = [Put(key=key, value=value, lease=lease) for key, value in records.items()]
        try:
            registered = store.transact([Absent(key=settings.key)], puts).succeeded
            registered = registered or _hangs_on(store, settings.key, lease)
        except LeaseLostError:
            self._tried = None  # it ran out between two attempts
            raise
        self._tried = None
        if registered:
            self._lease = lease
        else:
            store.revoke(lease)
        return registered

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with open_store(self._settings.store_url, create=False) as store:
                    self._follow(store)
            except CompactedError:
                continue  # history is gone: watch anew from now
            except StoreError as error:
                _log.warning("trouble with the store, trying again: %s", error)
                self._stopping.wait(_RETRY_S)

    def _follow(self, store: Store) -> None:
        """Watch and renew until told to stop or the store fails."""
        revision = store.range(self._settings.prefix).revision
        with store.watch(self._settings.prefix, revision) as watch:
            self._wake()
            while not self._stopping.is_set():
                self._renew(store)
                changes = watch.wait(self._settings.lease_ttl_s / 3)
                if any(not change.key.startswith(self._settings.ignored) for change in changes):
                    self._wake()

    def _renew(self, store: Store) -> None:
        try:
            if self._lease is not None:
                store.renew(self._lease)
                for key, value in self._settings.shared.items():
                    store.transact([Absent(key=key)], [Put(key=key, value=value, lease=self._lease)])
        except LeaseLostError:
            if not self._stopping.is_set():
                _log.warning("the agent's lease was lost (the machine slept, or was overloaded); taken anew")
                self.displaced = not self._register(store)
                self._wake()


def _hangs_on(store: Store, key: str, lease: LeaseId) -> bool:
    entry = store.get(key)
    return entry is not None and entry.lease == lease
