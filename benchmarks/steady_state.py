"""B1: the step time of two workers against stock DistributedDataParallel."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.command import Findings, run_row
from benchmarks.elastic_job import ElasticJob, Plan
from benchmarks.figures import Figure, Row, Target
from benchmarks.pairs import Turn, make_turn_figures, take_turns
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
        "neighbouring turns. The ratio of means counts pauses as well. Processor time is that of both "
        "workers together, and hardly depends on what else the machine does."
    ),
    remarks=(
        "On mlp25m the gain is memory: under DDP the C library gives gradients and buffers back to the "
        "system and gets them again, zeroed, in every step (some 55,000 page faults per step and rank); "
        "elastane tells it to keep them. DDP that is started with MALLOC_MMAP_MAX_=0 and "
        "MALLOC_TRIM_THRESHOLD_=2147483647 takes as much processor time as elastane (about 203 ms per "
        "step and rank, against 198). On digits it is the way of the gradients: one message per peer "
        "instead of gloo's all-reduce."
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
        figures += make_turn_figures(turns, load.workload.name, "DDP", load.target)
    return Findings(figures=figures)


def _train_elastic(load: Load) -> Turn:
    plan = Plan(
        script=load.workload.script,
        arguments=(*load.workload.endless, "--virtual-workers", str(WORKERS)),
        workers=WORKERS,
    )
    with tempfile.TemporaryDirectory() as folder, ElasticJob(plan, Path(folder)) as job:
        return job.train_turn(load.warm_up, load.steps)


def _train_stock(load: Load) -> Turn:
    with tempfile.TemporaryDirectory() as folder:
        return train_ddp(load.workload, WORKERS, load.warm_up, load.steps, Path(folder))


if __name__ == "__main__":
    run_row(ROW, measure)
