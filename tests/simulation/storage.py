"""The store as simulated processes see it: the real in-memory store behind a network with delays.

Every request takes time to arrive and its answer time to return; a process sees changes a moment after
they happened. Cuts and outages hold requests, answers and news back. Who has waited for too long is told
that the store cannot be reached: his request may then have been applied, may get lost, or may still be
applied later, even after others that he has made since. It is applied once or never.
"""

from collections.abc import Callable, Generator
from contextlib import suppress
from random import Random
from typing import Any, TypeVar

from elastane.core.view import JobView, build_view
from elastane.jobs.requests import JobPicture, read_picture
from elastane.model.errors import StoreError, StoreUnreachableError
from elastane.model.ids import JobId
from elastane.model.records import JobKeys
from elastane.store.memory import MemoryStore, MemoryWorld

from .loop import Loop, LoopClock, Process

T = TypeVar("T")

JOB = JobId("sim")
KEYS = JobKeys(JOB)


REQUEST_TIMEOUT_S = 1.0
"""After so long a request is given up, as etcd's client does."""


class Client:
    """Hold how one process reaches the store; `patient`: it waits for an answer for as long as it takes."""

    __slots__ = ("cut_until_s", "lag_s", "patient", "seen", "wake")

    def __init__(self, lag_s: float, wake: Callable[[], object], *, patient: bool = False) -> None:
        self.patient = patient
        self.lag_s = lag_s
        self.seen = 0
        self.cut_until_s = 0.0
        self.wake = wake


class Storage:
    """Be one store, its clients, and all its past states."""

    def __init__(self, loop: Loop, rng: Random, watch: Callable[[str], None]) -> None:
        """Begin empty; `watch` is called with the author after every change."""
        self._loop = loop
        self._rng = rng
        self._watch = watch
        self.memory = MemoryWorld(LoopClock(loop))
        self.store = MemoryStore(self.memory)
        self.down_until_s = 0.0
        self.delay_s = 0.002
        self._clients: dict[str, tuple[Process, Client]] = {}
        self._revisions: list[tuple[int, float, dict[str, bytes]]] = []
        self._views: dict[int, JobView | None] = {}
        self._known = 0
        self._picture: tuple[int, JobPicture] | None = None

    def connect(self, process: Process, client: Client) -> None:
        """Let a process hear of changes."""
        self._clients[process.name] = (process, client)

    def request(
        self, client: Client, work: Callable[[MemoryStore], T], author: str
    ) -> Generator[Any, Any, T]:
        """Do `work` at the store: an activity that returns its result or raises its error.

        Raises:
            StoreUnreachableError: it took too long; nobody knows what became of the work.
        """
        give_up_at_s = self._loop.now_s + (float("inf") if client.patient else REQUEST_TIMEOUT_S)
        if not (yield from self._travel(client, give_up_at_s)):
            if self._rng.random() < 0.5:
                self._land_late(client, work, author)
            raise StoreUnreachableError("the request got no answer")
        try:
            result = self.apply(work, author)
        finally:
            arrived = yield from self._travel(client, give_up_at_s)
        if not arrived:
            raise StoreUnreachableError("the answer got lost")
        return result

    def _travel(self, client: Client, give_up_at_s: float) -> Generator[Any, Any, bool]:
        """Be on the way; tell whether it came to an end in time."""
        yield self._rng.random() * (self.delay_s + client.lag_s)
        while (blocked_s := self._blocked_s(client)) > 0:
            left_s = give_up_at_s - self._loop.now_s
            if blocked_s > left_s:
                yield max(0.0, left_s)
                return False
            yield blocked_s + 0.001
        return self._loop.now_s < give_up_at_s

    def _blocked_s(self, client: Client) -> float:
        return max(client.cut_until_s, self.down_until_s) - self._loop.now_s

    def _land_late(self, client: Client, work: Callable[[MemoryStore], object], author: str) -> None:
        """Let a request that was given up arrive at some time after all."""

        def land() -> None:
            if self._blocked_s(client) <= 0:
                with suppress(StoreError):
                    self.apply(work, author)

        self._loop.call_after(max(0.0, self._blocked_s(client)) + self._rng.random() * 0.5, land)

    def apply(self, work: Callable[[MemoryStore], T], author: str) -> T:
        """Do `work` now."""
        self.expire()
        try:
            return work(self.store)
        finally:
            self._spread(author)

    def expire(self) -> None:
        """Let leases end whose time has come."""
        self.memory.read_entry(KEYS.spec)
        self._spread("expiry")

    def expire_after(self, ttl_s: float) -> None:
        """Look at the leases when one that was just renewed may end."""
        self._loop.call_after(ttl_s + 0.001, self.expire)

    def _spread(self, author: str) -> None:
        revision = self.memory.revision
        if revision == self._known:
            return
        self._known = revision
        snapshot = self.store.range(KEYS.prefix)
        entries = {entry.key: entry.value for entry in snapshot.entries}
        self._revisions.append((revision, self._loop.now_s, entries))
        self._watch(author)
        for name, (process, client) in list(self._clients.items()):
            if not process.alive:
                del self._clients[name]
                continue
            self._loop.call_after(client.lag_s + self._rng.random() * 0.004, client.wake, process)

    def read_picture(self) -> JobPicture:
        """Return the job as `jobs.requests.read_picture` does; read anew only where something has changed."""
        if self._picture is None or self._picture[0] != self.memory.revision:
            picture = read_picture(self.store, JOB)
            self._picture = self.memory.revision, picture
        return self._picture[1]

    @property
    def position(self) -> int:
        """Return the number of the present state, for a client that reads it now."""
        return len(self._revisions) - 1

    @property
    def newest(self) -> JobView | None:
        """Return the picture as it is now."""
        return self._decode(len(self._revisions) - 1) if self._revisions else None

    def view(self, client: Client) -> JobView | None:
        """Return the picture that a process has by now."""
        now_s = self._loop.now_s
        if max(client.cut_until_s, self.down_until_s) <= now_s:
            index = len(self._revisions) - 1
            while index > client.seen and self._revisions[index][1] + client.lag_s > now_s:
                index -= 1
            client.seen = max(client.seen, index)
        return self._decode(client.seen)

    def _decode(self, index: int) -> JobView | None:
        if index not in self._views:
            revision, _, entries = self._revisions[index]
            self._views[index] = build_view(JOB, revision, entries.items())
        return self._views[index]
