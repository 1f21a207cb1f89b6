"""The step times of a job that grows in the middle, as a picture: the pause is seen as it is."""

import tempfile
from pathlib import Path

from benchmarks.analysis import Commit, compute_periods
from benchmarks.command import Findings, run_row
from benchmarks.elastic_job import ElasticJob, Plan
from benchmarks.figures import Chart, Row, Series
from benchmarks.workloads import DIGITS, MLP25M, Workload

ROW = Row(
    id="Timeline",
    name="timeline",
    title="Every step of a job that grows from one to two workers",
    method=(
        "One run of each workload, not picked. Each point is a committed step; its height is the time "
        "since the commit before, so whatever stops a job lifts a point. Zero is the moment of the "
        "request; between it and the switch the new worker prepares itself on the same two cores."
    ),
)

STEPS_AROUND = {DIGITS.name: 150, MLP25M.name: 10}


def measure(quick: bool) -> Findings:
    """Run both workloads once."""
    share = 2 if quick else 1
    charts = [_run(workload, STEPS_AROUND[workload.name] // share) for workload in (DIGITS, MLP25M)]
    return Findings(figures=[], charts=charts)


def _run(workload: Workload, around: int) -> Chart:
    plan = Plan(script=workload.script, arguments=workload.endless, workers=1)
    with tempfile.TemporaryDirectory() as folder, ElasticJob(plan, Path(folder)) as job:
        job.wait_commits(2 * around)
        first = len(job.commits) - around
        requested_at_s = job.scale(2)
        switch_step: int = job.wait_switch(1)["step"]
        job.wait_commits(2 * around)
        return make_chart(workload.name, job.commits[first:], requested_at_s, switch_step, around)


def make_chart(
    workload: str, commits: list[Commit], requested_at_s: float, switch_step: int, around: int
) -> Chart:
    """Return the picture of the steps from `commits[0]` to `around` steps after the switch."""
    shown = [commit for commit in commits if commit.step < switch_step + around]
    points = [
        (later, (later.at_s - requested_at_s, period_s * 1e3))
        for later, period_s in zip(shown[1:], compute_periods(shown), strict=True)
    ]
    counts = sorted({commit.workers for commit in shown})
    switch = next(commit for commit in shown if commit.step == switch_step)
    return Chart(
        name=f"timeline-{workload}",
        title=f"{workload}: from one to two workers",
        x_label="seconds since the request",
        y_label="milliseconds since the commit before",
        series=[
            Series(
                label=f"{count} worker{'s' if count > 1 else ''}",
                points=[point for commit, point in points if commit.workers == count],
            )
            for count in counts
        ],
        marks=[(0.0, "request"), (switch.at_s - requested_at_s, "first step together")],
    )


if __name__ == "__main__":
    run_row(ROW, measure)
