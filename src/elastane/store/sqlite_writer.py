"""What one write transaction of an embedded store does to its tables.

A `Writer` lives between BEGIN IMMEDIATE and COMMIT, so it is alone and may read what it changes. It is given
the time; it knows neither locks nor retries. Who notices that a lease is due makes no difference: every
writer first expires what is due, each lease as a revision of its own.
"""

import sqlite3
from collections.abc import Collection, Sequence

from elastane.model.errors import LeaseLostError
from elastane.store.base import (
    Compare,
    Delete,
    DeleteKey,
    Entry,
    LeaseId,
    Put,
    TransactionResult,
)
from elastane.store.compare import is_met
from elastane.store.history import HistoryLimits, compute_cutoff


class Writer:
    """Change the tables within one open write transaction; `flush` before the commit."""

    def __init__(self, connection: sqlite3.Connection, now_s: float, limits: HistoryLimits) -> None:
        self._connection = connection
        self._now_s = now_s
        self._limits = limits
        self._is_changed = False
        row = connection.execute(
            "SELECT revision, compacted_revision, history_events, history_bytes,"
            " (SELECT min(deadline_s) FROM lease) FROM store"
        ).fetchone()
        self._revision, self._compacted_revision, self._history_events, self._history_bytes = row[:4]
        next_deadline_s: float | None = row[4]
        if next_deadline_s is not None and next_deadline_s <= now_s:
            self._expire_due()

    def transact(
        self, compares: Sequence[Compare], puts: Sequence[Put], deletes: Sequence[Delete]
    ) -> TransactionResult:
        """Apply a transaction that passed `check_transaction`, if its compares hold."""
        if not all(is_met(compare, read_entry(self._connection, compare.key)) for compare in compares):
            return TransactionResult(succeeded=False, revision=self._revision)
        for put in puts:
            if put.lease is not None:
                self._check_lease(put.lease)
        deleted = {key for delete in deletes for key in self._keys_of(delete)}
        self._record(puts, deleted)
        return TransactionResult(succeeded=True, revision=self._revision)

    def grant(self, ttl_s: float) -> LeaseId:
        """Create a lease that ends `ttl_s` seconds from now."""
        (lease,) = self._connection.execute("SELECT next_lease FROM store").fetchone()
        self._connection.execute("UPDATE store SET next_lease = next_lease + 1")
        self._connection.execute("INSERT INTO lease VALUES (?, ?, ?)", (lease, ttl_s, self._now_s + ttl_s))
        return LeaseId(lease)

    def revoke(self, lease: LeaseId) -> None:
        """End a lease, if it still lives, and delete its keys."""
        rows = self._connection.execute("SELECT key FROM entry WHERE lease = ?", (lease,))
        self._record((), {key for (key,) in rows})
        self._connection.execute("DELETE FROM lease WHERE id = ?", (lease,))

    def move_clock(self, origin_id: str) -> None:
        """Count deadlines from another origin: every lease counted from an earlier one has expired."""
        (known_id,) = self._connection.execute("SELECT clock_origin FROM store").fetchone()
        if known_id == origin_id:  # another process did it; the leases are younger than that
            return
        for (lease,) in self._connection.execute("SELECT id FROM lease ORDER BY id").fetchall():
            self.revoke(lease)
        self._connection.execute("UPDATE store SET clock_origin = ?", (origin_id,))

    def flush(self) -> None:
        """Write the counters, and forget history beyond the limits."""
        if not self._is_changed:
            return
        if self._limits.is_passed(self._history_events, self._history_bytes):
            self._cut_history()
        self._connection.execute(
            "UPDATE store SET revision = ?, compacted_revision = ?, history_events = ?, history_bytes = ?",
            (self._revision, self._compacted_revision, self._history_events, self._history_bytes),
        )

    # --- inside --------------------------------------------------------------------------------------

    def _expire_due(self) -> None:
        due = self._connection.execute(
            "SELECT id FROM lease WHERE deadline_s <= ? ORDER BY deadline_s, id", (self._now_s,)
        ).fetchall()
        for (lease,) in due:
            self.revoke(lease)

    def _check_lease(self, lease: LeaseId) -> None:
        if self._connection.execute("SELECT 1 FROM lease WHERE id = ?", (lease,)).fetchone() is None:
            raise LeaseLostError(f"lease {lease} has expired or was revoked; stop acting on it")

    def _keys_of(self, delete: Delete) -> set[bytes]:
        if isinstance(delete, DeleteKey):
            key = delete.key.encode()
            rows = self._connection.execute("SELECT key FROM entry WHERE key = ?", (key,))
        else:
            bounds = compute_bounds(delete.prefix)
            rows = self._connection.execute("SELECT key FROM entry WHERE key >= ? AND key < ?", bounds)
        return {key for (key,) in rows}

    def _record(self, puts: Sequence[Put], deleted: Collection[bytes]) -> None:
        """Make all changes of one revision, if there are any."""
        revision = self._revision + 1
        for key in deleted:
            self._connection.execute("DELETE FROM entry WHERE key = ?", (key,))
            self._connection.execute("INSERT INTO history (revision, key) VALUES (?, ?)", (revision, key))
            self._count(len(key))
        for put in puts:
            self._put(put, revision)
        if puts or deleted:
            self._revision = revision
            self._is_changed = True

    def _put(self, put: Put, revision: int) -> None:
        key = put.key.encode()
        self._connection.execute(
            "INSERT INTO entry VALUES (:key, :value, :revision, :revision, :lease)"
            " ON CONFLICT (key) DO UPDATE SET value = :value, mod_revision = :revision, lease = :lease",
            {"key": key, "value": put.value, "revision": revision, "lease": put.lease},
        )
        self._connection.execute(
            "INSERT INTO history SELECT mod_revision, key, value, create_revision, lease"
            " FROM entry WHERE key = ?",
            (key,),
        )
        self._count(len(key) + len(put.value))

    def _count(self, event_bytes: int) -> None:
        self._history_events += 1
        self._history_bytes += event_bytes

    def _cut_history(self) -> None:
        sizes = self._connection.execute(
            "SELECT revision, length(key) + ifnull(length(value), 0) FROM history ORDER BY revision DESC"
        )
        cutoff = compute_cutoff(sizes, self._limits)
        sizes.close()
        forgotten = (cutoff,)
        self._connection.execute("DELETE FROM history WHERE revision <= ?", forgotten)
        self._compacted_revision = max(self._compacted_revision, cutoff)
        self._history_events, self._history_bytes = self._connection.execute(
            "SELECT count(*), ifnull(sum(length(key) + ifnull(length(value), 0)), 0) FROM history"
        ).fetchone()


