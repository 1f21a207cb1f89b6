"""B16: what checkpoints cost a training: step time with one every 50 steps, the stop, the speed."""

import tempfile
from pathlib import Path

from benchmarks.command import Findings, run_row
from benchmarks.elastic_job import ElasticJob, Plan
from benchmarks.figures import NO_TARGET, Figure, Row, Target, compute_ratios, make_figure
from benchmarks.workloads import DIGITS, MLP25M, Workload

ROW = Row(
    id="B16",
    name="checkpoint_cost",
    title="Checkpoints: what one every 50 steps costs",
    method=(
        "Two workers train with a checkpoint every 50 steps and without any, taking turns; each turn is a "
        "job of its own. The step time is that of the whole turn, writing and syncing on the local disk "
        "included. The stop is how long the main worker's training stands still while it copies its half of "
        "the state, from the event log; the speed is the bytes of a checkpoint by the time from the copy to "
        "the manifest, which includes a step until all have heard of all shares."
    ),
)
EVERY_STEPS = 50
WARM_UP_STEPS = 10
TURNS = 5
CHECKPOINTS = 4
"""Checkpoints within a turn."""
WITH = ("--checkpoint-every", f"{EVERY_STEPS}steps")
WITHOUT = ("--checkpoint-every", "never")


def measure(quick: bool) -> Findings:
    """Measure both workloads."""
    figures: list[Figure] = []
    for workload in (DIGITS, MLP25M):
        turns, checkpoints = (1, 1) if quick else (TURNS, CHECKPOINTS)
        figures += _measure_workload(workload, turns=turns, checkpoints=checkpoints)
    return Findings(figures=figures)


def _measure_workload(workload: Workload, *, turns: int, checkpoints: int) -> list[Figure]:
    with_s: list[float] = []
    without_s: list[float] = []
    stops_ms: list[float] = []
    speeds: list[float] = []
    steps = checkpoints * EVERY_STEPS
    for _ in range(turns):
        for flags, times_s in ((WITH, with_s), (WITHOUT, without_s)):
            plan = Plan(script=workload.script, arguments=workload.endless, workers=2, flags=flags)
            with tempfile.TemporaryDirectory() as name, ElasticJob(plan, Path(name)) as job:
                job.wait_workers(2)
                job.wait_commits(WARM_UP_STEPS)
                began = len(job.commits)
                job.wait_commits(steps)
                taken = job.commits[began - 1 :]
                times_s.append((taken[-1].at_s - taken[0].at_s) / (len(taken) - 1))
                stops_ms += [1e3 * e.fields["stop_s"] for e in job.events("checkpoint_begun")]
                saved = [e.fields for e in job.events("checkpoint_saved")]
                speeds += [fields["bytes"] / 1e6 / fields["seconds"] for fields in saved]
    ratio = Target(goal="<= 1.05", limit="<= 1.25")
    return [
        make_figure("step time, with / without", workload.name, compute_ratios(with_s, without_s), "", ratio),
        make_figure("stop for the copy", workload.name, stops_ms, "ms", NO_TARGET),
        make_figure("written", workload.name, speeds, "MB/s", NO_TARGET),
    ]


if __name__ == "__main__":
    run_row(ROW, measure)
