"""Read Pollux's synthetic workloads: name, time, application, num_replicas, batch_size.

A job is a training run of an application to its end at a batch; how many samples that takes is in the profile
`application@batch` (see data/README.md), so no duration stands in the file.
"""

from __future__ import annotations

from elastane.sim.readers.fields import parse_devices, parse_job_id, parse_submit
from elastane.sim.readers.rows import TraceRow
from elastane.sim.readers.table import Cells, TableFormat


def _row(line: int, cells: Cells) -> TraceRow:
    batch = parse_devices(cells["batch_size"], "batch_size")
    return TraceRow(
        line=line,
        job_id=parse_job_id(cells["name"], "name"),
        submit_s=parse_submit(cells["time"], "time"),
        devices=parse_devices(cells["num_replicas"], "num_replicas"),
        duration_s=None,
        model=f"{cells['application'].strip()}@{batch}",
    )


POLLUX = TableFormat(
    name="pollux",
    title="Pollux artifact's workloads",
    required=frozenset({"name", "time", "application", "num_replicas", "batch_size"}),
    to_row=_row,
    profile_set="pollux",
)
