"""Write a comparison to a folder: report.html, report.json, plots as PNG, one CSV of jobs for each policy.

With pyarrow installed the jobs are written as Parquet as well. Each file appears whole or not at all.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from elastane.model.errors import ConfigError
from elastane.sim.compare import PolicyRun, SweepRun
from elastane.sim.report.comparison import Comparison
from elastane.sim.report.html import render_html
from elastane.sim.report.plots import (
    plot_allocation,
    plot_changes,
    plot_devices,
    plot_jct,
    plot_queue,
    plot_regimes,
    plot_sizes,
    plot_sweep,
)
from elastane.sim.report.style import save_png, save_svg, styled
from elastane.sim.result import JobColumns

JOB_COLUMNS = (
    "submit_s",
    "start_s",
    "finish_s",
    "jct_s",
    "wait_s",
    "requested",
    "devices_mean",
    "work_s",
    "busy_device_s",
    "lost_device_s",
    "efficient_device_s",
    "resizes",
    "preemptions",
    "rho",
)
"""Columns of the job tables after id, tenant and profile; explained in docs/simulate-your-cluster.md."""


_MANIFEST = ".elastane-report"
"""Lists the files of a report, so that the next one in the same folder can remove them."""


def check_folder(folder: Path) -> None:
    """Make `folder` and write to it once: a long run must not end with a report that has no place.

    Raises ConfigError if that is not possible.
    """
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"--out {folder} is a file; name a folder for the report.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _save(folder / ".elastane-probe", b"")
        (folder / ".elastane-probe").unlink()
    except OSError as error:
        raise _explain(folder, error) from error


def save_report(comparison: Comparison, folder: Path) -> Path:
    """Write everything into `folder` and return the path of the HTML report.

    Raises ConfigError if the folder cannot be made or written to.
    """
    contents: dict[str, bytes] = {}
    with styled():
        figures = draw_figures(comparison)
        pictures = {name: save_svg(figure) for name, figure in figures.items()}
        contents |= {f"plots/{name}.png": save_png(figure) for name, figure in figures.items()}
    for run in comparison.runs:
        contents |= _pack_jobs(run)
    contents["report.html"] = render_html(comparison, pictures).encode()
    contents[_MANIFEST] = "\n".join(sorted({*contents, "report.json"})).encode() + b"\n"
    contents["report.json"] = dump_json(comparison).encode()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _remove_former(folder, keep=set(contents))
        for name, content in contents.items():
            _save(folder / name, content)
    except OSError as error:
        raise _explain(folder, error) from error
    return folder / "report.html"


def _remove_former(folder: Path, keep: set[str]) -> None:
    """Remove what a former report left and this one does not replace: it would be taken for new.

    Only files in that report's own list are touched.
    """
    manifest = folder / _MANIFEST
    former = manifest.read_bytes().decode(errors="replace").splitlines() if manifest.is_file() else []
    for name in former:
        if name not in keep and ".." not in name and not name.startswith("/"):
            (folder / name).unlink(missing_ok=True)


def draw_figures(comparison: Comparison) -> dict[str, Figure]:
    """Return all figures that the comparison has data for, by name, in the order of the report."""
    runs = comparison.runs
    figures: dict[str, Figure | None] = {"jct": plot_jct(runs)}
    if len(runs) > 1:
        figures["changes"] = plot_changes(runs)
    figures["sizes"] = plot_sizes(runs)
    figures["queue"] = plot_queue(runs)
    figures["devices"] = plot_devices(runs)
    figures["allocation"] = plot_allocation(runs)
    if comparison.sweep:
        policies = list(dict.fromkeys(run.policy for run in comparison.sweep))
        if len(comparison.axes) == 1:
            figures["sweep"] = plot_sweep(comparison.axes[0], comparison.sweep, policies)
        elif len(policies) > 1:
            figures["regimes"] = plot_regimes(comparison.axes, comparison.sweep, policies)
    return {name: figure for name, figure in figures.items() if figure is not None}


def dump_json(comparison: Comparison) -> str:
    """Return all that a program may want to know about a comparison; no infinities, no NaN."""
    preparation = comparison.preparation
    content = {
        "elastane": version("elastane"),
        "command": comparison.command,
        "trace": {
            "name": comparison.trace.name,
            "format": comparison.trace.format,
            "origin": comparison.trace.origin,
            "jobs": len(preparation.workload.jobs),
            "left_out": [asdict(entry) for entry in comparison.left_out],
            "notes": list(comparison.trace.notes),
        },
        "assumptions": list(preparation.assumptions),
        "warnings": list(comparison.warnings),
        "profiles": preparation.profile_set,
        "seed": comparison.seed,
        "offered_load": preparation.offered_load,
        "cluster": {
            "devices": comparison.cluster.capacity,
            "nodes": len(comparison.cluster.nodes),
            "pooling": comparison.cluster.pooling,
        },
        "overhead": asdict(comparison.overhead),
        "policies": [_describe_run(run) for run in comparison.runs],
        "sweep": [_describe_point(run) for run in comparison.sweep],
        "failures": [
            {"policy": failure.policy, "message": failure.message} for failure in comparison.failures
        ],
    }
    return json.dumps(_finite(content), indent=2, allow_nan=False) + "\n"


def name_file(policy: str) -> str:
    """Return a policy's name as it may stand in a file name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", policy).strip("-.") or "policy"


