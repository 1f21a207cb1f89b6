"""What is special about a store in an SQLite file: it lasts, and files can be wrong, full, locked or old."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from elastane.model.errors import (
    StoreAccessError,
    StoreAddressError,
    StoreBusyError,
    StoreCorruptError,
    StoreError,
    StoreFullError,
)
from elastane.store.base import DeleteEvent, Put, Store
from elastane.store.clock import ManualClock
from elastane.store.history import HistoryLimits
from elastane.store.sqlite import SqliteSettings, SqliteStore
from elastane.store.sqlite_errors import to_store_error

IMPATIENT = SqliteSettings(busy_timeout_s=0.01)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def put(store: Store, key: str, value: bytes = b"") -> int:
    return store.transact(puts=[Put(key=key, value=value)]).revision


def keys(store: Store) -> list[str]:
    return [entry.key for entry in store.range("").entries]


def lock(path: Path) -> sqlite3.Connection:
    """Hold the write lock as another process in the middle of a transaction would."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    return connection


# --- it lasts --------------------------------------------------------------------------------------


def test_everything_is_there_when_the_store_is_opened_again(path: Path) -> None:
    clock = ManualClock()
    with SqliteStore(path, clock) as store:
        lease = store.grant(10)
        store.transact(puts=[Put(key="a", value=b"1", lease=lease)])
        snapshot = store.range("")
        events = store.watch("", 0).poll()
    with SqliteStore(path, clock) as store:
        assert store.range("") == snapshot
        assert store.watch("", 0).poll() == events
        store.renew(lease)
        assert store.grant(10) == lease + 1


def test_files_are_private(path: Path) -> None:
    with SqliteStore(path, ManualClock()) as store:
        put(store, "a")
        modes = {item.name: item.stat().st_mode & 0o777 for item in path.parent.iterdir()}
    assert modes == {"store.db": 0o600, "store.db-wal": 0o600, "store.db-shm": 0o600}


def test_leases_of_an_earlier_boot_have_expired(path: Path) -> None:
    with SqliteStore(path, ManualClock(5000.0, "boot 1")) as store:
        revision = store.transact(puts=[Put(key="leased", value=b"", lease=store.grant(1e6))]).revision
        store.grant(1e6)
        put(store, "kept")
    with SqliteStore(path, ManualClock(3.0, "boot 2")) as store:
        assert keys(store) == ["kept"]
        assert store.watch("leased", revision).poll() == [DeleteEvent(key="leased", revision=revision + 2)]


def test_the_second_process_after_a_boot_leaves_the_leases_of_the_first_alone(path: Path) -> None:
    SqliteStore(path, ManualClock(5000.0, "boot 1")).close()
    with SqliteStore(path, ManualClock(3.0, "boot 2")) as first:
        first.transact(puts=[Put(key="leased", value=b"", lease=first.grant(10))])
        with SqliteStore(path, ManualClock(4.0, "boot 2")) as second:
            assert keys(second) == ["leased"]


def test_the_files_stay_small_however_much_is_written(path: Path) -> None:
    settings = SqliteSettings(history=HistoryLimits(events=64, total_bytes=64 << 10))
    sizes: list[int] = []
    with SqliteStore(path, ManualClock(), settings) as store:
        for _ in range(3):
            for number in range(400):
                put(store, f"key/{number % 10}", bytes(2000))
                store.revoke(store.grant(1))
            sizes.append(path.stat().st_size)
    assert sizes[0] <= 400_000
    assert sizes[2] == sizes[1]


# --- files that cannot be used ---------------------------------------------------------------------


def write_garbage(path: Path) -> None:
    path.write_bytes(b"this is not a database, and it is long enough to be sure of that " * 100)


def write_foreign(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE holidays (day TEXT)")
    connection.close()


def write_newer(path: Path) -> None:
    SqliteStore(path, ManualClock()).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE store SET schema_version = 99")
    connection.close()


def write_incomplete(path: Path) -> None:
    SqliteStore(path, ManualClock()).close()
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE store DROP COLUMN schema_version")
    connection.close()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (write_garbage, "the file is damaged or no elastane store"),
        (write_foreign, "is an SQLite database but no elastane store"),
        (write_newer, "has schema version 99, this elastane reads 1"),
        (write_incomplete, "the file is damaged or no elastane store"),
    ],
)
def test_a_file_that_is_no_store_is_refused_and_kept(
    path: Path, spoil: Callable[[Path], None], message: str
) -> None:
    spoil(path)
    before = path.read_bytes()
    with pytest.raises(StoreCorruptError, match=message):
        SqliteStore(path, ManualClock())
    if spoil is write_garbage:
        assert path.read_bytes() == before


