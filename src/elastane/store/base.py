"""The coordination store's interface: what every back end gives, and no more than etcd v3 can give.

A store maps text keys to bytes. Every transaction that writes something has its own number, the *revision*,
which only grows and is the same for everybody. Keys may hang on a *lease* and vanish when its owner
stops renewing. A *watch* tells all changes under a prefix in the order of their revisions.

Rules for users: one handle (`open_store`) per process and per thread; no handle survives a fork; what a
value means is none of the store's business. Everything here either happened for everybody or for nobody.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import NewType, Self

import msgspec

from elastane.model.errors import StoreRequestError

LeaseId = NewType("LeaseId", int)
"""Name of one lease; a store never gives the same number twice."""

MAX_OPERATIONS = 128
"""Most compares, and most writes, in one transaction: etcd's default for --max-txn-ops."""
MAX_TRANSACTION_BYTES = 1 << 20
"""Most bytes of keys and values in one transaction: below etcd's --max-request-bytes (1.5 MiB)."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Hold one key as it stands: its value, when it was created and last written, and its lease."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    lease: LeaseId | None = None


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Hold all entries under a prefix at one revision, ordered by key.

    `revision` is the store's, not the newest entry's: a watch after it misses nothing and repeats nothing.
    """

    revision: int
    entries: tuple[Entry, ...]


# --- compares: a transaction takes effect only if all of them hold ----------------------------------


