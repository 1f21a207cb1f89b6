"""The stores that the contract is checked on: each with a clock that the tests move, and many handles."""

import uuid
from collections.abc import Callable
from pathlib import Path

from etcd_backend import EtcdHandle, EtcdWorld
from etcd_server import EtcdServer

from elastane.store.base import LeaseId, Put, Store
from elastane.store.clock import ManualClock
from elastane.store.etcd_address import parse_address
from elastane.store.history import HistoryLimits
from elastane.store.memory import MemoryStore, MemoryWorld
from elastane.store.sqlite import SqliteSettings, SqliteStore


class HookClock(ManualClock):
    """A manual clock that can run something while somebody sleeps, as another process would."""

    def __init__(self) -> None:
        super().__init__(now_s=1000.0)
        self.while_asleep: dict[int, Callable[[], object]] = {}
        self.sleeps = 0
        self.when_moved: Callable[[], object] = lambda: None

    def advance(self, duration_s: float) -> None:
        super().advance(duration_s)
        self.when_moved()

    def sleep(self, duration_s: float) -> None:
        super().sleep(duration_s)
        self.sleeps += 1
        self.while_asleep.pop(self.sleeps, lambda: None)()


class Backend:
    """One store, its clock and a way to open handles on it."""

    def __init__(self, open_handle: Callable[[], Store], clock: HookClock) -> None:
        self.clock = clock
        self._open_handle = open_handle
        self._handles: list[Store] = []

    def open(self) -> Store:
        handle = self._open_handle()
        self.adopt(handle)
        return handle

    def adopt(self, handle: Store) -> None:
        """Close a handle with the back end."""
        self._handles.append(handle)

    def close(self) -> None:
        for handle in self._handles:
            handle.close()


def make_memory(folder: Path, limits: HistoryLimits) -> Backend:
    clock = HookClock()
    world = MemoryWorld(clock, limits)
    return Backend(lambda: MemoryStore(world), clock)


def make_sqlite(folder: Path, limits: HistoryLimits) -> Backend:
    clock = HookClock()
    settings = SqliteSettings(history=limits)
    return Backend(lambda: SqliteStore(folder / "store.db", clock, settings), clock)


def make_etcd(server: EtcdServer, limits: HistoryLimits) -> Backend:
    clock = HookClock()
    world = EtcdWorld(parse_address(f"etcd://{server.host}/{uuid.uuid4().hex}?timeout=30", {}), clock, limits)
    clock.when_moved = world.expire
    backend = Backend(lambda: EtcdHandle(world), clock)
    backend.adopt(world.admin)
    return backend


LOCAL_BACKENDS: dict[str, Callable[[Path, HistoryLimits], Backend]] = {
    "memory": make_memory,
    "sqlite": make_sqlite,
}
BACKENDS = (*LOCAL_BACKENDS, "etcd")


def put(store: Store, key: str, value: bytes = b"", lease: LeaseId | None = None) -> int:
    """Write one key and return the revision."""
    return store.transact(puts=[Put(key=key, value=value, lease=lease)]).revision


def keys(store: Store, prefix: str = "") -> list[str]:
    """Return the keys under a prefix in the order that the store gives."""
    return [entry.key for entry in store.range(prefix).entries]
