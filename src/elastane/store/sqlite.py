"""A store in one SQLite file that all processes of a machine open; no server, nothing to install.

Theory of operation
- WAL mode: readers see the last commit and never wait for a writer; writers take turns (BEGIN IMMEDIATE), and
  who finds the lock taken tries again after a short random pause.
- Each read is a single statement, so it sees one commit and leaves nothing open behind it.
- A lease is due when the clock of the machine passes its deadline. Whoever looks next expires it: a writer in
  its own transaction, a reader or watch in one that it adds, unless a writer is at work just then.
- A watch notices commits of other connections by PRAGMA data_version and its own by total_changes; both cost
  microseconds. Between looks it sleeps (pace.py).
Knows nothing of paths and tables (sqlite_file.py) nor what a transaction does to them (sqlite_writer.py).
"""

import math
import random
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from elastane.model.errors import CompactedError, LeaseLostError, StoreHandleError
from elastane.store.base import (
    Compare,
    Delete,
    DeleteEvent,
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
from elastane.store.guard import HandleGuard
from elastane.store.history import HistoryLimits
from elastane.store.pace import Waiter
from elastane.store.sqlite_errors import is_busy, to_store_error
from elastane.store.sqlite_file import connect, prepare_path, prepare_schema
from elastane.store.sqlite_writer import Writer, compute_bounds, renew_lease

MAX_PAUSE_S = 0.002
"""Longest pause before another try for the lock; a write takes some 0.1 ms, so a few fit in."""

_pauses = random.Random()
"""The store runs in threads of training processes, whose global generators decide the results."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteSettings:
    """Set the bounds of an embedded store.

    `busy_timeout_s`: how long to try for the lock; a healthy writer holds it for less than a millisecond, a
    checkpoint on a slow disk for a second. `quota_bytes`: largest file, etcd's default of 2 GiB.
    """

    busy_timeout_s: float = 10.0
    quota_bytes: int = 2 << 30
    history: HistoryLimits = field(default_factory=HistoryLimits)


class SqliteStore(Store):
    """Be one handle on the store in one SQLite file."""

    def __init__(
        self, path: Path, clock: Clock, settings: SqliteSettings | None = None, *, create: bool = True
    ) -> None:
        self.clock = clock
        self.guard = HandleGuard(f"sqlite://{path}")
        self._path = path
        self._settings = settings or SqliteSettings()
        prepare_path(path, create)
        self._connection = self._retry(lambda: connect(path, self._settings.quota_bytes))
        try:
            self._retry(lambda: prepare_schema(self._connection, path))
            self._adopt_clock()
        except BaseException:
            self._connection.close()
            raise

    def get(self, key: str) -> Entry | None:
        """Return the entry of a key; see Store."""
        check_key(key)
        rows = self.read(
            "SELECT due.at_s, entry.* FROM (SELECT min(deadline_s) AS at_s FROM lease) AS due"
            " LEFT JOIN entry ON entry.key = ?",
            (key.encode(),),
        )
        return None if rows[0][1] is None else _to_entry(rows[0][1:])

    def range(self, prefix: str) -> Snapshot:
        """Return all entries under a prefix; see Store."""
        check_prefix(prefix)
        rows = self.read(
            "SELECT due.at_s, store.revision, entry.*"
            " FROM store, (SELECT min(deadline_s) AS at_s FROM lease) AS due"
            " LEFT JOIN entry ON entry.key >= ? AND entry.key < ? ORDER BY entry.key",
            compute_bounds(prefix),
        )
        entries = tuple(_to_entry(row[2:]) for row in rows if row[2] is not None)
        return Snapshot(revision=rows[0][1], entries=entries)

    def transact(
        self, compares: Sequence[Compare] = (), puts: Sequence[Put] = (), deletes: Sequence[Delete] = ()
    ) -> TransactionResult:
        """Apply a transaction; see Store."""
        check_transaction(compares, puts, deletes)
        return self._write(lambda writer: writer.transact(compares, puts, deletes))

    def grant(self, ttl_s: float) -> LeaseId:
        """Create a lease; see Store."""
        check_ttl(ttl_s)
        return self._write(lambda writer: writer.grant(ttl_s))

    def renew(self, lease: LeaseId) -> None:
        """Start a lease's time anew; see Store.

        A single statement, so that no other thread of a busy interpreter can come between taking and giving
        up the lock: this is the call that every process makes all the time.
        """
        self.guard.check_use()
        if self._retry(lambda: renew_lease(self._connection, lease, self.clock.now_s())):
            return
        raise LeaseLostError(f"lease {lease} has expired or was revoked; stop acting on it")

    def revoke(self, lease: LeaseId) -> None:
        """End a lease; see Store."""
        self._write(lambda writer: writer.revoke(lease))

    def watch(self, prefix: str, after_revision: int) -> Watch:
        """Follow the changes under a prefix; see Store."""
        check_prefix(prefix)
        self.guard.check_use()
        return SqliteWatch(self, prefix, after_revision)

    def close(self) -> None:
        """Give up the handle; see Store. In a forked child the connection is left to the parent."""
        if self.guard.closed:
            return
        if not self.guard.is_forked:
            self.guard.check_owner()
            self._connection.close()
        self.guard.closed = True

    # --- for the handle's watches --------------------------------------------------------------------

    def read(self, statement: str, parameters: tuple[bytes | int, ...]) -> list[tuple[Any, ...]]:
        """Expire what is due, and return the rows of a statement whose first column is the next deadline."""
        self.guard.check_use()
        rows = self._retry(lambda: self._connection.execute(statement, parameters).fetchall())
        if _is_due(rows[0][0], self.clock.now_s()) and self._try_expire():
            rows = self._retry(lambda: self._connection.execute(statement, parameters).fetchall())
        return rows

    def read_stamp(self) -> tuple[int, int]:
        """Return a value that differs after any commit, by this or by another connection."""
        self.guard.check_use()
        (version,) = self._retry(lambda: self._connection.execute("PRAGMA data_version").fetchone())
        return version, self._connection.total_changes

    # --- inside --------------------------------------------------------------------------------------

    def _adopt_clock(self) -> None:
        (origin_id,) = self._retry(
            lambda: self._connection.execute("SELECT clock_origin FROM store").fetchone()
        )
        if origin_id != self.clock.origin_id:
            self._write(lambda writer: writer.move_clock(self.clock.origin_id))

    def _write(self, action: Callable[[Writer], T]) -> T:
        self.guard.check_use()
        return self._retry(lambda: self._write_once(action))

    def _write_once(self, action: Callable[[Writer], T]) -> T:
        try:  # around BEGIN too: an interrupt right after it must not leave the lock taken
            self._connection.execute("BEGIN IMMEDIATE")
            writer = Writer(self._connection, self.clock.now_s(), self._settings.history)
            result = action(writer)
            writer.flush()
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        return result

    def _try_expire(self) -> bool:
        """Expire due leases and return True, or return False if a writer is at work."""
        try:
            self._write_once(lambda writer: None)
        except sqlite3.Error as error:
            if is_busy(error):
                return False
            raise to_store_error(error, self._path) from error
        return True

    def _retry(self, attempt: Callable[[], T]) -> T:
        """Return what `attempt` returns; try again while other connections are in the way."""
        give_up_at_s: float | None = None
        while True:
            try:
                return attempt()
            except sqlite3.Error as error:
                # The lock is real even where the clock of the leases is not, hence time.monotonic.
                now_s = time.monotonic()
                give_up_at_s = give_up_at_s or now_s + self._settings.busy_timeout_s
                if not is_busy(error) or now_s >= give_up_at_s:
                    raise to_store_error(error, self._path) from error
            time.sleep(_pauses.uniform(0, MAX_PAUSE_S))


class SqliteWatch(Watch):
    """Follow one prefix through a SqliteStore's handle."""

    def __init__(self, store: SqliteStore, prefix: str, after_revision: int) -> None:
        self._store = store
        self._prefix = prefix
        self._position = after_revision
        self._stamp: tuple[int, int] | None = None
        self._next_deadline_s = math.inf
        self._closed = False
        self._waiter = Waiter(self.poll, store.clock)

    def poll(self) -> list[Event]:
        """Return the events since the last call; see Watch."""
        if self._closed:
            raise StoreHandleError(f"the watch on {self._prefix!r} is closed; open another")
        stamp = self._store.read_stamp()  # before the rows: a commit in between is then seen twice, not never
        if stamp == self._stamp and self._store.clock.now_s() < self._next_deadline_s:
            return []
        rows = self._store.read(
            "SELECT due.at_s, store.revision, store.compacted_revision, history.*"
            " FROM store, (SELECT min(deadline_s) AS at_s FROM lease) AS due"
            " LEFT JOIN history ON history.revision > ? AND history.key >= ? AND history.key < ?"
            " ORDER BY history.revision, history.key",
            (self._position, *compute_bounds(self._prefix)),
        )
        due_at_s, revision, compacted_revision = rows[0][:3]
        self._check_kept(compacted_revision)
        self._stamp = stamp
        self._next_deadline_s = math.inf if due_at_s is None else due_at_s
        self._position = max(self._position, revision)
        return [_to_event(row[3:]) for row in rows if row[3] is not None]

    def wait(self, timeout_s: float) -> list[Event]:
        """Return the events since the last call as soon as there are any; see Watch."""
        return self._waiter.wait(timeout_s)

    def close(self) -> None:
        """End the watch; see Watch."""
        self._closed = True

    def _check_kept(self, compacted_revision: int) -> None:
        if self._position < compacted_revision:
            raise CompactedError(
                f"events under {self._prefix!r} after revision {self._position} were asked for, but those up "
                f"to {compacted_revision} are forgotten; read the range again and watch from its revision"
            )


def _is_due(next_deadline_s: float | None, now_s: float) -> bool:
    return next_deadline_s is not None and next_deadline_s <= now_s


def _to_entry(row: tuple[Any, ...]) -> Entry:
    key, value, create_revision, mod_revision, lease = row
    return Entry(
        key=key.decode(),
        value=value,
        create_revision=create_revision,
        mod_revision=mod_revision,
        lease=lease,
    )


def _to_event(row: tuple[Any, ...]) -> Event:
    revision, key, value, create_revision, lease = row
    if value is None:
        return DeleteEvent(key=key.decode(), revision=revision)
    return PutEvent(entry=_to_entry((key, value, create_revision, revision, lease)))