def test_a_file_damaged_in_the_middle_is_reported_by_the_call_that_meets_it(path: Path) -> None:
    with SqliteStore(path, ManualClock()) as store:
        for number in range(200):
            put(store, f"{number:04}", bytes(1000))
    content = bytearray(path.read_bytes())
    content[8192:] = b"\xa5" * (len(content) - 8192)
    path.write_bytes(content)
    with pytest.raises(StoreCorruptError, match=r"store\.db cannot be used.*start again"):
        keys(SqliteStore(path, ManualClock()))


def test_a_path_must_be_absolute() -> None:
    with pytest.raises(StoreAddressError, match=r"the store path store\.db is not absolute"):
        SqliteStore(Path("store.db"), ManualClock())


def test_a_full_store_refuses_writes_and_still_reads(path: Path) -> None:
    settings = SqliteSettings(quota_bytes=256 << 10)
    with SqliteStore(path, ManualClock(), settings) as store:
        revision = put(store, "a", b"1")
        with pytest.raises(StoreFullError, match="quota is full; free space, nothing was written"):
            put(store, "b", bytes(512 << 10))
        assert keys(store) == ["a"]
        assert put(store, "c") == revision + 1


# --- locks -----------------------------------------------------------------------------------------


def test_a_write_that_finds_the_store_locked_for_too_long_says_so(path: Path) -> None:
    with SqliteStore(path, ManualClock(), IMPATIENT) as store:
        revision = put(store, "a")
        other = lock(path)
        with pytest.raises(StoreBusyError, match="held it locked for too long"):
            put(store, "b")
        other.close()
        assert put(store, "b") == revision + 1


def test_reads_and_watches_do_not_wait_for_a_writer(path: Path) -> None:
    with SqliteStore(path, ManualClock(), IMPATIENT) as store:
        revision = put(store, "a")
        other = lock(path)
        other.execute("DELETE FROM entry")
        assert keys(store) == ["a"]
        assert store.get("a") is not None
        assert [event.revision for event in store.watch("", 0).poll()] == [revision]
        other.close()


def test_a_lease_that_is_due_while_another_writes_is_expired_right_after(path: Path) -> None:
    clock = ManualClock()
    with SqliteStore(path, clock, IMPATIENT) as store:
        revision = store.transact(puts=[Put(key="a", value=b"", lease=store.grant(3))]).revision
        watch = store.watch("", revision)
        other = lock(path)
        clock.advance(3)
        assert watch.poll() == []
        other.close()
        assert watch.poll() == [DeleteEvent(key="a", revision=revision + 1)]


class InterruptedClock(ManualClock):
    """Raises once when asked for the time: a signal that arrives amid a transaction."""

    is_armed = False

    def now_s(self) -> float:
        if self.is_armed:
            self.is_armed = False
            raise KeyboardInterrupt
        return super().now_s()


def test_an_interrupt_within_a_transaction_takes_it_back_and_frees_the_lock(path: Path) -> None:
    clock = InterruptedClock()
    with SqliteStore(path, clock) as store, SqliteStore(path, ManualClock(), IMPATIENT) as other:
        revision = put(store, "a")
        clock.is_armed = True
        with pytest.raises(KeyboardInterrupt):
            put(store, "b")
        assert put(other, "c") == revision + 1
        assert put(store, "d") == revision + 2


# --- words for SQLite's codes ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (sqlite3.SQLITE_FULL, StoreFullError),
        (sqlite3.SQLITE_IOERR_SHMSIZE, StoreFullError),
        (sqlite3.SQLITE_IOERR_READ, StoreAccessError),
        (sqlite3.SQLITE_CANTOPEN_ISDIR, StoreAccessError),
        (sqlite3.SQLITE_READONLY_DIRECTORY, StoreAccessError),
        (sqlite3.SQLITE_NOTADB, StoreCorruptError),
        (sqlite3.SQLITE_CORRUPT_INDEX, StoreCorruptError),
        (sqlite3.SQLITE_BUSY_RECOVERY, StoreBusyError),
        (sqlite3.SQLITE_MISUSE, StoreError),
    ],
)
def test_each_code_has_its_kind_of_error_and_keeps_sqlites_words(code: int, kind: type[StoreError]) -> None:
    error = sqlite3.OperationalError("words of SQLite")
    error.sqlite_errorcode = code
    error.sqlite_errorname = "SQLITE_NAME"
    told = to_store_error(error, Path("/a/store.db"))
    assert type(told) is kind
    assert str(told).startswith("the store /a/store.db cannot be used: ")
    assert str(told).endswith("(SQLite: words of SQLite, SQLITE_NAME)")
