"""Read a trace file row by row: find its format, keep the usable rows, count the rest, sort by submission.

The file streams through; only kept rows stay in memory (about 0.4 KB each), and `Selection` bounds how many.
What a row means is the format's business; what a job means for a cluster is decided later.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path

from elastane.model.errors import ConfigError
from elastane.sim.readers.fields import BadCell, NotAJob
from elastane.sim.readers.formats import (
    Layout,
    detect_layout,
    explain_unknown,
    format_named,
    lay_out,
    split_cells,
)
from elastane.sim.readers.lines import read_lines
from elastane.sim.readers.plain import PLAIN
from elastane.sim.readers.rows import LeftOutCounter, Trace, TraceRow

DEFAULT_MOST_JOBS = 1_000_000
"""Jobs kept unless told otherwise: about 2 GB and an hour of simulation, what a laptop still does."""

KILOBYTES_PER_JOB = 2.0
"""Memory of one job in a simulation, all its records together (measured on the 109k Philly trace)."""

_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Say which part of a trace to keep: days since its first submission, one tenant, how many jobs."""

    from_day: float = 0.0
    to_day: float = math.inf
    tenant: str | None = None
    most_jobs: int = DEFAULT_MOST_JOBS

    @property
    def has_window(self) -> bool:
        """Say whether a part of the time is cut out."""
        return self.from_day > 0 or self.to_day < math.inf


EVERYTHING = Selection()
_NO_LAYOUT = Layout(format=PLAIN, delimiter=",", columns=())


def read_trace(path: Path, format_name: str | None = None, selection: Selection = EVERYTHING) -> Trace:
    """Return the usable jobs of the trace in `path`, in order of submission, the first at second 0.

    Raises ConfigError when nothing useful can be done: an unreadable or empty file, an unknown format,
    missing columns, no usable row, or more jobs than `selection.most_jobs`.
    """
    reading = _read_once(path, format_name, _Reading(path=path, selection=selection))
    if reading.earliest_s < reading.zero_s:
        # Days count from the earliest submission, and that one was not at the top: read again, knowing it.
        again = _Reading(path=path, selection=selection, zero_s=reading.earliest_s)
        reading = _read_once(path, format_name, again)
    return reading.finish()


def _read_once(path: Path, format_name: str | None, reading: _Reading) -> _Reading:
    lines = read_lines(path)
    first = next((line for line in _counted(lines, reading) if line.strip()), None)
    if first is None:
        raise ConfigError(f"{path}: the file is empty; a trace has a header line and one line for each job.")
    layout = lay_out(format_named(format_name), first, str(path)) if format_name else detect_layout(first)
    if layout is None:
        raise explain_unknown(first, str(path))
    reading.start(layout, first)
    try:
        for cells in split_cells(_counted(lines, reading), layout.delimiter):
            reading.add(cells)
    except csv.Error as error:
        raise ConfigError(f"{path}: line {reading.line} cannot be split into cells ({error}).") from error
    return reading


def _counted(lines: Iterator[str], reading: _Reading) -> Iterator[str]:
    """Pass the lines on, keeping the number of the current one."""
    for line in lines:
        reading.line += 1
        yield line


