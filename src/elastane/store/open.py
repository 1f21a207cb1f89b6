"""Turn a store's URL into a handle: the only place that knows which schemes there are.

- sqlite:///absolute/path: a file on a local disk; created, with its folders, if `create` says so
- memory://name: a store that lives as long as this process; for tests of one process
- etcd://host:port,host:port/namespace: a real etcd, for many machines; etcds:// with TLS (etcd_address.py)
"""

import importlib.util
import os
import threading
from collections.abc import Callable
from pathlib import Path

from elastane.model.errors import StoreAddressError
from elastane.store.base import Store
from elastane.store.clock import Clock, MonotonicClock
from elastane.store.etcd_address import SCHEMES, hide_credentials, parse_address
from elastane.store.memory import MemoryStore, MemoryWorld
from elastane.store.sqlite import SqliteSettings, SqliteStore

_worlds: dict[str, MemoryWorld] = {}
_worlds_lock = threading.Lock()


def open_store(
    url: str, *, create: bool = True, clock: Clock | None = None, patience_s: float | None = None
) -> Store:
    """Open a handle for the calling thread; every thread and every process opens its own.

    `clock` is the one by which leases expire, the machine's unless a test brings another; a memory store
    keeps that of its first handle; etcd has its own. `patience_s` is how long a call may wait for a lock that
    others hold; etcd's calls are bounded by its URL. etcd's user and password are taken from the environment
    if the URL has none: this is the one place below the command line that looks there, because a secret must
    not travel in records and arguments as URLs do. Raises StoreAddressError for a URL that names no store,
    StoreAccessError, StoreFullError or StoreCorruptError if it cannot be used, StoreBusyError if others keep
    it locked, StoreUnreachableError if it does not answer.
    """
    scheme, separator, rest = url.partition("://")
    if separator and scheme in SCHEMES:
        return _open_etcd(url)
    opener = _OPENERS.get(scheme) if separator else None
    if opener is None:
        known = ", ".join(f"{name}://" for name in sorted([*_OPENERS, *SCHEMES]))
        raise StoreAddressError(
            f"the store URL {hide_credentials(url)!r} has no known scheme; use one of {known}"
        )
    return opener(rest, clock or MonotonicClock(), create, patience_s)


def _open_etcd(url: str) -> Store:
    address = parse_address(url, os.environ)
    if importlib.util.find_spec("h11") is None:
        raise StoreAddressError(
            f"the store {address.url} needs the package h11, which is not installed; "
            "pip install 'elastane[etcd]'"
        )
    from elastane.store.etcd import EtcdStore  # noqa: PLC0415 - only those who use etcd need what it imports

    return EtcdStore(address)


def _open_sqlite(rest: str, clock: Clock, create: bool, patience_s: float | None) -> Store:
    if not rest.startswith("/"):
        raise StoreAddressError(
            f"sqlite://{rest} has no absolute path; write sqlite:///absolute/path/store.db"
        )
    # Other tools write four slashes before an absolute path; SQLite would take //host for the name of one.
    settings = SqliteSettings() if patience_s is None else SqliteSettings(busy_timeout_s=patience_s)
    return SqliteStore(Path("/" + rest.lstrip("/")), clock, settings, create=create)


def _open_memory(rest: str, clock: Clock, create: bool, patience_s: float | None) -> Store:
    del patience_s  # nobody holds a lock for long
    if not rest:
        raise StoreAddressError("memory:// names no store; write memory://name")
    with _worlds_lock:
        if not create and rest not in _worlds:
            raise StoreAddressError(f"there is no store memory://{rest} in this process; check its name")
        world = _worlds.setdefault(rest, MemoryWorld(clock))
    return MemoryStore(world, f"memory://{rest}")


_OPENERS: dict[str, Callable[[str, Clock, bool, float | None], Store]] = {
    "memory": _open_memory,
    "sqlite": _open_sqlite,
}
