"""Describe a trace format as a table: which columns mark it and how a row of cells becomes a job.

A format is data plus one small function; splitting lines, counting faults, windows and limits are done once
for all formats in `read.py`. Formats do not know each other.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from elastane.sim.readers.rows import TraceRow

Cells = Mapping[str, str]
"""The cells of one row by column name, as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFormat:
    """Describe one trace format.

    `required` columns must all be there for the format to fit; `one_of` holds groups of which one column each
    is needed. `known` lists further columns that the format has, so that surprising ones can be told apart.
    `header` is set for formats whose files name no columns. `to_row` raises BadCell for a faulty row.
    `clock` is True where times are dates, which give the trace its origin. `profile_set` names the published
    speed profiles that the format's models come from.
    """

    name: str
    title: str
    required: frozenset[str]
    to_row: Callable[[int, Cells], TraceRow]
    one_of: tuple[frozenset[str], ...] = ()
    known: frozenset[str] = frozenset()
    delimiter: str = ","
    header: tuple[str, ...] | None = None
    clock: bool = False
    any_columns: bool = False
    profile_set: str | None = None

    def fits(self, columns: frozenset[str]) -> bool:
        """Say whether a file with these columns can be read as this format."""
        return self.required <= columns and all(group & columns for group in self.one_of)

    def missing(self, columns: frozenset[str]) -> list[str]:
        """Return what is missing for this format, in words a person can act on."""
        lacking = sorted(self.required - columns)
        lacking += [" or ".join(sorted(group)) for group in self.one_of if not group & columns]
        return lacking

    def surprising(self, columns: frozenset[str]) -> list[str]:
        """Return the columns that this format does not know and that will be ignored."""
        if self.any_columns:
            return []
        needed = self.required | self.known
        for group in self.one_of:
            needed |= group
        return sorted(columns - needed)


def closest(word: str, choices: list[str]) -> str | None:
    """Return the choice that looks most like `word`, or None if nothing comes near."""
    matches = difflib.get_close_matches(word, choices, n=1, cutoff=0.5)
    return matches[0] if matches else None
