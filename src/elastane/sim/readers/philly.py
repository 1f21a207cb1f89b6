"""Read the two published forms of Microsoft's Philly trace (August to December 2017).

`philly-109k`: all virtual clusters on one clock, with the model names that PCS assigned
(`job_id, vc, submit_time, num_gpus, duration, model_name`; seconds).
`philly-82k`: the file of the Pollux artifact (`timestamp, duration, num_gpus, gpu_time, cluster`); it has no
job ids, so the line number serves as one.
"""

from __future__ import annotations

from elastane.sim.readers.fields import parse_devices, parse_duration, parse_job_id, parse_submit
from elastane.sim.readers.rows import TraceRow
from elastane.sim.readers.table import Cells, TableFormat


def _row_109k(line: int, cells: Cells) -> TraceRow:
    return TraceRow(
        line=line,
        job_id=parse_job_id(cells["job_id"]),
        tenant=cells["vc"],
        submit_s=parse_submit(cells["submit_time"], "submit_time"),
        devices=parse_devices(cells["num_gpus"], "num_gpus"),
        duration_s=parse_duration(cells["duration"]),
        model=cells["model_name"].strip() or None,
    )


def _row_82k(line: int, cells: Cells) -> TraceRow:
    return TraceRow(
        line=line,
        job_id=str(line),
        tenant=cells["cluster"],
        submit_s=parse_submit(cells["timestamp"], "timestamp"),
        devices=parse_devices(cells["num_gpus"], "num_gpus"),
        duration_s=parse_duration(cells["duration"]),
    )


PHILLY_109K = TableFormat(
    name="philly-109k",
    title="Microsoft Philly, 109k jobs, all virtual clusters on one clock",
    required=frozenset({"job_id", "vc", "submit_time", "num_gpus", "duration", "model_name"}),
    to_row=_row_109k,
    profile_set="pcs-afs",
)
PHILLY_82K = TableFormat(
    name="philly-82k",
    title="Microsoft Philly, 82k jobs, as in the Pollux artifact",
    required=frozenset({"timestamp", "duration", "num_gpus", "gpu_time", "cluster"}),
    to_row=_row_82k,
    clock=True,
)
