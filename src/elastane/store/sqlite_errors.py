"""What SQLite's error codes mean to somebody who trains models, and which of them pass by themselves."""

import sqlite3
from pathlib import Path

from elastane.model.errors import (
    StoreAccessError,
    StoreBusyError,
    StoreCorruptError,
    StoreError,
    StoreFullError,
)

PRIMARY_CODE = 0xFF  # extended codes carry the primary one in their low byte (sqlite.org/rescode.html)

_FULL = (StoreFullError, "the disk or the store's quota is full; free space, nothing was written")
_DAMAGED = (
    StoreCorruptError,
    "the file is damaged or no elastane store; move it away with its -wal and -shm files and start again",
)
_DENIED = (StoreAccessError, "access is denied; check owner and permissions of the file and its directory")
_BROKEN_IO = (StoreAccessError, "the disk failed to read or write; check it (dmesg) and its free space")
_BUSY = (
    StoreBusyError,
    "other processes held it locked for too long; look for one that is stopped or hangs while it writes",
)
_MEANINGS: dict[int, tuple[type[StoreError], str]] = {
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_IOERR_SHMSIZE: _FULL,  # the shared-memory file could not grow
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_ERROR: _DAMAGED,  # our statements are right, so a table or column is missing
    sqlite3.SQLITE_CANTOPEN: _DENIED,
    sqlite3.SQLITE_READONLY: _DENIED,
    sqlite3.SQLITE_PERM: _DENIED,
    sqlite3.SQLITE_AUTH: _DENIED,
    sqlite3.SQLITE_IOERR: _BROKEN_IO,
    sqlite3.SQLITE_BUSY: _BUSY,
    sqlite3.SQLITE_LOCKED: _BUSY,
}


def is_busy(error: sqlite3.Error) -> bool:
    """Return whether another connection was in the way, so that the same call may succeed a moment later."""
    return _get_code(error) & PRIMARY_CODE in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def to_store_error(error: sqlite3.Error, path: Path) -> StoreError:
    """Return the error to raise for an SQLite error on the store at `path`."""
    code = _get_code(error)
    unknown = (StoreError, "SQLite failed in a way that is not expected; please report it")
    kind, meaning = _MEANINGS.get(code) or _MEANINGS.get(code & PRIMARY_CODE) or unknown
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    return kind(f"the store {path} cannot be used: {meaning} (SQLite: {error}, {name})")


def _get_code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0)  # absent if Python's module and not SQLite raised it
