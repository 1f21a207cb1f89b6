"""B10: what virtual workers cost on one worker, against plain gradient accumulation."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.command import Findings, run_row
from benchmarks.elastic_job import ElasticJob, Plan
from benchmarks.figures import Figure, Row, Target
from benchmarks.pairs import Turn, make_turn_figures, take_turns
from benchmarks.stock import train_accumulating
from benchmarks.workloads import DIGITS, LM, MLP25M, Workload

VIRTUAL_WORKERS = 8

ROW = Row(
    id="B10",
    name="virtual_worker_cost",
    title="Cost of 8 virtual workers on one worker against plain gradient accumulation",
    method=(
        "The example as a job of one worker with 8 virtual workers, and its twin as one stock process "
        "that accumulates the gradients of 8 micro-batches of the same size, take turns; one thread each, "
        "the first steps left out. Both read the loss of every micro-batch. The ratio is that of the "
        "median step times of neighbouring turns."
    ),
    remarks=(
        "Both sides add as many gradients. What a virtual worker costs beside that is Python: seeding "
        "three generators, restoring buffers, bookkeeping of batches and gradients, some 0.1 ms of a batch's "
        "1.5 ms (digits) and 9 ms (lm). On lm it is made up for by batches that come from the data-loading "
        "process by value instead of through shared memory; mlp25m gains far more by keeping freed memory "
        "(see B1)."
    ),
)

TARGET = Target(goal="<= 1.01", limit="<= 1.03")


@dataclass(frozen=True, kw_only=True)
class Load:
    """Say how much of a workload is trained in a turn."""

    workload: Workload
    warm_up: int
    steps: int
    turns: int


LOADS = (
    Load(workload=DIGITS, warm_up=15, steps=80, turns=7),
    Load(workload=MLP25M, warm_up=2, steps=7, turns=5),
    Load(workload=LM, warm_up=8, steps=40, turns=5),
)


def measure(quick: bool) -> Findings:
    """Measure all workloads."""
    figures: list[Figure] = []
    for load in LOADS:
        turns = take_turns(
            lambda load=load: _train_elastic(load),  # type: ignore[misc]
            lambda load=load: _train_stock(load),  # type: ignore[misc]
            1 if quick else load.turns,
        )
        figures += make_turn_figures(turns, load.workload.name, "accumulation", TARGET)
    return Findings(figures=figures)


def _train_elastic(load: Load) -> Turn:
    plan = Plan(
        script=load.workload.script,
        arguments=(*load.workload.endless, "--virtual-workers", str(VIRTUAL_WORKERS)),
        workers=1,
    )
    with tempfile.TemporaryDirectory() as folder, ElasticJob(plan, Path(folder)) as job:
        return job.train_turn(load.warm_up, load.steps)


def _train_stock(load: Load) -> Turn:
    with tempfile.TemporaryDirectory() as folder:
        return train_accumulating(load.workload, VIRTUAL_WORKERS, load.warm_up, load.steps, Path(folder))


if __name__ == "__main__":
    run_row(ROW, measure)
