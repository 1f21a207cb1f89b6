"""The metrics of a job: `metrics.jsonl`, one JSON object for each committed step, in order.

One process writes at a time: the main worker. When another worker becomes the main one it opens the log
anew, asks `last_step` where the file ends and fills what the old one still held in memory from its own
last records (`recover`). So the file has no holes and no doubles, whoever wrote it; since the numbers of
a step do not depend on who computed it, it does not matter either. Numbers read back bit for bit.

This module knows nothing of training and decides nothing.
"""

import logging
import math
import os
import shutil
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

import msgspec

from elastane.observe.tail import LineTail, read_last_lines

METRICS_FILE = "metrics.jsonl"
FLUSH_INTERVAL_S = 0.2
"""Shortest time between two writes: a person who watches sees no delay, and a write costs little."""
MAX_PENDING_LINES = 100_000
"""Lines kept in memory while the disk refuses them (about 20 MB); beyond it the oldest are dropped."""
COPY_BYTES = 1 << 20
USUAL_NAN = struct.pack(">d", math.nan).hex()

log = logging.getLogger(__name__)


class MetricsRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what is known of one committed step."""

    step: int
    """Number of the step; the job's first is 0."""
    epoch: int
    at_s: float
    """Wall clock of the commit, seconds since the epoch."""
    generation: int
    workers: int
    step_time_s: float
    samples: int = 0
    """Samples that all virtual workers together consumed; 0 if it is not known."""
    lr_scale: float = 1.0
    """By what the learning rates were multiplied in this step, since its batch was not the one they were
    chosen for."""
    values: dict[str, float] = {}
    """What the script logged, by name."""
    shards: tuple[int, int, int] | msgspec.UnsetType = msgspec.UNSET
    """The epoch's shards that were todo, doing and done after the step; absent if none are handed out."""


class _DiskRecord(MetricsRecord, frozen=True, kw_only=True):
    """Hold a record as the file has it: JSON knows no infinities and no NaN, so they are text."""

    values: dict[str, float | str] = {}  # type: ignore[assignment]


