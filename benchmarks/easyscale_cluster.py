"""EasyScale on 64 unlike devices against FIFO with backfill, every rescale charged.

Run: python -m benchmarks.easyscale_cluster --out FILE.json [--quick]. Cluster: 32 fast, 16 middling and 16
slow devices (V100, P100 and K80 of Gavel's measurements). Jobs come from Philly: sizes, running times and
order; they are scaled to the given load. Each job has as many virtual workers as devices requested. EasyScale
reconfigures by checkpoint and restart, so stop-resume costs are charged; FIFO pays none, as it never resizes.
The paper's own baseline runs one job at a time; this one does not.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from benchmarks.simulator_figures import Figure, make_figure, parse_arguments, report
from elastane.model.cluster import Cluster, JobSpec, Node, Workload
from elastane.perf.overhead import PRESETS
from elastane.policy.base import Policy
from elastane.policy.registry import make_policy
from elastane.sim.engine import simulate
from elastane.sim.readers.read import read_trace
from elastane.sim.result import Metrics
from elastane.sim.workload import WorkloadOptions, prepare_workload

TRACE = Path(__file__).parents[1] / "data" / "traces" / "philly" / "philly_82k.csv.gz"
FIRST, JOBS = 30_000, 400
LOADS = (0.6, 0.9, 1.2)

CLUSTER = Cluster(
    nodes=(
        *(Node(name=f"v{i}", devices=8, device_type="v100") for i in range(4)),
        *(Node(name=f"p{i}", devices=8, device_type="p100") for i in range(2)),
        *(Node(name=f"k{i}", devices=8, device_type="k80") for i in range(2)),
    ),
    pooling="type",
)

POLICIES: dict[str, Policy] = {
    "fifo-backfill": make_policy("fifo-backfill"),
    "easyscale, equal devices": make_policy("easyscale", unlike=False),
    "easyscale, unlike devices": make_policy("easyscale"),
}


def split_into_pieces(job: JobSpec) -> JobSpec:
    """Return the job with one virtual worker for each device requested, and never more devices than that."""
    return msgspec.structs.replace(job, virtual_workers=job.requested, max_devices=job.requested)


def prepare(load: float, jobs: int) -> Workload:
    """Return a part of the trace, at `load` device-seconds asked for over those there are."""
    trace = read_trace(TRACE)
    whole = prepare_workload(trace, CLUSTER, WorkloadOptions(profiles="gavel")).workload
    part = whole.jobs[FIRST : FIRST + jobs]
    span_s = part[-1].submit_s - part[0].submit_s
    offered = sum(job.requested * job.work_s for job in part) / (CLUSTER.capacity * span_s)
    moved = (
        msgspec.structs.replace(
            split_into_pieces(job), submit_s=(job.submit_s - part[0].submit_s) * offered / load
        )
        for job in part
    )
    return Workload(name="philly_82k", jobs=tuple(moved), profiles=whole.profiles)


def run(workload: Workload, policy: Policy) -> Metrics:
    """Return the figures of one policy."""
    return simulate(workload, CLUSTER, policy, overhead=PRESETS["edl-stop-resume"]).metrics


def main() -> None:
    """Run all policies at all loads and report."""
    arguments = parse_arguments(__doc__ or "")
    figures: list[Figure] = []
    for load in LOADS[:1] if arguments.quick else LOADS:
        workload = prepare(load, 60 if arguments.quick else JOBS)
        base = run(workload, POLICIES["fifo-backfill"])
        for name, policy in POLICIES.items():
            metrics = run(workload, policy)
            case = f"{name}, load {load}"
            change = 100.0 * (metrics.jct_mean_s / base.jct_mean_s - 1.0)
            figures += [
                make_figure("mean JCT against fifo-backfill", case, [change], "%", "< 0"),
                make_figure("mean JCT", case, [metrics.jct_mean_s], "s"),
                make_figure("makespan", case, [metrics.makespan_s], "s"),
                make_figure("utilisation", case, [metrics.utilisation], "share"),
                make_figure("device time lost to rescaling", case, [metrics.lost_share], "share"),
            ]
    report("easyscale", figures, arguments.out)


if __name__ == "__main__":
    main()
