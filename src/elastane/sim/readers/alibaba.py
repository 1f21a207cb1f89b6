"""Read the job table that ships with Alibaba's PAI simulator (GPU trace of 2020).

Columns: job_id, num_inst, submit_time, num_cpu, num_gpu, gpu_type, duration, user (and estimates in one of
the two files). `num_gpu` counts GPUs of one instance and may be a fraction, since PAI shares GPUs among
jobs; elastane gives out whole devices, so the job's total is rounded up to the next whole device.
"""

from __future__ import annotations

import math

from elastane.sim.readers.fields import (
    BadCell,
    NotAJob,
    check_devices,
    is_missing,
    parse_devices,
    parse_duration,
    parse_job_id,
    parse_number,
    parse_submit,
)
from elastane.sim.readers.rows import TraceRow
from elastane.sim.readers.table import Cells, TableFormat

_MOST = 1e9
"""More than any cluster has: keeps the product of two absurd numbers finite."""


def _row(line: int, cells: Cells) -> TraceRow:
    per_instance = parse_number(cells["num_gpu"], "num_gpu")
    if per_instance == 0:
        raise NotAJob("the job used no GPU", "")
    if per_instance < 0:
        raise BadCell("num_gpu is negative", cells["num_gpu"])
    instances = 1 if is_missing(cells["num_inst"]) else parse_devices(cells["num_inst"], "num_inst")
    return TraceRow(
        line=line,
        job_id=parse_job_id(cells["job_id"]),
        tenant=cells.get("user", ""),
        submit_s=parse_submit(cells["submit_time"], "submit_time"),
        devices=check_devices(math.ceil(min(per_instance * instances, _MOST)), "num_gpu x num_inst"),
        duration_s=parse_duration(cells["duration"]),
    )


ALIBABA = TableFormat(
    name="alibaba-pai",
    title="Alibaba PAI 2020, the simulator's job table",
    required=frozenset({"job_id", "num_inst", "submit_time", "num_gpu", "duration"}),
    known=frozenset(
        {
            "num_cpu",
            "gpu_type",
            "user",
            "group",
            "wait_time",
            "user_dur",
            "user_gpu_dur",
            "group_dur",
            "group_gpu_dur",
        }
    ),
    to_row=_row,
)
