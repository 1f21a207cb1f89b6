"""B14: how fast the simulator replays 109,532 real jobs in one pool, and how its time grows with jobs.

Run: python -m benchmarks.simulator_speed --out FILE.json [--quick] [--repeat N]. Each case runs in a process
of its own, one after another: CPU seconds of the run itself, without reading the trace, and peak memory.
Growth: CPU time for each job of the first half of the trace against the whole, at the trace's own load.
"""

from __future__ import annotations

import multiprocessing
import resource
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.simulator_figures import Figure, make_figure, parse_arguments, report
from elastane.model.cluster import Cluster, Workload
from elastane.perf.overhead import PRESETS
from elastane.policy.registry import make_policy
from elastane.sim.engine import simulate
from elastane.sim.readers.read import read_trace
from elastane.sim.workload import WorkloadOptions, prepare_workload

TRACE = Path(__file__).parents[1] / "data" / "traces" / "philly" / "philly_109k.csv.gz"

GOALS_CPU_S = {"fifo": 30, "srtf": 60, "tiresias": 60, "elastic-tiresias": 60, "elastane": 60}
"""CPU seconds on one core for the whole trace in a pool of 700 to 900 devices."""

CAPACITIES = (700, 900)
QUICK_JOBS = 5000


@dataclass(frozen=True, slots=True)
class Measured:
    """Hold what one run took and met."""

    cpu_s: float
    peak_mib: float
    jobs: int
    events: int
    changes: int
    peak_waiting: int


def measure(policy: str, capacity: int, jobs: int | None) -> Measured:
    """Replay the first `jobs` jobs (None: all) and return what it took."""
    cluster = Cluster.of(1, capacity)
    whole = prepare_workload(read_trace(TRACE), cluster, WorkloadOptions()).workload
    workload = Workload(name=whole.name, jobs=whole.jobs[:jobs], profiles=whole.profiles)
    begin_s = time.process_time()
    result = simulate(workload, cluster, make_policy(policy), overhead=PRESETS["edl"])
    cpu_s = time.process_time() - begin_s
    counters = result.counters
    return Measured(
        cpu_s=cpu_s,
        # Linux counts KiB.
        peak_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        jobs=len(workload.jobs),
        events=counters.events,
        changes=counters.changes,
        peak_waiting=counters.peak_waiting,
    )


def measure_apart(policy: str, capacity: int, jobs: int | None, repeat: int) -> list[Measured]:
    """Return `repeat` measurements, each from a fresh process, so that peak memory is that run's own."""
    context = multiprocessing.get_context("spawn")
    runs = []
    for _ in range(repeat):
        with context.Pool(1) as pool:
            runs.append(pool.apply(measure, (policy, capacity, jobs)))
    return runs


def describe(policy: str, capacity: int, runs: list[Measured]) -> list[Figure]:
    """Return the figures of one case."""
    case = f"{policy}, {capacity} devices"
    cpu_goal = f"<= {GOALS_CPU_S[policy]}"
    return [
        make_figure("CPU time", case, [run.cpu_s for run in runs], "s", cpu_goal),
        make_figure("jobs per CPU second", case, [run.jobs / run.cpu_s for run in runs], "jobs/s", ">= 2550"),
        make_figure("time per event", case, [1e6 * run.cpu_s / run.events for run in runs], "us"),
        make_figure("changes", case, [run.changes for run in runs], ""),
        make_figure("peak of waiting jobs", case, [run.peak_waiting for run in runs], "jobs"),
        make_figure("peak memory", case, [run.peak_mib for run in runs], "MiB", "<= 1024"),
    ]


def main() -> None:
    """Measure all cases and report."""
    arguments = parse_arguments(__doc__ or "")
    jobs = QUICK_JOBS if arguments.quick else None
    figures: list[Figure] = []
    for capacity in CAPACITIES[:1] if arguments.quick else CAPACITIES:
        for policy in GOALS_CPU_S:
            runs = measure_apart(policy, capacity, jobs, arguments.repeat)
            figures += describe(policy, capacity, runs)
            half = measure_apart(policy, capacity, runs[0].jobs // 2, 1)[0]
            growth = [(run.cpu_s / run.jobs) / (half.cpu_s / half.jobs) for run in runs]
            case = f"{policy}, {capacity} devices"
            figures.append(make_figure("time per job, all against half", case, growth, "ratio", "about 1"))
    report("B14", figures, arguments.out)


if __name__ == "__main__":
    main()
