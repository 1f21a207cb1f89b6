"""Read Gavel's and Shockwave's tab-separated traces, which have no header.

Gavel, 10 fields: job type, command, working directory, steps argument, needs-data-dir flag, total steps,
scale factor (GPUs), priority weight, SLO, arrival time. Shockwave, 12 fields: an adaptation mode after the
scale factor and the static duration just before the arrival time.
Gavel gives work as steps; how long they take is in the profile of the job type ("ResNet-50 (batch size 64)").
Steps count those of all GPUs together, each with the job type's batch, so the work is steps x batch.
"""

from __future__ import annotations

import re

from elastane.sim.readers.fields import BadCell, parse_devices, parse_duration, parse_submit
from elastane.sim.readers.rows import TraceRow
from elastane.sim.readers.table import Cells, TableFormat

GAVEL_FIELDS = (
    "job_type",
    "command",
    "working_directory",
    "steps_argument",
    "needs_data_dir",
    "total_steps",
    "scale_factor",
    "priority_weight",
    "slo",
    "arrival_time",
)
SHOCKWAVE_FIELDS = (*GAVEL_FIELDS[:7], "mode", *GAVEL_FIELDS[7:9], "duration", "arrival_time")

_BATCH = re.compile(r"batch size (\d+)")


def _row(line: int, cells: Cells) -> TraceRow:
    job_type = cells["job_type"].strip()
    if not job_type:
        raise BadCell("job type is missing", job_type)
    batch = _BATCH.search(job_type)
    per_step = int(batch.group(1)) if batch else 1
    devices = parse_devices(cells["scale_factor"], "scale factor")
    return TraceRow(
        line=line,
        job_id=str(line),
        submit_s=parse_submit(cells["arrival_time"], "arrival time"),
        devices=devices,
        duration_s=parse_duration(cells["duration"]) if "duration" in cells else None,
        model=job_type,
        work_samples=parse_duration(cells["total_steps"], "total steps") * per_step,
    )


GAVEL = TableFormat(
    name="gavel",
    title="Gavel's traces (tab separated, no header)",
    required=frozenset(GAVEL_FIELDS),
    to_row=_row,
    profile_set="gavel",
    delimiter="\t",
    header=GAVEL_FIELDS,
)
SHOCKWAVE = TableFormat(
    name="shockwave",
    title="Shockwave's traces (tab separated, no header)",
    required=frozenset(SHOCKWAVE_FIELDS),
    to_row=_row,
    profile_set="gavel",
    delimiter="\t",
    header=SHOCKWAVE_FIELDS,
)
