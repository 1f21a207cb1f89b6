"""How the elastane policy compares with every other policy that does not know the future, trace by trace.

Run: python -m benchmarks.policy_comparison --out FILE.json [--quick]. EDL's overheads are charged on every
change. For each trace: mean JCT against the best of the others, and p99 and finish-time fairness against
Tiresias. Wins and losses are both printed.
"""

from __future__ import annotations

import multiprocessing
from dataclasses import dataclass
from pathlib import Path

from benchmarks.simulator_figures import Figure, make_figure, parse_arguments, report
from elastane.model.cluster import Cluster, Workload
from elastane.perf.overhead import PRESETS
from elastane.policy.registry import POLICIES, make_policy
from elastane.sim.engine import simulate
from elastane.sim.readers.read import read_trace
from elastane.sim.result import Metrics
from elastane.sim.workload import WorkloadOptions, prepare_workload

TRACES = Path(__file__).parents[1] / "data" / "traces"

OURS = "elastane"
RIVALS = tuple(name for name, kind in POLICIES.items() if not kind.clairvoyant and name != OURS)


@dataclass(frozen=True, slots=True)
class Case:
    """Name a part of a trace and a cluster of one pool."""

    name: str
    path: str
    devices: int
    first: int = 0
    jobs: int = 2000


CASES = (
    Case("tiresias 60_job", "tiresias/60_job.csv", 16),
    Case("tiresias philly_ee9e8c", "tiresias/philly_ee9e8c.csv", 128),
    Case("philly 109k, jobs 20000-22000", "philly/philly_109k.csv.gz", 128, 20_000),
    Case("philly 109k, jobs 60000-62000", "philly/philly_109k.csv.gz", 256, 60_000),
    Case("philly 82k, jobs 40000-42000", "philly/philly_82k.csv.gz", 64, 40_000),
    Case("itp 01", "itp/cluster01.csv.gz", 256),
    Case("itp 03", "itp/cluster03.csv.gz", 256),
    Case("itp 06", "itp/cluster06.csv.gz", 256),
    Case("itp 10", "itp/cluster10.csv.gz", 128),
    Case("elasticflow 195job", "itp_elasticflow/195job.csv", 64),
    Case("elasticflow philly_103959", "elasticflow/philly_103959.csv", 128),
    Case("gavel generated", "gavel/gavel_generated_seed0_lam1800_multigpu.trace.gz", 32),
    *(Case(f"pollux workload-{i}", f"pollux/workloads/workload-{i}.csv", 64) for i in range(1, 9)),
    Case("pollux 0.5x workload-1", "pollux/workloads-0.5/workload-1.csv", 64),
    Case("pollux 2x workload-1", "pollux/workloads-2.0/workload-1.csv", 64),
    Case("shockwave 120 jobs", "shockwave/120_jobs.trace.gz", 32),
    Case("shockwave 460 jobs", "shockwave/460_jobs.trace.gz", 32),
    Case("shockwave 460 jobs", "shockwave/460_jobs.trace.gz", 64),
)


def run(task: tuple[Case, str]) -> Metrics:
    """Return the figures of one policy on one case."""
    case, name = task
    cluster = Cluster.of(1, case.devices)
    whole = prepare_workload(read_trace(TRACES / case.path), cluster, WorkloadOptions()).workload
    jobs = whole.jobs[case.first : case.first + case.jobs]
    workload = Workload(name=case.name, jobs=jobs, profiles=whole.profiles)
    return simulate(workload, cluster, make_policy(name), overhead=PRESETS["edl"]).metrics


def describe(case: Case, outcomes: dict[str, Metrics]) -> list[Figure]:
    """Return the figures of one case and print its line."""
    ours, plain = outcomes[OURS], outcomes["tiresias"]
    best = min(RIVALS, key=lambda name: outcomes[name].jct_mean_s)
    against_best = 100.0 * (ours.jct_mean_s / outcomes[best].jct_mean_s - 1.0)
    against_plain = 100.0 * (ours.jct_mean_s / plain.jct_mean_s - 1.0)
    p99 = 100.0 * (ours.jct_p99_s / plain.jct_p99_s - 1.0)
    print(
        f"{case.name:30s} {ours.jct_mean_s:10.0f} s  best other {best:16s} {against_best:+7.2f} %  "
        f"tiresias {against_plain:+7.1f} %  p99 {p99:+7.1f} %  "
        f"rho worst {ours.rho_worst:6.2f} : {plain.rho_worst:8.2f}  "
        f"unfair {ours.rho_unfair_share:.3f} : {plain.rho_unfair_share:.3f}",
        flush=True,
    )
    return [
        make_figure("mean JCT against best other", case.name, [against_best], "%", "< 0"),
        make_figure("mean JCT against tiresias", case.name, [against_plain], "%", "< 0"),
        make_figure("p99 JCT against tiresias", case.name, [p99], "%", "<= 0"),
        make_figure("worst rho less tiresias's", case.name, [ours.rho_worst - plain.rho_worst], "", "<= 0"),
        make_figure(
            "unfair share less tiresias's",
            case.name,
            [ours.rho_unfair_share - plain.rho_unfair_share],
            "",
            "<= 0",
        ),
    ]


def main() -> None:
    """Run every policy on every case and report."""
    arguments = parse_arguments(__doc__ or "")
    cases = [case for case in CASES if not arguments.quick or case.name.startswith(("tiresias", "pollux w"))]
    names = (*RIVALS, OURS)
    figures: list[Figure] = []
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for case in cases:
            metrics = pool.map(run, [(case, name) for name in names], chunksize=1)
            figures += describe(case, dict(zip(names, metrics, strict=True)))
    report("policies", figures, arguments.out)


if __name__ == "__main__":
    main()
