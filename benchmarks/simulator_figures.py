"""The record that a benchmark of the simulator leaves: figures with goals, as a table and as JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Hold one measured figure: the median of `n` values, their range, and the goal in words."""

    figure: str
    workload: str
    value: float
    unit: str
    n: int
    min: float
    max: float
    goal: str = ""


def make_figure(figure: str, workload: str, values: Sequence[float], unit: str, goal: str = "") -> Figure:
    """Return the figure of repeated values."""
    return Figure(
        figure=figure,
        workload=workload,
        value=float(statistics.median(values)),
        unit=unit,
        n=len(values),
        min=float(min(values)),
        max=float(max(values)),
        goal=goal,
    )


def parse_arguments(description: str) -> argparse.Namespace:
    """Return --out, --quick and --repeat as every benchmark takes them."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", type=Path, help="where to write the figures as JSON")
    parser.add_argument("--quick", action="store_true", help="a small part, to see that it runs")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each case; the median counts")
    return parser.parse_args()


def report(benchmark: str, figures: Sequence[Figure], out: Path | None) -> None:
    """Print the figures and write them to `out`."""
    for entry in figures:
        goal = f"   goal {entry.goal}" if entry.goal else ""
        print(f"{entry.workload:34s} {entry.figure:38s} {entry.value:14,.3f} {entry.unit:10s}{goal}")
    if out is not None:
        record = {
            "id": benchmark,
            "versions": {
                "python": platform.python_version(),
                "numpy": np.__version__,
                "elastane": version("elastane"),
            },
            "machine": {"system": platform.platform(), "cores": os.cpu_count()},
            "figures": [asdict(entry) for entry in figures],
        }
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(record, indent=1) + "\n")
