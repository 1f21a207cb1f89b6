"""A store in the memory of one process: the reference of what a store means, and the one for simulations.

A `MemoryWorld` is the store, its `MemoryStore` handles are what processes would open. Nothing happens by
itself: every call first expires the leases that are due on the world's clock, then does its work. With a
ManualClock the same calls always give the same answers. Knows no files, and no other process.
"""

import math
import threading
from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter

from elastane.model.errors import CompactedError, LeaseLostError, StoreHandleError
from elastane.store.base import (
    Compare,
    Delete,
    DeleteEvent,
    DeleteKey,
    Entry,
    Event,
    LeaseId,
    Put,
    PutEvent,
    Snapshot,
    Store,
    TransactionResult,
    Watch,
    check_key,
    check_prefix,
    check_transaction,
    check_ttl,
)
from elastane.store.clock import Clock
from elastane.store.compare import is_met
from elastane.store.guard import HandleGuard
from elastane.store.history import HistoryLimits, compute_cutoff
from elastane.store.pace import Waiter


class _Lease:
    __slots__ = ("deadline_s", "keys", "ttl_s")

    def __init__(self, ttl_s: float, deadline_s: float) -> None:
        self.ttl_s = ttl_s
        self.deadline_s = deadline_s
        self.keys: set[str] = set()


class MemoryWorld:
    """Be one store in memory, shared by all handles made on it. Safe to use from several threads."""

    def __init__(self, clock: Clock, limits: HistoryLimits | None = None) -> None:
        self.clock = clock
        self.lock = threading.RLock()
        self.revision = 1  # like a fresh etcd, so that no entry ever has revision 0
        self.compacted_revision = 0
        self._limits = limits or HistoryLimits()
        self._entries: dict[str, Entry] = {}
        self._history: list[Event] = []
        self._history_bytes = 0
        self._leases: dict[LeaseId, _Lease] = {}
        self._next_lease = 1
        self._next_deadline_s = math.inf  # no lease ends before; renewals leave it too early, never too late

    # --- reading -------------------------------------------------------------------------------------

    def read_entry(self, key: str) -> Entry | None:
        """Return the entry of a key, None if it is absent."""
        self._expire_due()
        return self._entries.get(key)

    def read_range(self, prefix: str) -> Snapshot:
        """Return all entries whose key starts with `prefix`."""
        self._expire_due()
        entries = tuple(self._entries[key] for key in self._keys_under(prefix))
        return Snapshot(revision=self.revision, entries=entries)

    def read_events(self, prefix: str, after_revision: int) -> list[Event]:
        """Return the events under `prefix` after a revision. Raises CompactedError if some are forgotten."""
        self._expire_due()
        if after_revision < self.compacted_revision:
            raise CompactedError(
                f"events under {prefix!r} after revision {after_revision} were asked for, but those up to "
                f"{self.compacted_revision} are forgotten; read the range again and watch from its revision"
            )
        if after_revision >= self.revision:
            return []
        start = bisect_right(self._history, after_revision, key=attrgetter("revision"))
        return [event for event in self._history[start:] if event.key.startswith(prefix)]

    # --- writing -------------------------------------------------------------------------------------

    def apply_transaction(
        self, compares: Sequence[Compare], puts: Sequence[Put], deletes: Sequence[Delete]
    ) -> TransactionResult:
        """Apply a transaction that passed `check_transaction`, if its compares hold."""
        self._expire_due()
        if not all(is_met(compare, self._entries.get(compare.key)) for compare in compares):
            return TransactionResult(succeeded=False, revision=self.revision)
        for put in puts:
            if put.lease is not None:
                self._find_lease(put.lease)
        deleted = {key for delete in deletes for key in self._keys_of(delete)}
        self._record([self._delete(key) for key in deleted] + [self._put(put) for put in puts])
        return TransactionResult(succeeded=True, revision=self.revision)

    def grant_lease(self, ttl_s: float) -> LeaseId:
        """Create a lease that ends `ttl_s` seconds from now."""
        self._expire_due()
        lease = LeaseId(self._next_lease)
        self._next_lease += 1
        self._leases[lease] = _Lease(ttl_s, self.clock.now_s() + ttl_s)
        self._next_deadline_s = min(self._next_deadline_s, self._leases[lease].deadline_s)
        return lease

    def renew_lease(self, lease: LeaseId) -> None:
        """Let a lease end a full time from now. Raises LeaseLostError if it is gone."""
        self._expire_due()
        found = self._find_lease(lease)
        found.deadline_s = self.clock.now_s() + found.ttl_s

    def revoke_lease(self, lease: LeaseId) -> None:
        """End a lease, if it still lives, and delete its keys."""
        self._expire_due()
        if lease in self._leases:
            self._end_lease(lease)

    def compact(self, revision: int) -> None:
        """Forget all history up to and including `revision`, as the limits do when they are passed."""
        keep_from = bisect_right(self._history, revision, key=attrgetter("revision"))
        self._history_bytes -= sum(map(_compute_bytes, self._history[:keep_from]))
        del self._history[:keep_from]
        self.compacted_revision = max(self.compacted_revision, revision)

    # --- inside --------------------------------------------------------------------------------------

    def _expire_due(self) -> None:
        now_s = self.clock.now_s()
        if now_s < self._next_deadline_s:
            return
        due = [(held.deadline_s, lease) for lease, held in self._leases.items() if held.deadline_s <= now_s]
        for _, lease in sorted(due):
            self._end_lease(lease)
        self._next_deadline_s = min((held.deadline_s for held in self._leases.values()), default=math.inf)

    def _end_lease(self, lease: LeaseId) -> None:
        keys = sorted(self._leases[lease].keys)
        self._record([self._delete(key) for key in keys])
        del self._leases[lease]

    def _find_lease(self, lease: LeaseId) -> _Lease:
        found = self._leases.get(lease)
        if found is None:
            raise LeaseLostError(f"lease {lease} has expired or was revoked; stop acting on it")
        return found

    def _keys_under(self, prefix: str) -> list[str]:
        return sorted(key for key in self._entries if key.startswith(prefix))

    def _keys_of(self, delete: Delete) -> list[str]:
        if isinstance(delete, DeleteKey):
            return [delete.key] if delete.key in self._entries else []
        return self._keys_under(delete.prefix)

    def _put(self, put: Put) -> Event:
        revision = self.revision + 1
        old = self._entries.get(put.key)
        self._detach(old)
        if put.lease is not None:
            self._leases[put.lease].keys.add(put.key)
        entry = Entry(
            key=put.key,
            value=put.value,
            create_revision=old.create_revision if old else revision,
            mod_revision=revision,
            lease=put.lease,
        )
        self._entries[put.key] = entry
        return PutEvent(entry=entry)

    def _delete(self, key: str) -> Event:
        self._detach(self._entries.pop(key))
        return DeleteEvent(key=key, revision=self.revision + 1)

    def _detach(self, entry: Entry | None) -> None:
        if entry is not None and entry.lease is not None:
            self._leases[entry.lease].keys.discard(entry.key)

    def _record(self, events: list[Event]) -> None:
        if not events:
            return
        self.revision += 1
        self._history.extend(sorted(events, key=attrgetter("key")))
        self._history_bytes += sum(map(_compute_bytes, events))
        if self._limits.is_passed(len(self._history), self._history_bytes):
            sizes = ((event.revision, _compute_bytes(event)) for event in reversed(self._history))
            self.compact(compute_cutoff(sizes, self._limits))


