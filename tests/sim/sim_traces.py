"""Workloads that the simulation tests share: traces of the repository, and random ones with a seed."""

import csv
from pathlib import Path

import numpy as np

from elastane.model.cluster import JobSpec, Workload

DATA = Path(__file__).parents[2] / "data"


def read_tiresias(name: str) -> Workload:
    """Return a trace in the Tiresias simulator's columns; jobs are rigid there."""
    with (DATA / "traces" / "tiresias" / f"{name}.csv").open() as file:
        rows = sorted(csv.DictReader(file), key=lambda row: float(row["submit_time"]))
    jobs = (
        JobSpec(
            id=row["job_id"],
            submit_s=float(row["submit_time"]),
            requested=int(row["num_gpu"]),
            work_s=float(row["duration"]),
        )
        for row in rows
    )
    return Workload(name=name, jobs=tuple(jobs))


def make_markovian(jobs: int, arrivals_per_s: float, mean_s: float, *, devices: int = 1) -> Workload:
    """Return `jobs` jobs with exponential gaps and lengths; elastic ones may hold up to `devices`.

    Both samples are scaled to their exact means, which takes most of the noise out of mean times.
    """
    generator = np.random.default_rng(20)
    gaps, lengths = generator.exponential(1.0, jobs), generator.exponential(1.0, jobs)
    moments = np.cumsum(gaps / gaps.mean() / arrivals_per_s)
    lengths *= mean_s / lengths.mean()
    specs = (
        JobSpec(id=str(i), submit_s=float(t), requested=1, work_s=float(s), max_devices=devices)
        for i, (t, s) in enumerate(zip(moments, lengths, strict=True))
    )
    return Workload(name="markovian", jobs=tuple(specs))