def renew_lease(connection: sqlite3.Connection, lease: LeaseId, now_s: float) -> bool:
    """Let a lease end a full time from now, as a transaction of its own; return False if it has ended."""
    renewed = connection.execute(
        "UPDATE lease SET deadline_s = ? + ttl_s WHERE id = ? AND deadline_s > ?", (now_s, lease, now_s)
    )
    return renewed.rowcount == 1


def read_entry(connection: sqlite3.Connection, key: str) -> Entry | None:
    """Return the entry of a key as the connection's transaction sees it, None if it is absent."""
    row = connection.execute(
        "SELECT value, create_revision, mod_revision, lease FROM entry WHERE key = ?", (key.encode(),)
    ).fetchone()
    if row is None:
        return None
    value, create_revision, mod_revision, lease = row
    return Entry(
        key=key, value=value, create_revision=create_revision, mod_revision=mod_revision, lease=lease
    )


def compute_bounds(prefix: str) -> tuple[bytes, bytes]:
    """Return the first key of a prefix and the first key after all of it, as bytes.

    No byte of UTF-8 text is 0xff, so one added to the last byte never overflows; 0xff alone is beyond all.
    """
    first = prefix.encode()
    if not first:
        return b"", b"\xff"
    return first, first[:-1] + bytes([first[-1] + 1])
