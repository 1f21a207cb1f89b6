"""B9: devices that are idle for minutes only: how much of their time is turned into training?

Run: python -m benchmarks.transient_devices [--out FILE.json] [--quick]. Steps are sleeps as long as a
recorded curve says, everything else is real: processes, control plane, gradients, joins.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.analysis import Commit, compute_periods, count_steps
from benchmarks.command import Findings, run_row
from benchmarks.elastic_job import ElasticJob, Plan
from benchmarks.figures import Figure, Row, Target, make_figure
from elastane.perf.curve import compute_curve
from elastane.sim.profiles import load_profile_set

SCRIPT = Path(__file__).parent / "scripts" / "synthetic.py"
FIXED = 4
IDLE = (1, 2, 4)
"""EDL, figure on transient idle GPUs: 4 fixed ones and so many more."""
PROFILES, PROFILE = "pcs-afs", "Resnet50Model128"
STEP_S = 0.2
"""A step on the fixed devices. ResNet-50 with 128 samples on each takes about twice as long on a V100."""
INTERVAL_S, QUICK_INTERVAL_S = 60.0, 10.0
"""EDL revokes idle GPUs after 4 minutes. Here they come and go 4 times as often, and every change costs what
it costs: the share that is lost is 4 times as large as it would be at 4 minutes."""
CYCLES = 2
WARM_UP = 10
REAL_INTERVAL_S = 240.0

ROW = Row(
    id="B9",
    name="transient_devices",
    title="Transient idle devices: how much of their time is turned into training?",
    method="A job has 4 devices; 1, 2 or 4 more come for 60 s, go for 60 s, and so on (EDL: 4 minutes; the "
    "changes are not scaled down, so they weigh 4 times as much). Steps are sleeps as long as a recorded "
    "curve of ResNet-50 says for each number of workers, 0.2 s with four; processes, control plane, "
    "exchange and joins are real, up to nine Python processes on the machine's cores. The ideal has all "
    "devices from the moment they come to the moment they are taken away, at the rate that the job has with "
    "so many between the changes. *At the curve's rates*: a step takes what the curve says, in which the "
    "exchange of another system is already, and ours costs nothing. *At 4 minutes* is computed: as "
    "many steps lost to the changes of a cycle, of a cycle of 8 minutes. The launch of a worker is from "
    "the request to the first common step; the others train on meanwhile.",
    remarks="What is missing has two causes: new devices prepare for the time of a launch, and a change "
    "waits for the end of a step. At the curve's rates the exchange of each step is missing too: eight "
    "workers share two cores for it. A sleep takes no processor time and no memory: what a newcomer takes "
    "from the others while it prepares, and the time to move a large model's state, are not in these "
    "figures (see B2 and B4).",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """Hold one interval with the idle devices and the one without that follows it.

    Attributes:
        steps: trained in both.
        ideal: steps of a system that has the devices at once and without cost, at the rates between changes.
        ideal_of_curve: the same at the rates of the recorded curve.
        fixed: steps that the fixed devices alone train in the same time.
        length_s: of both intervals.
    """

    steps: float
    ideal: float
    ideal_of_curve: float
    fixed: float
    length_s: float


def read_step_times() -> dict[int, float]:
    """Return the time of a step by number of workers, in seconds."""
    largest = FIXED + max(IDLE)
    curve = compute_curve(load_profile_set(PROFILES).profiles[PROFILE], largest).packed
    return {size: STEP_S * float(curve[FIXED] / curve[size]) for size in range(1, largest + 1)}


def run_case(idle: int, interval_s: float, cycles: int) -> tuple[list[Cycle], list[float], list[float]]:
    """Let `idle` devices come and go; return the cycles, the latencies of joins and the stops, in seconds."""
    step_times = read_step_times()
    with tempfile.TemporaryDirectory() as text:
        table = json.dumps({str(size): time_s for size, time_s in step_times.items()})
        plan = Plan(
            script=SCRIPT,
            arguments=("--step-times", table),
            workers=FIXED,
            flags=("--devices", str(FIXED + idle)),
        )
        with ElasticJob(plan, Path(text)) as job:
            job.wait_commits(WARM_UP)
            marks_s = []
            for _ in range(cycles):
                for size in (FIXED + idle, FIXED):
                    marks_s.append(job.scale(size))
                    wait_until_wall(job, marks_s[-1] + interval_s)
            marks_s.append(time.time())
            job.wait_commits(2)
            latencies_s = [event.fields["latency_s"] for event in job.events("joined")][FIXED:]
            stops_s = [event.fields["stop_s"] for event in job.switches()]
            times_s = measure_step_times(job.commits)
    sizes = (FIXED, FIXED + idle)
    moments = zip(marks_s[::2], marks_s[1::2], marks_s[2::2], strict=False)
    found = [compute_cycle(job.commits, three, sizes, step_times, times_s) for three in moments]
    return found, latencies_s, stops_s


def wait_until_wall(job: ElasticJob, at_s: float) -> None:
    """Wait until the job has committed a step after a moment of the wall clock."""
    while time.time() < at_s:
        job.wait_commits(1)


def measure_step_times(commits: Sequence[Commit]) -> dict[int, float]:
    """Return the median time between commits by number of workers."""
    periods: dict[int, list[float]] = {}
    for commit, period_s in zip(commits[1:], compute_periods(commits), strict=True):
        periods.setdefault(commit.workers, []).append(period_s)
    return {size: statistics.median(times) for size, times in periods.items()}


def compute_cycle(
    commits: Sequence[Commit],
    moments_s: tuple[float, float, float],
    sizes: tuple[int, int],
    step_times: dict[int, float],
    measured: dict[int, float],
) -> Cycle:
    """Return what a cycle trained and could have trained.

    Args:
        commits: of consecutive steps, from before the first moment to after the last.
        moments_s: when the devices came, went, and came again.
        sizes: workers without and with them.
        step_times: time of a step by number of workers, as the curve has it.
        measured: as it was.
    """
    came_s, went_s, end_s = moments_s
    few, many = sizes

    def train(times: dict[int, float]) -> float:
        return (went_s - came_s) / times[many] + (end_s - went_s) / times[few]

    return Cycle(
        steps=count_steps(commits, came_s, end_s),
        ideal=train(measured),
        ideal_of_curve=train(step_times),
        fixed=(end_s - came_s) / measured[few],
        length_s=end_s - came_s,
    )


def compute_at_leisure(cycle: Cycle) -> float:
    """Return the share of the ideal if the devices came and went every four minutes: as many steps lost."""
    return 1 - (1 - cycle.steps / cycle.ideal) * cycle.length_s / (2 * REAL_INTERVAL_S)


def describe(
    idle: int, cycles: Sequence[Cycle], latencies_s: Sequence[float], stops_s: Sequence[float]
) -> list[Figure]:
    """Return the figures of one case."""
    name = f"{FIXED} + {idle} devices"
    at_leisure = [compute_at_leisure(cycle) for cycle in cycles]
    return [
        make_figure(
            "throughput, of the ideal",
            name,
            [c.steps / c.ideal for c in cycles],
            "ratio",
            Target(goal=">= 0.99", limit=">= 0.97"),
        ),
        make_figure(
            "the same, at the curve's rates", name, [c.steps / c.ideal_of_curve for c in cycles], "ratio"
        ),
        make_figure("the same, at 4 minutes", name, at_leisure, "ratio"),
        make_figure(
            "throughput, of the fixed devices alone", name, [c.steps / c.fixed for c in cycles], "ratio"
        ),
        make_figure("launch of a worker", name, latencies_s, "s"),
        make_figure("stop of a change", name, [1000 * stop_s for stop_s in stops_s], "ms"),
    ]


def measure(quick: bool) -> Findings:
    """Let one, two and four devices come and go."""
    figures: list[Figure] = []
    interval_s, cycles = (QUICK_INTERVAL_S, 1) if quick else (INTERVAL_S, CYCLES)
    for idle in IDLE:
        figures += describe(idle, *run_case(idle, interval_s, cycles))
    return Findings(figures=figures)


if __name__ == "__main__":
    run_row(ROW, measure)