def _explain(folder: Path, error: OSError) -> ConfigError:
    why = error.strerror or error
    return ConfigError(f"the report cannot be written to {folder}: {why}. Name another folder with --out.")


def _describe_run(run: PolicyRun) -> dict[str, Any]:
    result = run.result
    return {
        "policy": run.policy,
        "clairvoyant": run.clairvoyant,
        "settings": result.settings,
        "metrics": result.metrics.as_dict(),
        "counters": asdict(result.counters),
        "digest": result.digest,
        "wall_s": round(run.wall_s, 3),
    }


def _describe_point(run: SweepRun) -> dict[str, Any]:
    return {
        "policy": run.policy,
        **dict(zip(run.point.axes, run.point.values, strict=True)),
        "offered_load": run.offered_load,
        "devices": run.capacity,
        "jobs_left_out": run.jobs_left_out,
        "metrics": run.metrics.as_dict(),
        "digest": run.digest,
    }


def _finite(value: object) -> object:
    """Return the value with infinities and NaN as null, which is all that JSON has for them."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _columns(jobs: JobColumns) -> dict[str, Any]:
    named: dict[str, Any] = {"job_id": jobs.id, "tenant": jobs.tenant, "profile": jobs.profile}
    return named | {name: getattr(jobs, name) for name in JOB_COLUMNS}


def _pack_jobs(run: PolicyRun) -> dict[str, bytes]:
    """Return the table of jobs as files by name."""
    columns = _columns(run.result.jobs)
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    rounded = [[f"{v:.9g}" for v in c.tolist()] if hasattr(c, "dtype") else c for c in columns.values()]
    writer.writerows(zip(*rounded, strict=True))
    name = f"jobs-{name_file(run.policy)}"
    files = {f"{name}.csv": text.getvalue().encode()}
    if importlib.util.find_spec("pyarrow") is not None:
        files[f"{name}.parquet"] = _pack_parquet(columns)
    return files


def _pack_parquet(columns: Mapping[str, Any]) -> bytes:
    import pyarrow  # noqa: PLC0415 - optional, and slow to import
    import pyarrow.parquet  # noqa: PLC0415

    buffer = io.BytesIO()
    table = pyarrow.table({name: pyarrow.array(values) for name, values in columns.items()})
    pyarrow.parquet.write_table(table, buffer)
    return buffer.getvalue()


def _save(path: Path, content: bytes) -> None:
    """Write beside the target and rename, so that nobody finds half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    try:
        part.write_bytes(content)
        os.replace(part, path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
