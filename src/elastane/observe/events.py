"""The event log of a job: `events.jsonl`, one JSON object a line, appended by every process of the job.

It is the truth that the command line, the dashboard and the tests read. A line is written with one
`write` on a file opened for appending, so lines of several processes never mix. What an event means is
documented in `docs/events.md`; this module knows only their common fields.
"""

import logging
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

EVENTS_FILE = "events.jsonl"

_log = logging.getLogger(__name__)


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Describe something that happened, or was decided, in a job."""

    at_s: float
    """Wall clock, seconds since the epoch."""
    kind: str
    """What happened, for example "switched"."""
    source: str
    """The worker, agent or command that wrote it."""
    fields: dict[str, Any] = {}
    """What else is known, by name; every decision has a `reason`."""


class EventLog:
    """Append events to a job's log; safe to use from several threads and processes.

    A disk that refuses an event stops nobody: the event is lost, and the process's own log says so.
    """

    __slots__ = ("_descriptor", "_source", "_torn", "path")

    def __init__(self, directory: Path, source: str) -> None:
        """Open the log in the job's `directory` for writing as `source`.

        Raises:
            OSError: the folder or file cannot be written.
        """
        self.path = directory / EVENTS_FILE
        self._source = source
        self._torn = False
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def append(self, kind: str, **fields: Any) -> None:
        """Write one event, stamped with the wall clock, unless the disk refuses it."""
        event = Event(at_s=time.time(), kind=kind, source=self._source, fields=fields)
        # What was left of a line by a disk that filled up within it must not swallow the next one.
        line = (b"\n" if self._torn else b"") + msgspec.json.encode(event) + b"\n"
        try:
            self._torn = os.write(self._descriptor, line) < len(line)
        except OSError as error:
            _log.warning("event %s %s could not be logged: %s", kind, fields, error)

    def close(self) -> None:
        """Close the log; closing twice does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def read_events(directory: Path) -> Iterator[Event]:
    """Yield the events of a job in the order they were written; a torn last line is left out."""
    path = directory / EVENTS_FILE
    if not path.exists():
        return
    with path.open("rb") as lines:
        for line in lines:
            if line.endswith(b"\n"):
                yield msgspec.json.decode(line, type=Event)


def summarise(event: Event) -> Mapping[str, Any]:
    """Return the event as one flat mapping, as `--json` prints it."""
    return {"at_s": event.at_s, "kind": event.kind, "source": event.source, **event.fields}
