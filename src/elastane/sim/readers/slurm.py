"""Read a Slurm accounting export: `sacct --parsable2` (or `--parsable`) with a header line.

One row is one job. Job steps, jobs that never ran, jobs still running and jobs without GPUs are left out and
counted; array tasks and the parts of heterogeneous jobs are jobs of their own, as Slurm schedules them.
GPUs come from AllocTRES, else ReqTRES (`gres/gpu=8`, or the sum over `gres/gpu:TYPE=n`), else from the older
AllocGRES/ReqGRES (`gpu:TYPE:n` per node). Facts: the sacct manual page.
"""

from __future__ import annotations

import re

from elastane.sim.readers.fields import (
    BadCell,
    NotAJob,
    check_devices,
    is_missing,
    parse_duration,
    parse_elapsed,
    parse_number,
    parse_timestamp,
)
from elastane.sim.readers.rows import TraceRow
from elastane.sim.readers.table import Cells, TableFormat

SACCT_COMMAND = (
    "sacct --allusers --allocations --parsable2 --starttime 2026-01-01 --endtime now "
    "--format=JobID,User,Account,Partition,Submit,Start,End,ElapsedRaw,State,NNodes,AllocTRES,ReqTRES "
    "> history.txt"
)
"""What a cluster owner runs to get such a file; shown by error messages and the documentation."""

_MOST_DIGITS = 12
"""Digits of a number that are read; a longer one is far too large whatever follows."""

_UNFINISHED = frozenset(
    {"RUNNING", "PENDING", "SUSPENDED", "REQUEUED", "RESIZING", "CONFIGURING", "COMPLETING"}
)
_TRES_GPU = re.compile(r"^gres/gpu(?::([^=]+))?=(\d+)$", re.IGNORECASE)
_GRES_GPU = re.compile(r"^(?:gres[:/])?gpu(?::([A-Za-z_][^:=]*))?[:=](\d+)(?:\(.*\))?$", re.IGNORECASE)


def count_tres_gpus(tres: str) -> int:
    """Return the GPUs in a TRES string such as `billing=8,cpu=8,gres/gpu=2,gres/gpu:a100=2,mem=64G`.

    The untyped entry is the total where it is there; with several types only, their sum is.
    """
    total, typed = None, 0
    for entry in tres.split(","):
        match = _TRES_GPU.match(entry.strip())
        if match is None:
            continue
        if match.group(1) is None:
            total = int(match.group(2)[:_MOST_DIGITS])
        else:
            typed += int(match.group(2)[:_MOST_DIGITS])
    return typed if total is None else total


def count_gres_gpus(gres: str, nodes: int) -> int:
    """Return the GPUs in an older GRES string such as `gpu:tesla:4`, which counts per node."""
    matches = (_GRES_GPU.match(entry.strip()) for entry in gres.split(","))
    return nodes * sum(int(match.group(2)[:_MOST_DIGITS]) for match in matches if match is not None)


def _devices(cells: Cells) -> int:
    """Return the job's GPUs: what it was given, else what it asked for."""
    for column in ("alloctres", "reqtres"):
        gpus = count_tres_gpus(cells.get(column, ""))
        if gpus:
            return check_devices(gpus, "gres/gpu")
    nodes_text = cells.get("nnodes", "")
    nodes = max(1, int(nodes_text.strip()[:_MOST_DIGITS])) if nodes_text.strip().isdecimal() else 1
    for column in ("allocgres", "reqgres"):
        gpus = count_gres_gpus(cells.get(column, ""), nodes)
        if gpus:
            return check_devices(gpus, "gres/gpu")
    raise NotAJob("the job used no GPU", "")


def _duration(cells: Cells) -> float:
    """Return the running time: ElapsedRaw, else Elapsed, else End - Start."""
    if not is_missing(cells.get("elapsedraw", "")):
        seconds = parse_number(cells["elapsedraw"], "ElapsedRaw")
    elif not is_missing(cells.get("elapsed", "")):
        seconds = parse_elapsed(cells["elapsed"])
    elif "start" in cells and "end" in cells:
        seconds = parse_timestamp(cells["end"], "End") - parse_timestamp(cells["start"], "Start")
    else:
        raise BadCell("Elapsed is missing", "")
    if seconds == 0:
        raise NotAJob("the job never ran (elapsed 0 s)", "")
    return parse_duration(str(seconds), "Elapsed")


def _waited_s(cells: Cells, submit_s: float) -> float | None:
    """Return how long the job really waited, or None if its start is not told."""
    start = cells.get("start", "")
    if is_missing(start):
        return None
    return max(0.0, parse_timestamp(start, "Start") - submit_s)


def _row(line: int, cells: Cells) -> TraceRow:
    job_id = (cells.get("jobid") or cells.get("jobidraw") or "").strip()
    if not job_id:
        raise BadCell("JobID is missing", job_id)
    if "." in job_id:
        raise NotAJob("a job step, part of a job that has its own row", job_id)
    state = cells.get("state", "").split()
    if state and state[0].upper() in _UNFINISHED:
        raise NotAJob(f"the job has not ended (state {state[0].upper()})", job_id)
    if "[" in job_id:
        raise NotAJob("array tasks that never started", job_id)
    tenant = cells.get("account") or cells.get("user") or cells.get("partition") or ""
    submit_s = parse_timestamp(cells["submit"], "Submit")
    return TraceRow(
        line=line,
        job_id=job_id,
        tenant=tenant.strip(),
        submit_s=submit_s,
        duration_s=_duration(cells),
        devices=_devices(cells),
        waited_s=_waited_s(cells, submit_s),
    )


SLURM = TableFormat(
    name="slurm",
    title="Slurm accounting: sacct --parsable2",
    required=frozenset({"submit"}),
    one_of=(
        frozenset({"jobid", "jobidraw"}),
        frozenset({"elapsedraw", "elapsed", "end"}),
        frozenset({"alloctres", "reqtres", "allocgres", "reqgres"}),
    ),
    to_row=_row,
    delimiter="|",
    clock=True,
    any_columns=True,
)
