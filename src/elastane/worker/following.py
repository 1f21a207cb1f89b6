"""Follow all records of one job: a snapshot kept up to date from the store's watch, decoded on change."""

from types import TracebackType
from typing import Self

from elastane.core.view import JobView, build_view
from elastane.model.errors import CompactedError, StoreError
from elastane.model.ids import JobId
from elastane.model.records import JobKeys
from elastane.store.base import PutEvent, Store, Watch


class JobFollower:
    """Keep a picture of one job; belongs to the thread of `store`."""

    def __init__(self, store: Store, job: JobId) -> None:
        self._store = store
        self._job = job
        self._prefix = JobKeys(job).prefix
        self._entries: dict[str, bytes] = {}
        self._revision = 0
        self._watch: Watch | None = None
        self._view: JobView | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._forget()

    def view(self) -> JobView | None:
        """Return the picture as of now; None if the job does not exist.

        Raises:
            StoreError: the store cannot be reached. The next call reads everything anew.
        """
        try:
            if self._watch is None:
                self._read_all()
            elif not self._read_news():
                return self._view
        except StoreError:
            self._forget()
            raise
        self._view = build_view(self._job, self._revision, self._entries.items())
        return self._view

    def _forget(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()

    def _read_all(self) -> None:
        snapshot = self._store.range(self._prefix)
        self._entries = {entry.key: entry.value for entry in snapshot.entries}
        self._revision = snapshot.revision
        self._watch = self._store.watch(self._prefix, snapshot.revision)

    def _read_news(self) -> bool:
        assert self._watch is not None
        try:
            events = self._watch.poll()
        except CompactedError:
            self._forget()
            self._read_all()
            return True
        for event in events:
            if isinstance(event, PutEvent):
                self._entries[event.key] = event.entry.value
            else:
                self._entries.pop(event.key, None)
            self._revision = event.revision
        return bool(events)
