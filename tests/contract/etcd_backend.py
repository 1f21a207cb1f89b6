"""etcd as a back end of the contract: a real server, whose leases end when the tests' clock says so.
 The real passing of time is checked elsewhere (test_etcd_process.py). Here a lease of a test that is due by
its clock is revoked, which to etcd is the same as its expiry; what compacts a real etcd after hours is done
after a few writes; and a look waits until etcd has told everything up to the present revision.
"""

import time
from collections.abc import Iterator, Sequence
from operator import itemgetter

import msgspec

from elastane.store.base import (
    Compare,
    Delete,
    Entry,
    Event,
    LeaseId,
    Put,
    Snapshot,
    Store,
    TransactionResult,
    Watch,
)
from elastane.store.clock import ManualClock
from elastane.store.etcd import EtcdStore
from elastane.store.etcd_address import EtcdAddress
from elastane.store.etcd_client import EtcdClient
from elastane.store.etcd_watch import EtcdWatch
from elastane.store.history import HistoryLimits, compute_cutoff
from elastane.store.pace import Waiter

DEADLINE_S = 30.0
LONG_LEASE_S = 3600.0


class CompactRequest(msgspec.Struct, frozen=True, kw_only=True):
    revision: int


def compact(address: EtcdAddress, revision: int) -> None:
    """Make etcd forget what was before a revision."""
    client = EtcdClient(address)
    client.call("/v3/kv/compaction", CompactRequest(revision=revision), dict)
    client.close()


class EtcdWorld:
    """What the handles of one test share: its namespace, its clock, its leases, its history."""

    def __init__(self, address: EtcdAddress, clock: ManualClock, limits: HistoryLimits) -> None:
        self.address = address
        self.clock = clock
        self.admin = EtcdStore(address)
        self.base_revision = self.admin.range("").revision
        self.deadlines_s: dict[LeaseId, tuple[float, float]] = {}
        self._limits = limits
        self._written: list[tuple[int, int]] = []

    def expire(self) -> None:
        due = sorted(
            ((lease, at_s) for lease, (_, at_s) in self.deadlines_s.items() if at_s <= self.clock.now_s()),
            key=itemgetter(1),
        )
        for lease, _ in due:
            self.admin.revoke(lease)
            del self.deadlines_s[lease]

    def renew(self, lease: LeaseId) -> None:
        if lease in self.deadlines_s:
            ttl_s, _ = self.deadlines_s[lease]
            self.deadlines_s[lease] = ttl_s, self.clock.now_s() + ttl_s

    def note(self, revision: int, puts: Sequence[Put]) -> None:
        self._written += [(revision, len(item.key) + len(item.value)) for item in puts]
        total_bytes = sum(size for _, size in self._written)
        if self._limits.is_passed(len(self._written), total_bytes):
            cutoff = compute_cutoff(reversed(self._written), self._limits)
            self._written = [item for item in self._written if item[0] > cutoff]
            if cutoff:
                compact(self.address, cutoff + 1)  # etcd keeps the revision that is named


class EtcdHandle(Store):
    """A handle of a test."""

    def __init__(self, world: EtcdWorld) -> None:
        self._world = world
        self._inner = EtcdStore(world.address)

    def get(self, key: str) -> Entry | None:
        return self._inner.get(key)

    def range(self, prefix: str) -> Snapshot:
        return self._inner.range(prefix)

    def transact(
        self, compares: Sequence[Compare] = (), puts: Sequence[Put] = (), deletes: Sequence[Delete] = ()
    ) -> TransactionResult:
        result = self._inner.transact(compares, puts, deletes)
        self._world.note(result.revision, puts)
        return result

    def grant(self, ttl_s: float) -> LeaseId:
        lease = self._inner.grant(ttl_s if not 0 < ttl_s < LONG_LEASE_S else LONG_LEASE_S)
        self._world.deadlines_s[lease] = ttl_s, self._world.clock.now_s() + ttl_s
        return lease

    def renew(self, lease: LeaseId) -> None:
        self._inner.renew(lease)
        self._world.renew(lease)

    def revoke(self, lease: LeaseId) -> None:
        self._inner.revoke(lease)
        self._world.deadlines_s.pop(lease, None)

    def watch(self, prefix: str, after_revision: int) -> Watch:
        # Before the test there was nothing in its namespace, but perhaps the compaction of another test.
        after_revision = max(after_revision, self._world.base_revision)
        inner = self._inner.watch(prefix, after_revision)
        assert isinstance(inner, EtcdWatch)
        return EtcdTestWatch(self._world, inner)

    def close(self) -> None:
        self._inner.close()


class EtcdTestWatch(Watch):
    """A watch that looks until etcd has told everything."""

    def __init__(self, world: EtcdWorld, inner: EtcdWatch) -> None:
        self._world = world
        self._inner = inner
        self._waiter = Waiter(self.poll, world.clock)

    def poll(self) -> list[Event]:
        return [event for events in self._arrive() for event in events]

    def _arrive(self) -> Iterator[list[Event]]:
        yield self._inner.poll()
        revision = self._world.admin.range("").revision
        until_s = time.monotonic() + DEADLINE_S
        while self._inner.position < revision:
            assert time.monotonic() < until_s, (
                f"at {self._inner.position} after {DEADLINE_S} s, not {revision}"
            )
            yield self._inner.wait(0.005)

    def wait(self, timeout_s: float) -> list[Event]:
        return self._waiter.wait(timeout_s)

    def close(self) -> None:
        self._inner.close()
