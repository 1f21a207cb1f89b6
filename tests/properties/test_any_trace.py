"""Whatever a file holds, reading it gives a trace or one ConfigError, and every row is accounted for."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elastane.model.cluster import Cluster
from elastane.model.errors import ConfigError
from elastane.sim.readers import FORMATS, Selection, Trace, read_trace
from elastane.sim.readers.history import compute_history
from elastane.sim.workload import WorkloadOptions, prepare_workload

CALM = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

ODD = (
    *("", "0", "1", "8", "-1", "1e309", "nan", "inf", "1e17", "0x10", "1_000", "٣", "2020-04-01 10:00:00"),
    *(
        "9999-12-31T23:59:59",
        "0001-01-01",
        "2020-13-45",
        "1-02:03:04",
        "99999999999-00:00:00",
        "00:00:00",
        "²",
    ),
    *(
        "COMPLETED",
        "CANCELLED by 5",
        "RUNNING",
        "gres/gpu=4",
        "gres/gpu:a100=" + "9" * 5000,
        "gpu:2(IDX:0-1)",
    ),
    *("resnet50", "bert@64", "[1-3]", '"', "'", ";", "|", "\t"),
)
CELL = st.one_of(st.sampled_from(ODD), st.text(max_size=12), st.integers().map(str), st.floats().map(str))

SOUND = {
    "alloctres": "gres/gpu=4", "reqtres": "gres/gpu=4", "allocgres": "gpu:4", "reqgres": "gpu:4",
    "timestamp": "2017-10-09 07:01:55", "submit": "2020-04-01T10:00:00", "start": "2020-04-01T10:00:05",
    "end": "2020-04-01T11:00:00", "elapsed": "01:00:00", "state": "COMPLETED", "duration": "3600",
    "num_gpu": "2", "num_gpus": "2", "model_name": "resnet50", "batch_size": "64",
}  # fmt: skip
"""Values that a column of this name takes; "7" does for all others."""


def attempt(path: Path, **how: object) -> Trace | None:
    """Return the trace, or None if it is refused."""
    try:
        return read_trace(path, **how)  # type: ignore[arg-type]
    except ConfigError:
        return None


@CALM
@given(content=st.binary(max_size=400), packed=st.booleans(), cut=st.integers(0, 30))
def test_any_bytes_are_read_or_refused(tmp_path: Path, content: bytes, packed: bool, cut: int) -> None:
    path = tmp_path / "any"
    content = gzip.compress(content) if packed else content
    path.write_bytes(content[: len(content) - cut])
    attempt(path)


@CALM
@given(data=st.data(), known=st.sampled_from(FORMATS))
def test_any_cells_under_a_known_header_are_kept_or_counted(
    tmp_path: Path, data: st.DataObject, known: object
) -> None:
    form = next(entry for entry in FORMATS if entry is known)
    columns = list(form.header or (*sorted(form.required), *(min(group) for group in form.one_of)))
    columns += [] if form.header else sorted(form.known)
    columns += ["start", "state"] if form.name == "slurm" else []
    rows = [
        [str(number) if column.endswith("id") else SOUND.get(column, "7") for column in columns]
        for number in range(data.draw(st.integers(1, 6)))
    ]
    for _ in range(data.draw(st.integers(0, 4))):
        spoilt = data.draw(st.sampled_from(rows))
        spoilt[data.draw(st.integers(0, len(columns) - 1))] = data.draw(CELL)
    lines = [] if form.header else [form.delimiter.join(columns)]
    lines += [form.delimiter.join(cells) for cells in rows]
    path = tmp_path / "trace"
    path.write_text("\n".join(lines), encoding="utf-8", errors="replace", newline="")
    for chosen in (Selection(), Selection(from_day=1, to_day=2)):
        trace = attempt(path, format_name=form.name, selection=chosen)
        if trace is None:
            continue
        submits = [entry.submit_s for entry in trace.rows]
        assert submits == sorted(submits)
        assert submits[0] == 0.0
        assert all(entry.devices >= 1 for entry in trace.rows)
        assert all(entry.duration_s is None or 0 < entry.duration_s < math.inf for entry in trace.rows)
        try:
            prepare_workload(trace, Cluster.of(4, 8), WorkloadOptions())
        except ConfigError:
            continue
        compute_history(trace.rows)


@pytest.mark.parametrize("known", FORMATS, ids=lambda known: known.name)
def test_every_format_tells_what_it_lacks(known: object, tmp_path: Path) -> None:
    form = next(entry for entry in FORMATS if entry is known)
    path = tmp_path / "trace"
    path.write_text("alpha,beta\n1,2\n")
    with pytest.raises(ConfigError):
        read_trace(path, form.name)
