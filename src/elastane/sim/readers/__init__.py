"""Readers of job traces: one small file for each format, and one entry, `read_trace`."""

from elastane.sim.readers.formats import FORMATS, Layout, detect_layout, format_named
from elastane.sim.readers.read import DEFAULT_MOST_JOBS, EVERYTHING, Selection, read_trace
from elastane.sim.readers.rows import LeftOut, LeftOutCounter, Trace, TraceRow
from elastane.sim.readers.slurm import SACCT_COMMAND
from elastane.sim.readers.table import TableFormat

__all__ = [
    "DEFAULT_MOST_JOBS",
    "EVERYTHING",
    "FORMATS",
    "SACCT_COMMAND",
    "Layout",
    "LeftOut",
    "LeftOutCounter",
    "Selection",
    "TableFormat",
    "Trace",
    "TraceRow",
    "detect_layout",
    "format_named",
    "read_trace",
]
