"""B1: the step time of two workers against stock DistributedDataParallel."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.analysis import compute_periods
from benchmarks.command import Findings, run_row
from benchmarks.elastic_job import ElasticJob, Plan
from benchmarks.figures import Figure, Row, Target, compute_ratios, make_figure
from benchmarks.pairs import Turns, compute_steps_between, take_turns
from benchmarks.stock import train_ddp
from benchmarks.workloads import DIGITS, MLP25M, Workload

WORKERS = 2

ROW = Row(
    id="B1",
    name="steady_state",
    title="Step time of two workers against stock DistributedDataParallel",
    method=(
        "The example, unchanged, as a job of two workers, and its twin under DDP (gloo, default settings, "
        "DistributedSampler, DataLoader) take turns: new processes each time, one thread each, the first "
        "steps left out. A turn's step time is the median time between two commits; the ratio is that of "
        "neighbouring turns. The ratio of means counts pauses as well."
    ),
)


@dataclass(frozen=True, kw_only=True)
class Load:
    """Say how much of a workload is trained in a turn, and what is to be reached."""

    workload: Workload
    warm_up: int
    steps: int
    turns: int
    target: Target


LOADS = (
    Load(workload=DIGITS, warm_up=100, steps=400, turns=7, target=Target(goal="<= 1.03", limit="<= 1.05")),
    Load(workload=MLP25M, warm_up=8, steps=25, turns=5, target=Target(goal="<= 1.00", limit="<= 1.05")),
)


def measure(quick: bool) -> Findings:
    """Measure all workloads."""
    figures: list[Figure] = []
    for load in LOADS:
        turns = take_turns(
            lambda load=load: _train_elastic(load),  # type: ignore[misc]
            lambda load=load: _train_stock(load),  # type: ignore[misc]
            2 if quick else load.turns,
        )
        figures += _make_figures(load, turns)
    return Findings(figures=figures)


def _make_figures(load: Load, turns: Turns) -> list[Figure]:
    name = load.workload.name
    medians = compute_ratios(turns.our_medians, turns.their_medians)
    means = compute_ratios(turns.our_means, turns.their_means)
    return [
        make_figure("step time / DDP", name, medians, "ratio", load.target),
        make_figure("mean step time / DDP", name, means, "ratio"),
        make_figure("step time, elastane", name, [s * 1e3 for s in turns.our_medians], "ms"),
        make_figure("step time, DDP", name, [s * 1e3 for s in turns.their_medians], "ms"),
    ]


def _train_elastic(load: Load) -> list[float]:
    plan = Plan(
        script=load.workload.script,
        arguments=(*load.workload.endless, "--virtual-workers", str(WORKERS)),
        workers=WORKERS,
    )
    with tempfile.TemporaryDirectory() as folder, ElasticJob(plan, Path(folder)) as job:
        job.wait_commits(load.warm_up + load.steps + 1)
        return compute_periods(job.commits[load.warm_up :][: load.steps + 1])


def _train_stock(load: Load) -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        stamps = train_ddp(load.workload, WORKERS, load.warm_up + load.steps + 1, Path(folder))
    return compute_steps_between(stamps[load.warm_up :])


if __name__ == "__main__":
    run_row(ROW, measure)
