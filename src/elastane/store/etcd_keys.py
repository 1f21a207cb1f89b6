"""Say in etcd's words what the store's users ask for, and in theirs what etcd answers. Pure.

etcd's keys begin with the namespace; its compares and its leases know no absent key, and no lease is its 0.
"""

from collections.abc import Sequence

from elastane.model.errors import StoreRequestError
from elastane.store.base import (
    MAX_OPERATIONS,
    Absent,
    Compare,
    CreateRevisionIs,
    Delete,
    DeleteEvent,
    DeleteKey,
    Entry,
    Event,
    Exists,
    LeaseId,
    LeaseIs,
    ModRevisionIs,
    Put,
    PutEvent,
    ValueIs,
)
from elastane.store.etcd_messages import (
    CompareMessage,
    DeleteMessage,
    EventMessage,
    KeyValue,
    Operation,
    PutMessage,
    TxnRequest,
)


class KeySpace:
    """Translate between the store's keys and etcd's, which begin with the namespace."""

    __slots__ = ("prefix",)

    def __init__(self, namespace: str) -> None:
        self.prefix = f"{namespace}/".encode()

    def key(self, key: str) -> bytes:
        """Return etcd's name of a key."""
        return self.prefix + key.encode()

    def bounds(self, prefix: str) -> tuple[bytes, bytes]:
        """Return the first of etcd's keys under a prefix and the first one beyond.

        UTF-8 and the namespace keep 0xff out, so the last byte can always be raised by one.
        """
        first = self.key(prefix)
        return first, first[:-1] + bytes([first[-1] + 1])

    def entry(self, kv: KeyValue) -> Entry:
        """Return a key as the store's users see it."""
        return Entry(
            key=kv.key.removeprefix(self.prefix).decode(),
            value=kv.value,
            create_revision=kv.create_revision,
            mod_revision=kv.mod_revision,
            lease=LeaseId(kv.lease) if kv.lease else None,
        )

    def event(self, message: EventMessage) -> Event:
        """Return a change as the store's users see it."""
        if message.type == "DELETE":
            key = message.kv.key.removeprefix(self.prefix).decode()
            return DeleteEvent(key=key, revision=message.kv.mod_revision)
        return PutEvent(entry=self.entry(message.kv))

    def transaction(
        self, compares: Sequence[Compare], puts: Sequence[Put], deletes: Sequence[Delete]
    ) -> TxnRequest:
        """Return a transaction in etcd's words. Raises StoreRequestError if it has too many compares."""
        messages = tuple(message for compare in compares for message in self._compare(compare))
        if len(messages) > MAX_OPERATIONS:
            raise StoreRequestError(
                f"a transaction takes {len(messages)} compares in etcd, at most {MAX_OPERATIONS} are allowed "
                "(LeaseIs with None takes two): split it"
            )
        writes = [self._put(item) for item in puts] + [self._delete(item) for item in deletes]
        return TxnRequest(compare=messages, success=tuple(writes))

    def _compare(self, compare: Compare) -> tuple[CompareMessage, ...]:
        key = self.key(compare.key)
        exists = CompareMessage(key=key, target="CREATE", result="GREATER", create_revision=0)
        match compare:
            case ModRevisionIs(revision=revision):
                messages = [CompareMessage(key=key, target="MOD", mod_revision=revision)]
            case CreateRevisionIs(revision=revision):
                messages = [CompareMessage(key=key, target="CREATE", create_revision=revision)]
            case ValueIs(value=value):  # in etcd no value equals that of an absent key
                messages = [CompareMessage(key=key, target="VALUE", value=value)]
            case LeaseIs(lease=lease):
                messages = [CompareMessage(key=key, target="LEASE", lease=lease or 0)]
                messages += [exists] if lease is None else []  # in etcd the lease of an absent key is 0 too
            case Exists():
                messages = [exists]
            case Absent():
                messages = [CompareMessage(key=key, target="CREATE", create_revision=0)]
        return tuple(messages)

    def _put(self, item: Put) -> Operation:
        return Operation(
            request_put=PutMessage(key=self.key(item.key), value=item.value, lease=item.lease or 0)
        )

    def _delete(self, item: Delete) -> Operation:
        if isinstance(item, DeleteKey):
            return Operation(request_delete_range=DeleteMessage(key=self.key(item.key)))
        first, beyond = self.bounds(item.prefix)
        return Operation(request_delete_range=DeleteMessage(key=first, range_end=beyond))
