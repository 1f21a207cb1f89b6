"""A store in a real etcd cluster, for jobs on many machines.

Theory of operation
- etcd's own transactions, leases, revisions and watches are the store's; nothing is emulated. They are asked
  for over HTTP through the JSON gateway that etcd serves on its client port (docs/decisions, "etcd's JSON
  gateway").
- All keys lie under the namespace of the address.
- Every call ends within the address's `timeout_s`, whatever becomes of the network and the members.
- Transactions whose answer is lost may have taken effect: see `EtcdStore.transact`.
Knows nothing of connections (etcd_client.py), of the wire (etcd_messages.py) nor of streams (etcd_watch.py).
"""

import math
from collections.abc import Sequence

from elastane.model.errors import LeaseLostError
from elastane.store.base import (
    Compare,
    Delete,
    Entry,
    LeaseId,
    Put,
    Snapshot,
    Store,
    TransactionResult,
    Watch,
    check_key,
    check_prefix,
    check_transaction,
    check_ttl,
)
from elastane.store.etcd_address import EtcdAddress
from elastane.store.etcd_client import EtcdClient
from elastane.store.etcd_keys import KeySpace
from elastane.store.etcd_messages import (
    Empty,
    GrantRequest,
    LeaseReply,
    LeaseRequest,
    RangeReply,
    RangeRequest,
    RenewReply,
    StatusReply,
    TxnReply,
)
from elastane.store.etcd_watch import EtcdWatch
from elastane.store.guard import HandleGuard


class EtcdStore(Store):
    """Be one handle on a store in etcd.

    Opening asks etcd once, so that a wrong address, password or certificate shows at once.
    """

    def __init__(self, address: EtcdAddress) -> None:
        self._client = EtcdClient(address)
        self._keys = KeySpace(address.namespace)
        self._guard = HandleGuard(address.url)
        self._watches: list[EtcdWatch] = []
        try:
            self._client.read_revision(self._keys)
        except BaseException:
            self._client.close()
            raise

    def get(self, key: str) -> Entry | None:
        """Return the entry of a key; see Store."""
        check_key(key)
        self._guard.check_use()
        reply = self._client.call("/v3/kv/range", RangeRequest(key=self._keys.key(key)), RangeReply)
        return self._keys.entry(reply.kvs[0]) if reply.kvs else None

    def range(self, prefix: str) -> Snapshot:
        """Return all entries under a prefix; see Store."""
        check_prefix(prefix)
        self._guard.check_use()
        first, beyond = self._keys.bounds(prefix)
        reply = self._client.call("/v3/kv/range", RangeRequest(key=first, range_end=beyond), RangeReply)
        self._client.newest_revision = reply.header.revision
        return Snapshot(revision=reply.header.revision, entries=tuple(map(self._keys.entry, reply.kvs)))

    def transact(
        self, compares: Sequence[Compare] = (), puts: Sequence[Put] = (), deletes: Sequence[Delete] = ()
    ) -> TransactionResult:
        """Apply a transaction; see Store.

        It is sent again only where etcd has certainly not seen it (no connection, or a login that had run
        out). Otherwise, once it has been sent and no answer comes, StoreUnreachableError is raised and nobody
        knows whether it took effect, or will within the next seconds. A caller repeats it only if that is
        harmless:
        - guarded by `Absent` or by a revision, the repetition fails if the first one was applied; read the
          keys to tell one's own success from that of others (values that name their writer make it easy);
        - without guard, the same values are written once more, at a later revision.
        """
        check_transaction(compares, puts, deletes)
        self._guard.check_use()
        request = self._keys.transaction(compares, puts, deletes)
        reply = self._client.call("/v3/kv/txn", request, TxnReply, repeatable=not (puts or deletes))
        self._client.newest_revision = reply.header.revision
        return TransactionResult(succeeded=reply.succeeded, revision=reply.header.revision)

    def grant(self, ttl_s: float) -> LeaseId:
        """Create a lease; see Store. etcd counts whole seconds, and has a minimum (2 s by default)."""
        check_ttl(ttl_s)
        self._guard.check_use()
        # Repeatable: a grant whose answer is lost leaves a lease that nobody renews.
        reply = self._client.call("/v3/lease/grant", GrantRequest(ttl_s=math.ceil(ttl_s)), LeaseReply)
        return LeaseId(reply.lease)

    def renew(self, lease: LeaseId) -> None:
        """Start a lease's time anew; see Store."""
        self._guard.check_use()
        reply = self._client.call("/v3/lease/keepalive", LeaseRequest(lease=lease), RenewReply)
        if reply.result.ttl_s <= 0:
            raise LeaseLostError(f"lease {lease} has expired or was revoked; stop acting on it")

    def revoke(self, lease: LeaseId) -> None:
        """End a lease; see Store."""
        self._guard.check_use()
        try:
            self._client.call("/v3/lease/revoke", LeaseRequest(lease=lease), Empty)
        except LeaseLostError:
            return  # gone already, which is as good

    def watch(self, prefix: str, after_revision: int) -> Watch:
        """Follow the changes under a prefix; see Store."""
        check_prefix(prefix)
        self._guard.check_use()
        watch = EtcdWatch(self._client, self._keys, self._guard, prefix, after_revision)
        self._watches = [other for other in self._watches if not other.closed] + [watch]
        return watch

    def read_status(self) -> StatusReply:
        """Return what the member in use says about itself."""
        self._guard.check_use()
        return self._client.call("/v3/maintenance/status", Empty(), StatusReply)

    def measure_shortest_lease(self) -> int:
        """Return the seconds of the shortest lease that this cluster gives."""
        self._guard.check_use()
        reply = self._client.call("/v3/lease/grant", GrantRequest(ttl_s=1), LeaseReply)
        self.revoke(LeaseId(reply.lease))
        return reply.ttl_s

    def close(self) -> None:
        """Give up the handle; see Store. A forked child closes only its own copies of the sockets."""
        if self._guard.closed:
            return
        if not self._guard.is_forked:
            self._guard.check_owner()
        self._client.close()
        for watch in self._watches:
            watch.close()
        self._guard.closed = True
