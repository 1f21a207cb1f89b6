"""What the started processes do: count together, write pairs without end, stop amid a transaction."""

import signal
import sqlite3
import sys
from typing import NoReturn

from elastane.store.base import ModRevisionIs, Put, Store
from elastane.store.open import open_store


def count(store: Store, increments: int) -> None:
    """Add one to the counter `increments` times, by compare and swap."""
    done = 0
    while done < increments:
        entry = store.get("counter")
        value, seen = (int(entry.value), entry.mod_revision) if entry else (0, 0)
        result = store.transact(
            [ModRevisionIs(key="counter", revision=seen)], [Put(key="counter", value=b"%d" % (value + 1))]
        )
        done += result.succeeded


def write_pairs(store: Store) -> NoReturn:
    """Write the same number to two keys in each transaction, until killed, under a lease."""
    lease = store.grant(1.0)
    number = 0
    while True:
        value = b"%d" % number
        store.transact(
            puts=[Put(key="pair/a", value=value, lease=lease), Put(key="pair/b", value=value, lease=lease)]
        )
        store.renew(lease)
        number += 1


def hold_lock(path: str) -> NoReturn:
    """Begin to write past the store's code, say so, and stop before the commit, until killed."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("DELETE FROM entry")
    connection.execute("UPDATE store SET revision = revision + 1000")
    print("locked", flush=True)
    while True:
        signal.pause()


if __name__ == "__main__":
    role, url = sys.argv[1:3]
    if role == "hold_lock":
        hold_lock(url.removeprefix("sqlite://"))
    with open_store(url) as handle:
        if role == "count":
            count(handle, int(sys.argv[3]))
        else:
            write_pairs(handle)
