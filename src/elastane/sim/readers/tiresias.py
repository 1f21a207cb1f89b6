"""Read job files of the Tiresias simulator.

Columns: job_id, num_gpu, submit_time, iterations, model_name, duration, interval.
Times are seconds. Its model names (vgg19, resnet50, ...) only describe placement sensitivity, no speed, so
they are kept as names and a speed profile is assigned to each job like to any trace without one.
"""

from __future__ import annotations

from elastane.sim.readers.fields import parse_devices, parse_duration, parse_job_id, parse_submit
from elastane.sim.readers.rows import TraceRow
from elastane.sim.readers.table import Cells, TableFormat


def _row(line: int, cells: Cells) -> TraceRow:
    return TraceRow(
        line=line,
        job_id=parse_job_id(cells["job_id"]),
        submit_s=parse_submit(cells["submit_time"], "submit_time"),
        devices=parse_devices(cells["num_gpu"], "num_gpu"),
        duration_s=parse_duration(cells["duration"]),
    )


TIRESIAS = TableFormat(
    name="tiresias",
    title="Tiresias simulator's job file",
    required=frozenset({"job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration"}),
    known=frozenset({"interval"}),
    to_row=_row,
)
