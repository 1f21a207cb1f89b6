"""Read the Chronus artifact's Philly-derived jobs (with deadlines, which no policy here uses).

Columns: job_id, user, num_gpu, submit_time, iterations, model_name, duration, interval, expect_time_list,
... Submission times and durations are minutes there (latest submission 20,151, longest job 4,317): turned
to seconds.
"""

from __future__ import annotations

from elastane.sim.readers.fields import parse_devices, parse_duration, parse_job_id, parse_submit
from elastane.sim.readers.rows import TraceRow
from elastane.sim.readers.table import Cells, TableFormat

_MINUTE_S = 60.0


def _row(line: int, cells: Cells) -> TraceRow:
    return TraceRow(
        line=line,
        job_id=parse_job_id(cells["job_id"]),
        tenant=cells["user"],
        submit_s=parse_submit(cells["submit_time"], "submit_time") * _MINUTE_S,
        devices=parse_devices(cells["num_gpu"], "num_gpu"),
        duration_s=parse_duration(cells["duration"]) * _MINUTE_S,
    )


CHRONUS = TableFormat(
    name="chronus",
    title="Chronus artifact, Philly jobs with deadlines (minutes)",
    required=frozenset({"job_id", "user", "num_gpu", "submit_time", "duration", "expect_time_list"}),
    known=frozenset({"iterations", "model_name", "interval", "expect_value_list", "best_effort", "job_type"}),
    to_row=_row,
)
