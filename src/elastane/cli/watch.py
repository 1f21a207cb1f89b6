"""Look at jobs: read store, metrics and events and hand them to the pure snapshot. Changes nothing."""

import logging
from collections import deque
from pathlib import Path

import msgspec

from elastane.cli.folder import find_folder
from elastane.cli.home import Home
from elastane.jobs.registry import list_jobs
from elastane.jobs.requests import read_picture
from elastane.model.errors import JobNotFoundError
from elastane.model.ids import WorkerId
from elastane.model.records import JobInfo
from elastane.observe.events import EVENTS_FILE, Event
from elastane.observe.metrics import MetricsRecord, MetricsTail, read_last_metrics
from elastane.observe.snapshot import JobSnapshot, compute_snapshot
from elastane.observe.tail import LineTail
from elastane.store.base import Store

KEPT_METRICS = 500
"""Steps looked at for throughput: ten seconds of training at 50 steps per second."""

log = logging.getLogger(__name__)


class EventTail:
    """Read a job's events as they are written; a line that cannot be read is left out, with a remark."""

    __slots__ = ("_lines",)

    def __init__(self, directory: Path) -> None:
        self._lines = LineTail(directory / EVENTS_FILE)

    def poll(self) -> list[Event]:
        """Return the events since the last call, in the order they were written."""
        events = []
        for line in self._lines.poll():
            try:
                events.append(msgspec.json.decode(line, type=Event))
            except msgspec.DecodeError as error:
                log.warning("a line of %s cannot be read and is left out: %s", self._lines.path, error)
        return events


class JobWatch:
    """Follow one job: each look costs only what is new."""

    __slots__ = ("_events", "_metrics", "_new_events", "_new_metrics", "_store", "info")

    def __init__(self, store: Store, info: JobInfo, folder: Path | None = None) -> None:
        """Follow the job of `info`.

        Args:
            store: must be the calling thread's own handle.
            info: the job.
            folder: where its files are on this machine; None: where the job was made.
        """
        directory = folder or Path(info.directory)
        self.info = info
        self._store = store
        self._events: list[Event] = []
        self._new_events = EventTail(directory)
        self._metrics: deque[MetricsRecord] = deque(maxlen=KEPT_METRICS)
        self._new_metrics = MetricsTail(directory, last=KEPT_METRICS)

    def look(self) -> JobSnapshot:
        """Return the job as it is now.

        Raises:
            StoreError: the store cannot be read.
        """
        view = read_picture(self._store, self.info.job).view
        self._metrics.extend(self._new_metrics.poll())
        self._events += self._new_events.poll()
        return compute_snapshot(self.info, view, list(self._metrics), self._events)


def look_at_all(store: Store, home: Home) -> tuple[JobSnapshot, ...]:
    """Return all jobs of the store, the oldest first, without their events.

    Of those whose files are on other machines it tells what the store knows.
    """
    return tuple(
        compute_snapshot(
            info,
            read_picture(store, info.job).view,
            read_last_metrics(find_folder(info, home) or Path(info.directory), KEPT_METRICS),
            (),
        )
        for info in list_jobs(store)
    )


def resolve_worker(snapshot: JobSnapshot, text: str) -> WorkerId:
    """Return the worker with this id, or the only one whose id begins so.

    Raises:
        JobNotFoundError: none or several fit; the message says which exist.
    """
    workers = [worker.worker for worker in snapshot.workers if worker.phase != "lost"]
    fitting = [worker for worker in workers if worker == text] or [
        worker for worker in workers if text and worker.startswith(text)
    ]
    if len(fitting) == 1:
        return fitting[0]
    present = ", ".join(workers) or "none"
    if fitting:
        raise JobNotFoundError(f"{text!r} fits several workers of job {snapshot.job}: {', '.join(fitting)}")
    raise JobNotFoundError(f"job {snapshot.job} has no worker {text!r}; present: {present}")
