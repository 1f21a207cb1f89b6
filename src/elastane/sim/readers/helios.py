"""Read SenseTime's Helios traces (`cluster_log.csv`): Slurm jobs of four clusters, April to September 2020.

Columns: job_id, user, vc, gpu_num, cpu_num, node_num, state, submit_time, start_time, end_time, duration,
queue. Jobs without GPUs are in the file and are left out; failed and cancelled jobs ran and are kept.
"""

from __future__ import annotations

from elastane.sim.readers.fields import (
    is_missing,
    parse_devices,
    parse_duration,
    parse_job_id,
    parse_number,
    parse_submit,
)
from elastane.sim.readers.rows import TraceRow
from elastane.sim.readers.table import Cells, TableFormat


def _row(line: int, cells: Cells) -> TraceRow:
    queue = cells.get("queue", "")
    return TraceRow(
        line=line,
        job_id=parse_job_id(cells["job_id"]),
        tenant=cells["vc"],
        submit_s=parse_submit(cells["submit_time"], "submit_time"),
        devices=parse_devices(cells["gpu_num"], "gpu_num"),
        duration_s=parse_duration(cells["duration"]),
        waited_s=None if is_missing(queue) else parse_number(queue, "queue"),
    )


HELIOS = TableFormat(
    name="helios",
    title="SenseTime Helios, cluster_log.csv",
    required=frozenset({"job_id", "vc", "gpu_num", "submit_time", "duration"}),
    known=frozenset({"user", "cpu_num", "node_num", "state", "start_time", "end_time", "queue"}),
    to_row=_row,
    clock=True,
)
