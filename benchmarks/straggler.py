"""B8: a worker becomes slow in the middle of a job: what that costs, and what is left of it afterwards.

Run: python -m benchmarks.straggler [--out FILE.json] [--quick]. Turns are sleeps of a known length,
everything else is real: workers, gradients, protocol, and the slowness, which is that of `elastane chaos
--slow`.
"""

import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.analysis import compute_periods
from benchmarks.command import Findings, run_row
from benchmarks.elastic_job import ElasticJob, Plan
from benchmarks.figures import Figure, Row, Target, make_figure

SCRIPT = Path(__file__).parent / "scripts" / "paced.py"
WORKERS, DEVICES = 4, 6
WINDOW = 30
"""Steps whose median tells the step time."""
REPEATS = 3

ROW = Row(
    id="B8",
    name="straggler",
    title="A worker becomes slow: how soon is it found, and what is left of the throughput?",
    method="Four workers, turns of a known length. In the middle of the job one worker is made slow, as "
    "`elastane chaos --slow` does. Throughput is that of the median step, over the median step before. Steps "
    "are counted from the first slow one to the decision.",
    remarks="Replacing gives all of the throughput back. Rebalancing cannot give back what the slow worker "
    "no longer does: 6 of 7 where it works at half the speed; and it needs no device.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Say how slow the worker becomes and what is done about it."""

    name: str
    answer: str
    virtual_workers: int
    turn_s: float
    slowness: float
    best: float
    """Throughput that the answer can reach, over the undisturbed one."""


CASES = (
    Case(
        name="75 % of the speed, replaced",
        answer="auto",
        virtual_workers=8,
        turn_s=0.05,
        slowness=4 / 3,
        best=1.0,
    ),
    Case(
        name="half the speed, rebalanced",
        answer="rebalance",
        virtual_workers=24,
        turn_s=0.02,
        slowness=2.0,
        best=6 / 7,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Hold what one run showed."""

    slow: float
    after: float
    steps_until_found: float
    stop_s: float


def run_case(case: Case) -> Measured:
    """Run one job through one slow-down."""
    with tempfile.TemporaryDirectory() as text:
        plan = Plan(
            script=SCRIPT,
            arguments=("--turn", str(case.turn_s)),
            workers=WORKERS,
            flags=(
                *("--devices", str(DEVICES), "--virtual-workers", str(case.virtual_workers)),
                *("--stragglers", case.answer),
            ),
        )
        with ElasticJob(plan, Path(text)) as job:
            job.wait_commits(2 * WINDOW)
            before = job.commits[-WINDOW:]
            slow_at_s = job.slow_down(1, case.slowness)
            switch = job.wait_switch(1)
            job.wait_commits(WINDOW + 5)
            found = next(e for e in job.events("straggler") if e.fields["action"] != "bear")
            first, step = job.commits[0].step, switch["step"]
            # The step in flight was slow in part.
            slow_from = sum(commit.at_s <= slow_at_s for commit in job.commits) + 1
            during = job.commits[slow_from : step - first]
            after = job.commits[step - first + 3 :]
            undisturbed_s = statistics.median(compute_periods(before))
            return Measured(
                slow=undisturbed_s / statistics.median(compute_periods(during)),
                after=undisturbed_s / statistics.median(compute_periods(after)),
                steps_until_found=float(sum(commit.at_s <= found.at_s for commit in job.commits[slow_from:])),
                stop_s=switch["stop_s"],
            )


def describe(case: Case, runs: list[Measured]) -> list[Figure]:
    """Return the figures of one case."""
    name, left = case.name, [run.after for run in runs]
    return [
        make_figure("throughput while slow", name, [run.slow for run in runs], "ratio"),
        make_figure("throughput afterwards", name, left, "ratio"),
        make_figure(
            "throughput afterwards, of the best",
            name,
            [value / case.best for value in left],
            "ratio",
            Target(goal=">= 0.97"),
        ),
        make_figure(
            "steps until found", name, [run.steps_until_found for run in runs], "", Target(goal="<= 15")
        ),
        make_figure("stop of the change", name, [1000 * run.stop_s for run in runs], "ms"),
    ]


def measure(quick: bool) -> Findings:
    """Run all cases."""
    figures: list[Figure] = []
    for case in CASES:
        figures += describe(case, [run_case(case) for _ in range(1 if quick else REPEATS)])
    return Findings(figures=figures)


if __name__ == "__main__":
    run_row(ROW, measure)