class ModRevisionIs(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Hold if the key was last written at `revision`; 0 means that the key is absent."""

    key: str
    revision: int


class CreateRevisionIs(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Hold if the key was created at `revision` (and not deleted since); 0 means that it is absent."""

    key: str
    revision: int


class ValueIs(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Hold if the key exists and has exactly this value."""

    key: str
    value: bytes


class LeaseIs(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Hold if the key exists and hangs on `lease`; None means that it exists without a lease."""

    key: str
    lease: LeaseId | None


class Exists(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Hold if the key exists, with or without a lease."""

    key: str


class Absent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Hold if the key does not exist."""

    key: str


Compare = ModRevisionIs | CreateRevisionIs | ValueIs | LeaseIs | Exists | Absent

# --- writes ----------------------------------------------------------------------------------------


class Put(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Write a value. The key then hangs on `lease`; None detaches it from the one it may have hung on."""

    key: str
    value: bytes
    lease: LeaseId | None = None


class DeleteKey(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Delete one key; nothing happens if it is absent."""

    key: str


class DeletePrefix(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Delete every key that starts with `prefix`; the empty prefix means all keys."""

    prefix: str


Delete = DeleteKey | DeletePrefix


class TransactionResult(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Tell whether all compares held, and the store's revision after the transaction.

    If it succeeded and wrote or deleted anything, `revision` is the `mod_revision` of what it wrote.
    """

    succeeded: bool
    revision: int


# --- events ----------------------------------------------------------------------------------------


class PutEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Tell that a key was written; `entry` is as it was right after that write."""

    entry: Entry

    @property
    def key(self) -> str:
        """Return the key that was written."""
        return self.entry.key

    @property
    def revision(self) -> int:
        """Return the revision of the write."""
        return self.entry.mod_revision


class DeleteEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Tell that a key is gone: deleted by somebody, or its lease expired or was revoked."""

    key: str
    revision: int


Event = PutEvent | DeleteEvent


class Watch(ABC):
    """Follow all changes under one prefix. Belongs to the thread of the handle that made it.

    Events come ordered by (revision, key); those of one transaction come together, from one call.
    """

    @abstractmethod
    def poll(self) -> list[Event]:
        """Return the events that have arrived since the last call, without waiting; an empty list if none
        have.

        On one machine an event has arrived when its transaction is over; across a network a moment later.
        Raises CompactedError if the store no longer has them: read the range again, watch from its revision.
        """

    @abstractmethod
    def wait(self, timeout_s: float) -> list[Event]:
        """Return the events since the last call as soon as there are any.

        The list is empty if `timeout_s` seconds pass without one.
        Raises CompactedError like `poll`.
        """

    @abstractmethod
    def close(self) -> None:
        """End the watch; calling it twice is harmless."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Store(ABC):
    """Be one handle on a store, for one thread of one process.

    All methods raise StoreError or one of its kinds if the store refuses, and StoreUnreachableError, within
    seconds, if it does not answer; the handle goes on once it does.
    """

    @abstractmethod
    def get(self, key: str) -> Entry | None:
        """Return the entry of a key, None if it is absent."""

    @abstractmethod
    def range(self, prefix: str) -> Snapshot:
        """Return all entries whose key starts with `prefix` (all for "") as one consistent picture."""

    @abstractmethod
    def transact(
        self, compares: Sequence[Compare] = (), puts: Sequence[Put] = (), deletes: Sequence[Delete] = ()
    ) -> TransactionResult:
        """Apply all puts and deletes as one revision if all compares hold, else nothing.

        A transaction that changes nothing (only deletes of absent keys) takes no revision. Raises
        LeaseLostError if the compares hold and a put names a lease that is gone, and StoreRequestError for a
        key named by two puts or by a put and a delete, or for a transaction that is too large. After a
        StoreUnreachableError it may or may not have taken effect, unless the message says otherwise: who
        repeats it guards it by compares.
        """

    @abstractmethod
    def grant(self, ttl_s: float) -> LeaseId:
        """Create a lease that expires `ttl_s` seconds after its last renewal, never earlier.

        A back end may round `ttl_s` up to whole seconds (etcd does).
        """

    @abstractmethod
    def renew(self, lease: LeaseId) -> None:
        """Start the lease's time anew. Raises LeaseLostError if it has expired or was revoked.

        An owner that must stop before its lease ends counts `ttl_s` from *before* its last successful call.
        """

    @abstractmethod
    def revoke(self, lease: LeaseId) -> None:
        """End a lease and delete the keys that hang on it, as one revision; harmless if it is gone."""

    @abstractmethod
    def watch(self, prefix: str, after_revision: int) -> Watch:
        """Follow the changes under `prefix` that come after `after_revision`, usually a snapshot's."""

    @abstractmethod
    def close(self) -> None:
        """Give up the handle, and its watches; leases live on until they expire. Harmless if called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


# --- what every back end checks the same way -------------------------------------------------------


def check_key(key: str) -> None:
    """Raise StoreRequestError unless `key` is non-empty text that UTF-8 can write."""
    if not key:
        raise StoreRequestError("a store key is empty; name the key to read or write")
    check_prefix(key)


def check_prefix(prefix: str) -> None:
    """Raise StoreRequestError unless UTF-8 can write `prefix`."""
    try:
        prefix.encode()
    except UnicodeEncodeError as error:
        raise StoreRequestError(
            f"store key or prefix {prefix!r} is no valid text ({error}); use UTF-8 text"
        ) from error


def check_ttl(ttl_s: float) -> None:
    """Raise StoreRequestError unless a lease can live for `ttl_s` seconds."""
    if not 0 < ttl_s < float("inf"):
        raise StoreRequestError(f"a lease cannot live for {ttl_s} s; ask for a finite time above 0")


def check_transaction(compares: Sequence[Compare], puts: Sequence[Put], deletes: Sequence[Delete]) -> None:
    """Raise StoreRequestError for a transaction that etcd would refuse for its form or its size."""
    _check_size(compares, puts, deletes)
    for item in (*compares, *puts):
        check_key(item.key)
    _check_overlap({put.key for put in puts}, puts, deletes)


def _check_size(compares: Sequence[Compare], puts: Sequence[Put], deletes: Sequence[Delete]) -> None:
    writes = len(puts) + len(deletes)
    if max(len(compares), writes) > MAX_OPERATIONS:
        raise StoreRequestError(
            f"a transaction has {len(compares)} compares and {writes} writes; "
            f"at most {MAX_OPERATIONS} of each are allowed: split it"
        )
    total_bytes = sum(len(put.key) + len(put.value) for put in puts)
    if total_bytes > MAX_TRANSACTION_BYTES:
        largest = max(puts, key=lambda put: len(put.value))
        raise StoreRequestError(
            f"a transaction writes {total_bytes} bytes, at most {MAX_TRANSACTION_BYTES} are allowed "
            f"(largest: {largest.key!r}, {len(largest.value)} bytes); keep bulk data outside the store"
        )


def _check_overlap(put_keys: set[str], puts: Sequence[Put], deletes: Sequence[Delete]) -> None:
    if len(put_keys) < len(puts):
        twice = sorted(key for key in put_keys if sum(put.key == key for put in puts) > 1)
        raise StoreRequestError(f"a transaction puts {twice} more than once; keep one put per key")
    for delete in deletes:
        if isinstance(delete, DeleteKey):
            check_key(delete.key)
            clash = put_keys & {delete.key}
        else:
            check_prefix(delete.prefix)
            clash = {key for key in put_keys if key.startswith(delete.prefix)}
        if clash:
            raise StoreRequestError(
                f"a transaction both puts and deletes {sorted(clash)}; do only one of the two"
            )
