"""What a write transaction does to the tables of an embedded store."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from elastane.store.base import Put
from elastane.store.history import HistoryLimits
from elastane.store.local_disk import create_private_file
from elastane.store.sqlite_file import connect, prepare_schema
from elastane.store.sqlite_writer import Writer, compute_bounds, read_entry, renew_lease


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    path = tmp_path / "store.db"
    create_private_file(path)
    made = connect(path, quota_bytes=1 << 20)
    prepare_schema(made, path)
    yield made
    made.close()


def make_writer(connection: sqlite3.Connection, now_s: float = 0.0) -> Writer:
    return Writer(connection, now_s, HistoryLimits())


def test_of_two_that_notice_a_reboot_only_the_first_ends_the_leases(connection: sqlite3.Connection) -> None:
    old = make_writer(connection).grant(10)
    make_writer(connection).move_clock("boot 2")
    new = make_writer(connection).grant(10)
    make_writer(connection).move_clock("boot 2")
    assert [renew_lease(connection, lease, 1.0) for lease in (old, new)] == [False, True]


def test_a_lease_can_be_renewed_until_its_deadline_and_not_at_it(connection: sqlite3.Connection) -> None:
    lease = make_writer(connection).grant(10)
    assert [renew_lease(connection, lease, now_s) for now_s in (9.0, 18.0, 28.0)] == [True, True, False]


def test_counters_count_every_change_of_a_key(connection: sqlite3.Connection) -> None:
    writer = make_writer(connection)
    lease = writer.grant(10)
    writer.transact((), [Put(key="é", value=b"123", lease=lease), Put(key="b", value=b"")], ())
    writer.revoke(lease)
    writer.flush()
    counters = connection.execute("SELECT revision, history_events, history_bytes FROM store").fetchone()
    assert counters == (3, 3, (2 + 3) + 1 + 2)


def test_a_writer_that_changed_no_key_writes_no_counters(connection: sqlite3.Connection) -> None:
    before = connection.total_changes
    writer = make_writer(connection)
    writer.transact((), (), ())
    writer.flush()
    assert connection.total_changes == before
    assert read_entry(connection, "a") is None


@pytest.mark.parametrize(
    ("prefix", "bounds"),
    [
        ("", (b"", b"\xff")),
        ("a/", (b"a/", b"a0")),
        ("\x7f", (b"\x7f", b"\x80")),
        ("é", (b"\xc3\xa9", b"\xc3\xaa")),
        ("\u00ff", (b"\xc3\xbf", b"\xc3\xc0")),
    ],
)
def test_the_bounds_of_a_prefix_are_its_first_and_the_next_byte_string(
    prefix: str, bounds: tuple[bytes, bytes]
) -> None:
    assert compute_bounds(prefix) == bounds
