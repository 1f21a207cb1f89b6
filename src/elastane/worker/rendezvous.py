"""Let the members of a proposed generation find each other's addresses through the coordination store.

torch's process groups ask a `torch.distributed.Store` for the addresses of their peers. This one keeps
them under a prefix of the job's store, so no further server is needed, and it gives up at once when the
proposal is dropped. What the values mean is torch's business.
"""

import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta

from torch._C._distributed_c10d import Store as TorchStore

from elastane.model.errors import LinkBrokenError
from elastane.store.base import LeaseId, Put, PutEvent, Store, Watch
from elastane.worker.calls import OUTAGE

_CANCEL_CHECK_S = 0.02
"""How long a wait looks away from the cancel flag; building a group of 2 takes 0.6 ms, of 4 1.5 ms."""


class Rendezvous(TorchStore):
    """Give a process group the part of torch's store interface that it needs to connect.

    Args:
        store: a handle of the thread that builds the group; it stays the caller's.
        prefix: where the keys of this attempt live; used for one attempt only.
        timeout_s: how long all waits together may last.
        cancelled: set from any thread to make the attempt fail now.
        lease: the worker's lease; its keys vanish with it.
    """

    def __init__(
        self,
        store: Store,
        prefix: str,
        *,
        timeout_s: float,
        cancelled: threading.Event | None = None,
        lease: LeaseId | None = None,
    ) -> None:
        super().__init__()
        self._store = store
        self._prefix = prefix
        self._lease = lease
        self._timeout_s = timeout_s
        self._deadline_s = time.monotonic() + timeout_s
        self._cancelled = cancelled or threading.Event()
        self._known: dict[str, bytes] = {}
        self._watch: Watch | None = None
        self.failure: str | None = None
        """Why a wait gave up; None if none did."""

    def set(self, key: str, value: str | bytes) -> None:
        """Publish one of this peer's values; torch gives bytes."""
        value = value.encode() if isinstance(value, str) else bytes(value)
        put = Put(key=self._prefix + key, value=value, lease=self._lease)
        self._insist(lambda: self._store.transact(puts=[put]))
        self._known[self._prefix + key] = value

    def get(self, key: str) -> bytes:
        """Return a value, as soon as its owner has published it.

        Raises:
            LinkBrokenError: the attempt was cancelled, or the time is up.
        """
        full = self._prefix + key
        while full not in self._known:
            if self._cancelled.is_set():
                self._give_up("the proposal was dropped while its members connected")
            if time.monotonic() >= self._deadline_s:
                self._give_up(
                    f"a member did not publish its address {full!r} within {self._timeout_s:g} s; "
                    "it is slow to start, or it cannot reach the store"
                )
            self._insist(self._learn)
        return self._known[full]

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Return when all keys are there; the attempt's own deadline replaces `timeout`."""
        del timeout
        for key in keys:
            self.get(key)

    def check(self, keys: Sequence[str]) -> bool:
        """Tell whether all keys are there now."""
        return all(
            self._prefix + key in self._known or self._store.get(self._prefix + key) is not None
            for key in keys
        )

    def has_extended_api(self) -> bool:
        """Tell torch to keep to `set` and `get`."""
        return False

    def set_timeout(self, timeout: timedelta) -> None:
        """Ignore torch's timeout: the attempt has its own deadline."""

    def close(self) -> None:
        """End the watch on the coordination store; the keys stay."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _learn(self) -> None:
        if self._watch is None:
            snapshot = self._store.range(self._prefix)
            self._known.update((entry.key, entry.value) for entry in snapshot.entries)
            self._watch = self._store.watch(self._prefix, snapshot.revision)
            return
        left_s = self._deadline_s - time.monotonic()
        for event in self._watch.wait(max(0.0, min(_CANCEL_CHECK_S, left_s))):
            if isinstance(event, PutEvent):
                self._known[event.key] = event.entry.value

    def _insist(self, work: Callable[[], object]) -> None:
        """Do `work` with the store, again while it is out of reach and there is time left."""
        while True:
            try:
                work()
            except OUTAGE as error:
                self.close()
                if self._cancelled.wait(_CANCEL_CHECK_S) or time.monotonic() >= self._deadline_s:
                    self._give_up(f"the store was out of reach while the members connected ({error})")
            else:
                return

    def _give_up(self, failure: str) -> None:
        self.failure = failure
        raise LinkBrokenError(failure)
