"""Read Microsoft's ITP traces (March to May 2021) and the ElasticFlow authors' versions with models.

`itp`: job_id, submission_time, duration, num_gpu.
`itp-models`: the same with num_iteration, model_name, batch_size and deadline made up by the authors.
`elasticflow`: the older column names (submit_time, iteration, ddl).
Where models are given, profiles are called `model@batch` (global batch). Durations agree with the profiles:
iterations / (iterations per second on num_gpu A100s).
"""

from __future__ import annotations

from elastane.sim.readers.fields import (
    parse_devices,
    parse_duration,
    parse_job_id,
    parse_submit,
)
from elastane.sim.readers.rows import TraceRow
from elastane.sim.readers.table import Cells, TableFormat


def _row_raw(line: int, cells: Cells) -> TraceRow:
    return TraceRow(
        line=line,
        job_id=parse_job_id(cells["job_id"]),
        submit_s=parse_submit(cells["submission_time"], "submission_time"),
        devices=parse_devices(cells["num_gpu"], "num_gpu"),
        duration_s=parse_duration(cells["duration"]),
    )


def _row_with_model(line: int, cells: Cells, submit: str) -> TraceRow:
    batch = parse_devices(cells["batch_size"], "batch_size")
    return TraceRow(
        line=line,
        job_id=parse_job_id(cells["job_id"]),
        submit_s=parse_submit(cells[submit], submit),
        devices=parse_devices(cells["num_gpu"], "num_gpu"),
        duration_s=parse_duration(cells["duration"]),
        model=f"{cells['model_name'].strip()}@{batch}",
    )


def _row_models(line: int, cells: Cells) -> TraceRow:
    return _row_with_model(line, cells, "submission_time")


def _row_elasticflow(line: int, cells: Cells) -> TraceRow:
    return _row_with_model(line, cells, "submit_time")


ITP = TableFormat(
    name="itp",
    title="Microsoft ITP, as published",
    required=frozenset({"job_id", "submission_time", "duration", "num_gpu"}),
    to_row=_row_raw,
)
ITP_MODELS = TableFormat(
    name="itp-models",
    title="Microsoft ITP with ElasticFlow's models",
    required=frozenset(
        {"job_id", "submission_time", "num_iteration", "model_name", "batch_size", "num_gpu", "duration"}
    ),
    known=frozenset({"deadline"}),
    to_row=_row_models,
    profile_set="elasticflow-a100",
)
ELASTICFLOW = TableFormat(
    name="elasticflow",
    title="ElasticFlow's simulator traces",
    required=frozenset(
        {"job_id", "submit_time", "iteration", "model_name", "batch_size", "num_gpu", "duration"}
    ),
    known=frozenset({"ddl", "real_iteration", "real_duration", "best_effort"}),
    to_row=_row_elasticflow,
)