def _compute_bytes(event: Event) -> int:
    value_bytes = len(event.entry.value) if isinstance(event, PutEvent) else 0
    return len(event.key.encode()) + value_bytes


class MemoryStore(Store):
    """Be one handle on a MemoryWorld."""

    def __init__(self, world: MemoryWorld, url: str = "memory://") -> None:
        self._world = world
        self._guard = HandleGuard(url)

    def get(self, key: str) -> Entry | None:
        """Return the entry of a key; see Store."""
        check_key(key)
        self._guard.check_use()
        with self._world.lock:
            return self._world.read_entry(key)

    def range(self, prefix: str) -> Snapshot:
        """Return all entries under a prefix; see Store."""
        check_prefix(prefix)
        self._guard.check_use()
        with self._world.lock:
            return self._world.read_range(prefix)

    def transact(
        self, compares: Sequence[Compare] = (), puts: Sequence[Put] = (), deletes: Sequence[Delete] = ()
    ) -> TransactionResult:
        """Apply a transaction; see Store."""
        check_transaction(compares, puts, deletes)
        self._guard.check_use()
        with self._world.lock:
            return self._world.apply_transaction(compares, puts, deletes)

    def grant(self, ttl_s: float) -> LeaseId:
        """Create a lease; see Store."""
        check_ttl(ttl_s)
        self._guard.check_use()
        with self._world.lock:
            return self._world.grant_lease(ttl_s)

    def renew(self, lease: LeaseId) -> None:
        """Start a lease's time anew; see Store."""
        self._guard.check_use()
        with self._world.lock:
            self._world.renew_lease(lease)

    def revoke(self, lease: LeaseId) -> None:
        """End a lease; see Store."""
        self._guard.check_use()
        with self._world.lock:
            self._world.revoke_lease(lease)

    def watch(self, prefix: str, after_revision: int) -> Watch:
        """Follow the changes under a prefix; see Store."""
        check_prefix(prefix)
        self._guard.check_use()
        return MemoryWatch(self._world, self._guard, prefix, after_revision)

    def close(self) -> None:
        """Give up the handle; see Store."""
        if not (self._guard.closed or self._guard.is_forked):
            self._guard.check_owner()
        self._guard.closed = True


class MemoryWatch(Watch):
    """Follow one prefix of a MemoryWorld."""

    def __init__(self, world: MemoryWorld, guard: HandleGuard, prefix: str, after_revision: int) -> None:
        self._world = world
        self._guard = guard
        self._prefix = prefix
        self._position = after_revision
        self._waiter = Waiter(self.poll, world.clock)
        self._closed = False

    def poll(self) -> list[Event]:
        """Return the events since the last call; see Watch."""
        self._guard.check_use()
        if self._closed:
            raise StoreHandleError(f"the watch on {self._prefix!r} is closed; open another")
        with self._world.lock:
            events = self._world.read_events(self._prefix, self._position)
            self._position = max(self._position, self._world.revision)
        return events

    def wait(self, timeout_s: float) -> list[Event]:
        """Return the events since the last call as soon as there are any; see Watch."""
        return self._waiter.wait(timeout_s)

    def close(self) -> None:
        """End the watch; see Watch."""
        self._closed = True
