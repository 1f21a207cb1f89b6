"""An etcd whose revisions and leases have the numbers that they would have in a store of the test's own.

The server has other tests' revisions behind it, and gives its leases numbers of its own.
"""

from collections.abc import Callable, Sequence

import msgspec
from store_backends import Backend

from elastane.store.base import (
    Compare,
    CreateRevisionIs,
    Delete,
    DeleteEvent,
    Entry,
    Event,
    LeaseId,
    LeaseIs,
    ModRevisionIs,
    Put,
    PutEvent,
    Snapshot,
    Store,
    TransactionResult,
    Watch,
)


class Names:
    """What the handles of one test call the revisions and leases of etcd."""

    def __init__(self, base_revision: int) -> None:
        self.base_revision = base_revision
        self.leases: list[LeaseId] = []

    def ours(self, revision: int) -> int:
        return revision - self.base_revision

    def theirs(self, revision: int) -> int:
        return revision + self.base_revision if revision else 0

    def their_lease(self, lease: LeaseId | None) -> LeaseId | None:
        return self.leases[lease - 1] if lease and lease <= len(self.leases) else lease

    def entry(self, entry: Entry) -> Entry:
        return msgspec.structs.replace(
            entry,
            create_revision=self.ours(entry.create_revision),
            mod_revision=self.ours(entry.mod_revision),
            lease=LeaseId(self.leases.index(entry.lease) + 1) if entry.lease else None,
        )

    def event(self, event: Event) -> Event:
        if isinstance(event, PutEvent):
            return PutEvent(entry=self.entry(event.entry))
        return DeleteEvent(key=event.key, revision=self.ours(event.revision))

    def compare(self, compare: Compare) -> Compare:
        match compare:
            case ModRevisionIs() | CreateRevisionIs():
                return msgspec.structs.replace(compare, revision=self.theirs(compare.revision))
            case LeaseIs():
                return msgspec.structs.replace(compare, lease=self.their_lease(compare.lease))
        return compare


class RenamedStore(Store):
    """A handle that translates."""

    def __init__(self, inner: Store, names: Names) -> None:
        self._inner = inner
        self._names = names

    @classmethod
    def opener(cls, backend: Backend) -> Callable[[], Store]:
        """Return what opens handles on a back end, all with the same names."""
        first_revision = 1  # of a new store, in etcd and in memory
        names = Names(backend.open().range("").revision - first_revision)
        return lambda: cls(backend.open(), names)

    def get(self, key: str) -> Entry | None:
        entry = self._inner.get(key)
        return None if entry is None else self._names.entry(entry)

    def range(self, prefix: str) -> Snapshot:
        found = self._inner.range(prefix)
        entries = tuple(map(self._names.entry, found.entries))
        return Snapshot(revision=self._names.ours(found.revision), entries=entries)

    def transact(
        self, compares: Sequence[Compare] = (), puts: Sequence[Put] = (), deletes: Sequence[Delete] = ()
    ) -> TransactionResult:
        result = self._inner.transact(
            [self._names.compare(compare) for compare in compares],
            [msgspec.structs.replace(put, lease=self._names.their_lease(put.lease)) for put in puts],
            deletes,
        )
        return msgspec.structs.replace(result, revision=self._names.ours(result.revision))

    def grant(self, ttl_s: float) -> LeaseId:
        self._names.leases.append(self._inner.grant(ttl_s))
        return LeaseId(len(self._names.leases))

    def renew(self, lease: LeaseId) -> None:
        self._inner.renew(self._names.their_lease(lease) or lease)

    def revoke(self, lease: LeaseId) -> None:
        self._inner.revoke(self._names.their_lease(lease) or lease)

    def watch(self, prefix: str, after_revision: int) -> Watch:
        inner = self._inner.watch(prefix, after_revision + self._names.base_revision)
        return RenamedWatch(inner, self._names)

    def close(self) -> None:
        self._inner.close()


class RenamedWatch(Watch):
    """A watch that translates."""

    def __init__(self, inner: Watch, names: Names) -> None:
        self._inner = inner
        self._names = names

    def poll(self) -> list[Event]:
        return [self._names.event(event) for event in self._inner.poll()]

    def wait(self, timeout_s: float) -> list[Event]:
        return [self._names.event(event) for event in self._inner.wait(timeout_s)]

    def close(self) -> None:
        self._inner.close()