class MetricsLog:
    """Append the records of committed steps; for the one main worker of a job, and one thread.

    A disk that refuses writes does not end the training: lines wait in memory and are tried again.
    """

    __slots__ = (
        "_clock",
        "_descriptor",
        "_flushed_at_s",
        "_last_step",
        "_pending",
        "_refused",
        "_torn",
        "path",
    )

    def __init__(self, directory: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Open the log in the job's `directory` and cut off a torn last line.

        Raises:
            OSError: the folder or file cannot be written.
        """
        self.path = directory / METRICS_FILE
        self._clock = clock
        lines, whole_bytes = read_last_lines(self.path, 1)
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._descriptor, whole_bytes)
        record = decode_record(lines[-1]) if lines else None
        self._last_step = record.step if record else None
        self._pending: list[bytes] = []
        self._torn = b""
        self._flushed_at_s = clock()
        self._refused: OSError | None = None

    def last_step(self) -> int | None:
        """Return the newest step that is in the file or waits to be written; None if there is none."""
        return self._last_step

    def append(self, record: MetricsRecord) -> None:
        """Add one step; a step that the log already has is left out.

        Costs a few microseconds: the line waits in memory and is written with others, at most
        every `FLUSH_INTERVAL_S`.
        """
        if self._last_step is not None and record.step <= self._last_step:
            return
        self._last_step = record.step
        self._pending.append(encode_record(record))
        if self._clock() - self._flushed_at_s >= FLUSH_INTERVAL_S:
            self.flush()

    def recover(self, records: Iterable[MetricsRecord]) -> int:
        """Fill the gap that the previous main worker left with this worker's own last records.

        Args:
            records: the last steps that this worker took part in, in order; those that the log
                already has are left out.

        Returns:
            How many steps between the log's end and the records are missing for good; 0 is the rule.
        """
        missing = 0
        for record in records:
            expected = 0 if self._last_step is None else self._last_step + 1
            missing += max(0, record.step - expected)
            self.append(record)
        self.flush()
        return missing

    def flush(self) -> None:
        """Write what waits in memory; if the disk refuses, keep it and say so once in the log."""
        self._flushed_at_s = self._clock()
        data = self._torn + b"".join(self._pending)
        if not data:
            return
        try:
            written = os.write(self._descriptor, data)
        except OSError as error:
            self._note_refusal(error)
            return
        if self._refused is not None and written == len(data):
            log.warning("%s can be written again; nothing was lost", self.path)
            self._refused = None
        self._torn = data[written:]
        self._pending.clear()

    def close(self) -> None:
        """Write what waits and close; closing twice does nothing."""
        if self._descriptor < 0:
            return
        self.flush()
        if self._torn or self._pending:
            log.error("the last lines of %s are lost: the disk refused them (%s)", self.path, self._refused)
        os.close(self._descriptor)
        self._descriptor = -1

    def _note_refusal(self, error: OSError) -> None:
        if self._refused is None or self._refused.errno != error.errno:
            log.warning("%s cannot be written (%s); training goes on, free some space", self.path, error)
        self._refused = error
        if len(self._pending) > MAX_PENDING_LINES:
            del self._pending[: len(self._pending) - MAX_PENDING_LINES]


class MetricsTail:
    """Read a job's metrics as they are written."""

    __slots__ = ("_last_step", "_lines")

    def __init__(self, directory: Path, after_step: int = -1, last: int | None = None) -> None:
        """Read the log in the job's `directory`.

        Args:
            directory: the job's folder.
            after_step: leave this step and those before it out.
            last: begin with the last so many lines; None = with the first line.
        """
        self._lines = LineTail(directory / METRICS_FILE)
        self._last_step = after_step
        if last is not None:
            self._lines.skip_to_last(last)

    def poll(self) -> list[MetricsRecord]:
        """Return the records that appeared since the last call, each step once and in order.

        A main worker that was cut off, and wakes up, may write steps that its successor has written
        already: they say the same and are left out.
        """
        records = []
        for line in self._lines.poll():
            record = decode_record(line)
            if record is not None and record.step > self._last_step:
                self._last_step = record.step
                records.append(record)
        return records


def read_metrics(directory: Path, after_step: int = -1) -> list[MetricsRecord]:
    """Return the records after `after_step` that a job's log holds; a torn last line is left out."""
    return MetricsTail(directory, after_step).poll()


def read_last_metrics(directory: Path, count: int) -> list[MetricsRecord]:
    """Return the last `count` records of a job's log, quickly however long it is."""
    return MetricsTail(directory, last=count).poll()


def follow_metrics(
    directory: Path, until: Callable[[], bool], wait: Callable[[], object], after_step: int = -1
) -> Iterator[MetricsRecord]:
    """Yield records as they appear, calling `wait` whenever there is none, until `until()` is true.

    What was written before `until` became true is still given out.
    """
    tail = MetricsTail(directory, after_step)
    done = False
    while not done:
        done = until()
        records = tail.poll()
        yield from records
        if not records and not done:
            wait()


def rewind_metrics(directory: Path, step: int) -> int:
    """Cut off what a job's log says of `step` and later steps, since they are going to be repeated.

    What is kept is copied to a new file: a main worker of before that still lives writes into the old one.

    Returns:
        How many steps were cut off.

    Raises:
        OSError: the log cannot be read or written.
    """
    path = directory / METRICS_FILE
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return 0
    with file:
        kept_bytes = _find_step(file, step)
        file.seek(kept_bytes)
        repeated = sum(1 for line in file if line.endswith(b"\n"))
        if not repeated:
            return 0
        file.seek(0)
        draft = path.with_suffix(".draft")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as copy:
            shutil.copyfileobj(_Head(file, kept_bytes), copy, COPY_BYTES)
        draft.replace(path)
    return repeated


class _Head:
    """Be the first bytes of a file."""

    def __init__(self, file: IO[bytes], count: int) -> None:
        self._file = file
        self._left = count

    def read(self, count: int = -1, /) -> bytes:
        data = self._file.read(min(count, self._left) if count >= 0 else self._left)
        self._left -= len(data)
        return data


def _find_step(file: IO[bytes], step: int) -> int:
    """Return where the first line of `step` or a later one begins: by bisection, since steps only rise."""
    low, high = 0, file.seek(0, os.SEEK_END)
    while low < high:
        middle = (low + high) // 2
        file.seek(max(low, middle - 1))
        if middle > low:
            file.readline()  # the rest of a line that begins before `middle`
        begin = file.tell()
        line = file.readline()
        record = decode_record(line) if line.endswith(b"\n") else None
        if begin >= high or record is None or record.step >= step:
            high = middle
        else:
            low = begin + len(line)
    return low


def encode_record(record: MetricsRecord) -> bytes:
    """Return the record as one line of JSON, line end included."""
    if not all(map(math.isfinite, record.values.values())):
        known = {name: getattr(record, name) for name in record.__struct_fields__ if name != "values"}
        values = {name: _to_text(value) for name, value in record.values.items()}
        return msgspec.json.encode(_DiskRecord(**known, values=values)) + b"\n"
    return msgspec.json.encode(record) + b"\n"


def decode_record(line: bytes) -> MetricsRecord | None:
    """Return the record that a line holds; None, and a line in the log, if it holds none."""
    try:
        disk = msgspec.json.decode(line, type=_DiskRecord)
        values = {name: _from_text(value) for name, value in disk.values.items()}
    except (msgspec.DecodeError, struct.error, ValueError) as error:
        log.warning("a line of the metrics cannot be read and is left out: %s", error)
        return None
    known = {name: getattr(disk, name) for name in disk.__struct_fields__ if name != "values"}
    return MetricsRecord(**known, values=values)


def _to_text(value: float) -> float | str:
    if math.isfinite(value):
        return value
    bits = struct.pack(">d", value).hex()
    # Other NaNs than the usual one carry bits (a sign, a payload) that their name does not tell.
    return f"nan:{bits}" if math.isnan(value) and bits != USUAL_NAN else repr(value)


def _from_text(value: float | str) -> float:
    if isinstance(value, float):
        return value
    name, _, bits = value.partition(":")
    if bits and name == "nan":
        (number,) = struct.unpack(">d", bytes.fromhex(bits))
        return float(number)
    return float(value)
