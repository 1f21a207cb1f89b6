"""Open the file of an embedded store: its checks, its pragmas, its tables. Knows nothing of keys and leases.

Tables
- store: one row; schema version, the origin of the clock that deadlines are counted from, and all counters
- entry: the keys as they stand; lease: the leases that live, with their deadlines
- history: what watches are told, one row per changed key and revision; value NULL means deleted
Keys are stored as UTF-8 bytes: they then sort as etcd sorts them.
"""

import sqlite3
from pathlib import Path
from urllib.parse import quote

from elastane.model.errors import StoreAddressError, StoreCorruptError
from elastane.store.local_disk import check_file, check_local, create_private_file, read_mounts

SCHEMA_VERSION = 1
CACHE_KIB = 1024  # the whole store of a large job fits; every process has its own
WAL_LIMIT_BYTES = 8 << 20  # twice what the automatic checkpoint (1000 pages) leaves

_SCHEMA = (
    """CREATE TABLE store (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        schema_version INTEGER NOT NULL,
        clock_origin TEXT NOT NULL,
        revision INTEGER NOT NULL,
        compacted_revision INTEGER NOT NULL,
        next_lease INTEGER NOT NULL,
        history_events INTEGER NOT NULL,
        history_bytes INTEGER NOT NULL
    )""",
    """CREATE TABLE entry (
        key BLOB PRIMARY KEY,
        value BLOB NOT NULL,
        create_revision INTEGER NOT NULL,
        mod_revision INTEGER NOT NULL,
        lease INTEGER
    ) WITHOUT ROWID""",
    "CREATE INDEX entry_by_lease ON entry (lease) WHERE lease IS NOT NULL",
    "CREATE TABLE lease (id INTEGER PRIMARY KEY, ttl_s REAL NOT NULL, deadline_s REAL NOT NULL)",
    """CREATE TABLE history (
        revision INTEGER NOT NULL,
        key BLOB NOT NULL,
        value BLOB,
        create_revision INTEGER,
        lease INTEGER,
        PRIMARY KEY (revision, key)
    ) WITHOUT ROWID""",
    # revision 1 like a fresh etcd, so that no entry ever has revision 0
    f"INSERT INTO store VALUES (1, {SCHEMA_VERSION}, '', 1, 0, 1, 0, 0)",
)


def prepare_path(path: Path, create: bool) -> None:
    """Create the file and its folders if wanted. Raises StoreError kinds if no store can be there."""
    if not path.is_absolute():
        raise StoreAddressError(f"the store path {path} is not absolute; write sqlite:///absolute/path")
    check_local(path, read_mounts())
    if create:
        create_private_file(path)
    check_file(path)


def connect(path: Path, quota_bytes: int) -> sqlite3.Connection:
    """Open a connection that never waits for locks by itself and is in no transaction.

    Raises sqlite3.Error; may be called again if that is a busy one.
    """
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode=rw",  # never creates the file: it would have the wrong permissions
        uri=True,
        timeout=0,  # SQLite's own back-off grows to 100 ms; ours is short and spread (sqlite.py)
        isolation_level=None,
        check_same_thread=False,  # HandleGuard checks it, in words
    )
    try:
        _configure(connection, path, quota_bytes)
    except BaseException:
        connection.close()
        raise
    return connection


def _configure(connection: sqlite3.Connection, path: Path, quota_bytes: int) -> None:
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    # NORMAL in WAL mode: a killed process loses nothing, a power cut at most the last moments
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_LIMIT_BYTES}")
    page_bytes: int = connection.execute("PRAGMA page_size").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {max(1, quota_bytes // page_bytes)}")
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        mode: str = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise StoreAddressError(
                f"the store {path} lies on a file system without shared memory (SQLite keeps journal mode "
                f"{mode!r} instead of WAL); put it on a local disk"
            )


def prepare_schema(connection: sqlite3.Connection, path: Path) -> None:
    """Create the tables of a new store, or check an old one's. Raises StoreCorruptError, sqlite3.Error."""
    if not _read_tables(connection):
        connection.execute("BEGIN IMMEDIATE")
        if not _read_tables(connection):  # nobody was faster
            for statement in _SCHEMA:
                connection.execute(statement)
        connection.execute("COMMIT")
    if "store" not in _read_tables(connection):
        raise StoreCorruptError(f"{path} is an SQLite database but no elastane store; choose another path")
    found: int = connection.execute("SELECT schema_version FROM store").fetchone()[0]
    if found != SCHEMA_VERSION:
        raise StoreCorruptError(
            f"the store {path} has schema version {found}, this elastane reads {SCHEMA_VERSION}; "
            "use the version that wrote it, or move it away once its jobs have ended"
        )


def _read_tables(connection: sqlite3.Connection) -> set[str]:
    return {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
