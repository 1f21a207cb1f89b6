"""The autoscaler in a real job whose steps take what a recorded curve says: part of B11.

Processes, joins, exchange and decisions are real; the steps are sleeps, as in `benchmarks.transient_devices`.
"""

import json
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from benchmarks.analysis import compute_periods
from benchmarks.elastic_job import ElasticJob, Plan
from benchmarks.figures import Figure, Target, make_figure
from elastane.perf.curve import compute_curve
from elastane.sim.profiles import load_profile_set

SCRIPT = Path(__file__).parent / "scripts" / "synthetic.py"
NAME = "DeepSpeech, live"
PROFILES, PROFILE = "pcs-afs", "DeepspeechModel64"
"""Its fourth worker adds a quarter of one, its fifth a twentieth: noise does not decide."""
STEP_S = 0.25
"""A step with one worker."""
MOST = 6
"""Workers: more processes would share the two cores of the smallest machine."""
AFTER_STEPS = 20
"""Steps whose median is the step time of the size that was kept."""
JOB_S = 3600.0
"""The search is weighed against a job of an hour, as in the replay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRun:
    """Hold one search.

    Attributes:
        settled: the size that it came to.
        changes: of the number of workers until then.
        settled_after_s: from the first step on.
        lost_s: how much longer the steps until then took than with the size that was kept.
    """

    settled: int
    changes: int
    settled_after_s: float
    lost_s: float


def read_step_times() -> dict[int, float]:
    """Return the time of a step by number of workers, in seconds."""
    curve = compute_curve(load_profile_set(PROFILES).profiles[PROFILE], MOST).packed
    return {size: STEP_S * float(curve[1] / curve[size]) for size in range(1, MOST + 1)}


def choose_by_rule(step_times: Mapping[int, float], efficiency: float = 0.1) -> int:
    """Return the size before the efficiency condition fails first, by the whole curve."""
    for fewer, more in pairwise(sorted(step_times)):
        low, high = 1 / step_times[fewer], 1 / step_times[more]
        if not (high - low) / (more - fewer) / (low / fewer) > efficiency:
            return fewer
    return max(step_times)


def run_live(step_times: Mapping[int, float]) -> LiveRun:
    """Let a job of one worker find its number."""
    with tempfile.TemporaryDirectory() as text:
        table = json.dumps({str(size): time_s for size, time_s in step_times.items()})
        plan = Plan(
            script=SCRIPT,
            arguments=("--step-times", table),
            workers=1,
            flags=("--devices", str(MOST), "--autoscale", f"max={MOST}"),
        )
        with ElasticJob(plan, Path(text)) as job:
            settled = job.wait_event("autoscale", lambda event: event.fields["settled"])
            job.wait_workers(settled.fields["wanted"])
            job.wait_commits(AFTER_STEPS + 2)
            commits = job.commits
            before = [commit for commit in commits if commit.at_s <= settled.at_s]
            kept_s = statistics.median(compute_periods(commits[-AFTER_STEPS:]))
            spent_s = settled.at_s - commits[0].at_s
            return LiveRun(
                settled=settled.fields["wanted"],
                changes=len(job.switches()),
                settled_after_s=spent_s,
                lost_s=spent_s - (len(before) - 1) * kept_s,
            )


def measure_live(runs: int) -> list[Figure]:
    """Return the figures of so many searches."""
    step_times = read_step_times()
    return describe_live([run_live(step_times) for _ in range(runs)], step_times)


def describe_live(runs: Sequence[LiveRun], step_times: Mapping[int, float]) -> list[Figure]:
    """Return the figures of these searches."""
    best_s = step_times[choose_by_rule(step_times)]
    times = [step_times[run.settled] / best_s * (JOB_S + run.lost_s) / JOB_S for run in runs]
    return [
        make_figure("settled at", NAME, [float(run.settled) for run in runs], "workers"),
        make_figure(
            "changes until settled", NAME, [float(run.changes) for run in runs], "", Target(goal="<= 10")
        ),
        make_figure("settled after", NAME, [run.settled_after_s for run in runs], "s"),
        make_figure("lost in the search", NAME, [run.lost_s for run in runs], "s"),
        make_figure("time, of the best by the rule", NAME, times, "ratio", Target(goal="<= 1.03")),
    ]
