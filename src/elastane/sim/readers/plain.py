"""Read a plain CSV of jobs, the form to write when no other fits.

Needed: a submission time (seconds, or date and time), a number of devices and a running time in seconds.
Optional: an id (else the line number), a tenant, a model that names a profile, and the least and most devices
that the job can use. Each column may go by any of the usual names listed below, in any order and case.
"""

from __future__ import annotations

from elastane.sim.readers.fields import (
    BadCell,
    is_missing,
    parse_devices,
    parse_duration,
    parse_job_id,
    parse_submit,
)
from elastane.sim.readers.rows import TraceRow
from elastane.sim.readers.table import Cells, TableFormat

SUBMIT_NAMES = (
    "submit_time",
    "submit_s",
    "submit",
    "submission_time",
    "arrival_time",
    "arrival",
    "timestamp",
    "time",
)
DEVICE_NAMES = (
    "devices",
    "num_gpus",
    "num_gpu",
    "gpus",
    "gpu_num",
    "gpu_count",
    "num_devices",
    "n_gpus",
    "gpu",
)
DURATION_NAMES = ("duration", "duration_s", "runtime", "runtime_s", "run_time", "elapsed_s", "seconds")
ID_NAMES = ("job_id", "id", "job", "name", "jobid")
TENANT_NAMES = ("tenant", "user", "vc", "team", "account", "group", "project")
MODEL_NAMES = ("model", "model_name", "profile")


def _first(cells: Cells, names: tuple[str, ...]) -> tuple[str, str]:
    """Return the first of `names` that is a column here, and its cell; ("", "") if none is."""
    for name in names:
        if name in cells:
            return name, cells[name]
    return "", ""


def _optional_devices(cells: Cells, name: str) -> int | None:
    text = cells.get(name, "")
    return None if is_missing(text) else parse_devices(text, name)


def _row(line: int, cells: Cells) -> TraceRow:
    submit_name, submit = _first(cells, SUBMIT_NAMES)
    device_name, devices = _first(cells, DEVICE_NAMES)
    duration_name, duration = _first(cells, DURATION_NAMES)
    id_name, job_id = _first(cells, ID_NAMES)
    model = _first(cells, MODEL_NAMES)[1]
    requested = parse_devices(devices, device_name)
    least, most = _optional_devices(cells, "min_devices"), _optional_devices(cells, "max_devices")
    if (least or requested) > requested or (most or requested) < requested:
        raise BadCell(f"{device_name} is not between min_devices and max_devices", devices)
    return TraceRow(
        line=line,
        job_id=parse_job_id(job_id, id_name) if id_name else str(line),
        tenant=_first(cells, TENANT_NAMES)[1].strip(),
        submit_s=parse_submit(submit, submit_name),
        devices=requested,
        duration_s=parse_duration(duration, duration_name),
        model=None if is_missing(model) else model.strip(),
        min_devices=least,
        max_devices=most,
    )


PLAIN = TableFormat(
    name="csv",
    title="plain CSV: submit_time, devices, duration (and job_id, tenant, model, min_devices, max_devices)",
    required=frozenset(),
    one_of=(frozenset(SUBMIT_NAMES), frozenset(DEVICE_NAMES), frozenset(DURATION_NAMES)),
    known=frozenset({*ID_NAMES, *TENANT_NAMES, *MODEL_NAMES, "min_devices", "max_devices"}),
    to_row=_row,
)