@dataclass(slots=True, kw_only=True)
class _Reading:
    """Hold what is known about a file while it streams past."""

    path: Path
    selection: Selection
    line: int = 0
    layout: Layout = _NO_LAYOUT
    rows: list[TraceRow] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    left_out: LeftOutCounter = field(default_factory=LeftOutCounter)
    notes: list[str] = field(default_factory=list)
    repeated_headers: int = 0
    disorder: int = 0
    jobs: int = 0
    zero_s: float = math.inf
    earliest_s: float = math.inf
    latest_s: float = -math.inf
    previous_s: float = -math.inf
    others: Counter[str] = field(default_factory=Counter)

    def start(self, layout: Layout, first: str) -> None:
        """Take the layout and the first line, which is a header or already a row."""
        self.layout = layout
        if layout.format.header is not None:
            self.add(first.split(layout.delimiter))
            return
        columns = layout.columns
        doubled = sorted({name for name in columns if name and columns.count(name) > 1})
        if doubled:
            raise ConfigError(
                f"{self.path}: line 1 names column(s) {', '.join(doubled)} twice; rename one of each."
            )
        surprising = [name for name in layout.format.surprising(frozenset(columns)) if name]
        if surprising:
            self.notes.append(f"column(s) ignored: {', '.join(surprising)}")

    def add(self, cells: list[str]) -> None:
        """Take the cells of one line: keep its job or count why not."""
        if not cells or (len(cells) == 1 and not cells[0].strip()):
            return
        if self._repeats_header(cells):
            self.repeated_headers += 1
            return
        try:
            row = self._row(cells)
        except BadCell as bad:
            found = f" ({bad.found.strip()[:40]!r})" if bad.found.strip() else ""
            self.left_out.add(bad.reason, f"line {self.line}{found}", expected=isinstance(bad, NotAJob))
            return
        if not self._is_in_window(row.submit_s):
            return
        self.seen.add(row.job_id)
        if self.selection.tenant not in (None, row.tenant):
            self.others[row.tenant] += 1
            return
        self.rows.append(row)
        if len(self.rows) > self.selection.most_jobs:
            raise self._too_many()

    def finish(self) -> Trace:
        """Sort, cut the window out, and return the trace."""
        if not self.rows:
            raise self._nothing_usable()
        if self.others:
            self.notes.append(
                f"only tenant {self.selection.tenant!r}; {self.others.total():,} job(s) of others left aside"
            )
        if self.disorder:
            self.notes.append(f"{self.disorder:,} row(s) were not in order of submission; sorted")
        if self.repeated_headers:
            self.notes.append(f"{self.repeated_headers:,} repeated header line(s) passed over")
        if self.selection.has_window:
            chosen = self.selection
            self.notes.append(
                f"days {chosen.from_day:g} to {chosen.to_day:g} of the trace: {len(self.rows):,} of "
                f"{self.jobs:,} jobs"
            )
        rows, self.rows = sorted(self.rows, key=attrgetter("submit_s")), []
        first_s = rows[0].submit_s
        return Trace(
            name=self.path.name,
            format=self.layout.format.name,
            rows=tuple(_shifted(row, first_s) for row in rows),
            left_out=self.left_out.summary(),
            notes=tuple(self.notes),
            profile_set=self.layout.format.profile_set,
            origin=_describe_origin(first_s, self.layout.format.clock),
        )

    def _row(self, cells: list[str]) -> TraceRow:
        columns = self.layout.columns
        if len(cells) != len(columns):
            spare = len(cells) == len(columns) + 1 and not cells[-1].strip()  # `sacct -p` ends lines with "|"
            if not spare:
                raise BadCell(f"the line does not have {len(columns)} cells", f"{len(cells)} cells")
        row = self.layout.format.to_row(self.line, dict(zip(columns, cells, strict=False)))
        if row.job_id in self.seen:
            raise BadCell("job id occurs twice (the first one is kept)", row.job_id)
        return row

    def _repeats_header(self, cells: list[str]) -> bool:
        """Say whether the line is the header again, as in files that were joined with `cat`."""
        if self.layout.format.header is not None or cells[0].strip().lower() != self.layout.columns[0]:
            return False
        return tuple(cell.strip().lower() for cell in cells) == self.layout.columns

    def _is_in_window(self, submit_s: float) -> bool:
        """Take note of a usable row's submission, and say whether the selection wants it."""
        self.jobs += 1
        self.disorder += submit_s < self.previous_s
        self.previous_s = submit_s
        self.earliest_s = min(self.earliest_s, submit_s)
        self.latest_s = max(self.latest_s, submit_s)
        if self.zero_s == math.inf:
            self.zero_s = submit_s
        chosen = self.selection
        day = (submit_s - self.zero_s) / _DAY_S
        return not chosen.has_window or chosen.from_day <= day < chosen.to_day

    def _nothing_usable(self) -> ConfigError:
        if self.jobs and not self.others:
            chosen = self.selection
            return ConfigError(
                f"{self.path}: no job was submitted in days {chosen.from_day:g} to {chosen.to_day:g}; "
                f"the trace covers days 0 to {(self.latest_s - self.earliest_s) / _DAY_S:.1f}. "
                "Choose another --days."
            )
        if self.others:
            names = ", ".join(repr(name) for name, _ in self.others.most_common(10))
            return ConfigError(
                f"{self.path}: no job belongs to tenant {self.selection.tenant!r}; "
                f"the busiest tenants are {names}."
            )
        reasons = "; ".join(
            f"{entry.count:,} x {entry.reason} ({', '.join(entry.examples[:3])})"
            for entry in self.left_out.summary()
        )
        detail = (
            f"{self.left_out.total():,} row(s) left out: {reasons}"
            if reasons
            else "it has a header and no rows"
        )
        return ConfigError(f"{self.path}: no usable job in the file; {detail}.")

    def _too_many(self) -> ConfigError:
        most = self.selection.most_jobs
        gigabytes = most * KILOBYTES_PER_JOB / 1e6
        return ConfigError(
            f"{self.path}: more than {most:,} jobs (reached at line {self.line:,}). A simulation needs "
            f"about {KILOBYTES_PER_JOB:g} KB of memory for each job and parallel run: {gigabytes:.1f} GB "
            f"for {most:,}. Take a part with --days FROM:TO or --tenant NAME, or raise --most-jobs if "
            "the machine has room."
        )


def _shifted(row: TraceRow, first_s: float) -> TraceRow:
    """Return the row with its submission counted from `first_s`."""
    if first_s == 0:
        return row
    return TraceRow(
        line=row.line,
        job_id=row.job_id,
        submit_s=row.submit_s - first_s,
        devices=row.devices,
        duration_s=row.duration_s,
        tenant=row.tenant,
        model=row.model,
        work_samples=row.work_samples,
        waited_s=row.waited_s,
        min_devices=row.min_devices,
        max_devices=row.max_devices,
    )


def _describe_origin(first_s: float, is_clock: bool) -> str:
    if is_clock or first_s > 1e9:
        return datetime.fromtimestamp(first_s, tz=UTC).strftime("%Y-%m-%d %H:%M:%S")
    return f"second {first_s:,.0f} of the trace's clock"
