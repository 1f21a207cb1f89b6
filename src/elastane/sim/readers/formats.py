"""List the trace formats and find the one that fits a file's first line.

A format is found by its columns alone, never by the file's name. The list is ordered from the most
particular to the most general, so that a file which fits two is read as the one that says more.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from elastane.model.errors import ConfigError
from elastane.sim.readers.alibaba import ALIBABA
from elastane.sim.readers.chronus import CHRONUS
from elastane.sim.readers.gavel import GAVEL, SHOCKWAVE
from elastane.sim.readers.helios import HELIOS
from elastane.sim.readers.itp import ELASTICFLOW, ITP, ITP_MODELS
from elastane.sim.readers.philly import PHILLY_82K, PHILLY_109K
from elastane.sim.readers.plain import PLAIN
from elastane.sim.readers.pollux import POLLUX
from elastane.sim.readers.slurm import SACCT_COMMAND, SLURM
from elastane.sim.readers.table import TableFormat, closest
from elastane.sim.readers.tiresias import TIRESIAS

FORMATS: tuple[TableFormat, ...] = (
    PHILLY_109K,
    PHILLY_82K,
    CHRONUS,
    ITP_MODELS,
    ELASTICFLOW,
    TIRESIAS,
    ALIBABA,
    HELIOS,
    ITP,
    POLLUX,
    GAVEL,
    SHOCKWAVE,
    SLURM,
    PLAIN,
)

_DELIMITERS = (",", "|", ";", "\t")


def format_named(name: str) -> TableFormat:
    """Return the format called `name`; raise ConfigError with the known ones for any other name."""
    by_name = {known.name: known for known in FORMATS}
    if name in by_name:
        return by_name[name]
    near = closest(name, list(by_name))
    hint = f" Did you mean {near!r}?" if near else ""
    raise ConfigError(f"unknown trace format {name!r}.{hint} Known formats: {', '.join(sorted(by_name))}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Say how a file is laid out: its format, what separates the cells, and the columns' names."""

    format: TableFormat
    delimiter: str
    columns: tuple[str, ...]


def split_cells(lines: Iterable[str], delimiter: str) -> Iterator[list[str]]:
    """Yield the cells of each line.

    Quotes count only where they are usual, between commas and semicolons: job names in a Slurm history may
    hold a lone quote, which would swallow the lines after it.
    """
    if delimiter in ",;":
        return csv.reader(lines, delimiter=delimiter)
    return csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE)


def split_columns(first_line: str, delimiter: str) -> tuple[str, ...]:
    """Return the column names in a header line, in lower case and without surrounding blanks."""
    cells = next(split_cells([first_line], delimiter), [])
    return tuple(cell.strip().lower() for cell in cells)


def detect_layout(first_line: str) -> Layout | None:
    """Return how a file with this first line is laid out, or None if no format fits."""
    fields = len(first_line.split("\t"))
    for headless in FORMATS:
        if headless.header is not None and fields == len(headless.header) and _last_is_number(first_line):
            return Layout(format=headless, delimiter="\t", columns=headless.header)
    for known in FORMATS:
        if known.header is not None:
            continue
        for delimiter in dict.fromkeys((known.delimiter, *_DELIMITERS)):
            columns = split_columns(first_line, delimiter)
            if known.fits(frozenset(columns)):
                return Layout(format=known, delimiter=delimiter, columns=columns)
    return None


def lay_out(known: TableFormat, first_line: str, where: str) -> Layout:
    """Return the layout of a file that is said to have the format `known`.

    Raises ConfigError if the file lacks columns that the format needs, saying which and what it has.
    """
    if known.header is not None:
        return Layout(format=known, delimiter=known.delimiter, columns=known.header)
    delimiter = max((known.delimiter, *_DELIMITERS), key=first_line.count)
    columns = split_columns(first_line, delimiter)
    lacking = known.missing(frozenset(columns))
    if lacking:
        raise ConfigError(
            f"{where}: line 1 lacks column(s) {'; '.join(lacking)} of format {known.name!r}. "
            f"The file's columns: {', '.join(columns)[:300] or '(none)'}."
        )
    return Layout(format=known, delimiter=delimiter, columns=columns)


def explain_unknown(first_line: str, where: str) -> ConfigError:
    """Return the error for a file that no format fits: what was found, and what to do."""
    delimiter = max(_DELIMITERS, key=first_line.count)
    columns = split_columns(first_line, delimiter)
    if "jobid" in first_line.lower():
        return ConfigError(
            f"{where}: this looks like sacct output, but not in the form or with the columns needed "
            f"(found: {', '.join(columns)[:300]}). Export it with: {SACCT_COMMAND}"
        )
    lacking = "; ".join(PLAIN.missing(frozenset(columns)))
    return ConfigError(
        f"{where}: no known trace format has this first line. "
        f"Columns found: {', '.join(columns)[:300] or '(none)'}. "
        f"To be read as a plain CSV it lacks: {lacking}. Rename the columns "
        "(submit_time, devices, duration), or name another format with --format: "
        f"{', '.join(sorted(known.name for known in FORMATS))}."
    )


def _last_is_number(first_line: str) -> bool:
    """Say whether a line ends with a number, as rows do and headers do not."""
    try:
        float(first_line.rsplit("\t", maxsplit=1)[-1])
    except ValueError:
        return False
    return True
