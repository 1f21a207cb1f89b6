"""Turn the text of one cell into a number, a time or a device count, or say what is wrong with it.

Every function raises BadCell with a reason short enough to be counted ("duration is missing") and the
offending text kept apart, so that a thousand bad rows give one line in the summary and not a thousand.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime

LARGEST_DEVICES = 1_000_000
"""No cluster has a million devices: a larger request is a wrong column or a wrong unit."""

LARGEST_TIME_S = 1e11
"""About the year 5138 in Unix seconds: later times are milliseconds or rubbish."""

_UNKNOWN_WORDS = frozenset({"", "none", "null", "nan", "na", "n/a", "unknown", "-", "\\n"})
_CLOCK = re.compile(r"^(?:(\d{1,9})-)?(?:(\d{1,9}):)?(\d{1,9}):(\d{1,9})(?:\.(\d{1,9}))?$")


class BadCell(Exception):
    """Carry why a cell cannot be used, as a reason to count and the text that was found.

    The reader catches and counts it; it never reaches a user as an error.
    """

    def __init__(self, reason: str, found: str) -> None:
        super().__init__(f"{reason}: {found!r}")
        self.reason = reason
        self.found = found


class NotAJob(BadCell):
    """Say that a row is no job to simulate and never was meant to be one: nothing is wrong with the file."""


def is_missing(text: str) -> bool:
    """Say whether a cell holds no value: empty, or one of the usual words for it."""
    return text.strip().lower() in _UNKNOWN_WORDS


def parse_number(text: str, name: str) -> float:
    """Return the finite number in `text`; `name` is the column, for the reason."""
    if is_missing(text):
        raise BadCell(f"{name} is missing", text)
    try:
        value = float(text)
    except ValueError:
        raise BadCell(f"{name} is not a number", text) from None
    if not math.isfinite(value):
        raise BadCell(f"{name} is not finite", text)
    return value


def parse_duration(text: str, name: str = "duration") -> float:
    """Return a running time in seconds, or another length of a job, more than 0."""
    value = parse_number(text, name)
    if value < 0:
        raise BadCell(f"{name} is negative", text)
    if value == 0:
        raise BadCell(f"{name} is zero (the job never ran)", text)
    if value > LARGEST_TIME_S:
        raise BadCell(f"{name} is too large (wrong unit?)", text)
    return value


def parse_devices(text: str, name: str) -> int:
    """Return a whole number of devices, at least 1."""
    value = parse_number(text, name)
    if value < 0:
        raise BadCell(f"{name} is negative", text)
    if value == 0:
        raise NotAJob(f"{name} is zero (a job without devices)", "")
    if value != int(value):
        raise BadCell(f"{name} is not a whole number", text)
    return check_devices(int(value), name)


def check_devices(devices: int, name: str) -> int:
    """Return `devices`, or raise BadCell if no cluster has that many."""
    if devices > LARGEST_DEVICES:
        raise BadCell(f"{name} is too large (wrong column?)", str(devices)[:20])
    return devices


def parse_submit(text: str, name: str) -> float:
    """Return a submission time in seconds: a plain number, or a date and time read as UTC.

    Traces hardly ever name their time zone; only differences of times matter to a simulation.
    """
    try:
        value = parse_number(text, name)
    except BadCell:
        if is_missing(text):
            raise
        value = parse_timestamp(text, name)
    if value < 0:
        raise BadCell(f"{name} is negative", text)
    if value > LARGEST_TIME_S:
        raise BadCell(f"{name} is too large (wrong unit?)", text)
    return value


def parse_timestamp(text: str, name: str) -> float:
    """Return the Unix seconds of an ISO date and time ("2020-04-01 10:00:00", "2020-04-01T10:00:00")."""
    if is_missing(text):
        raise BadCell(f"{name} is missing", text)
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise BadCell(f"{name} is neither a number nor a date and time", text) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.timestamp()


def parse_elapsed(text: str, name: str = "Elapsed") -> float:
    """Return the seconds of a clock reading: `[days-]hours:minutes:seconds[.fraction]` or `minutes:seconds`.

    Source: the sacct manual page, "Elapsed time fields are presented as [days-]hours:minutes:seconds".
    """
    if is_missing(text):
        raise BadCell(f"{name} is missing", text)
    match = _CLOCK.match(text.strip())
    if match is None:
        raise BadCell(f"{name} is not a time like 1-02:03:04", text)
    days, hours, minutes, seconds, fraction = match.groups()
    whole = int(days or 0) * 86_400 + int(hours or 0) * 3_600 + int(minutes) * 60 + int(seconds)
    return whole + (float(f"0.{fraction}") if fraction else 0.0)


def parse_job_id(text: str, name: str = "job id") -> str:
    """Return the identifier, which may be any non-empty text."""
    stripped = text.strip()
    if not stripped:
        raise BadCell(f"{name} is missing", text)
    return stripped
