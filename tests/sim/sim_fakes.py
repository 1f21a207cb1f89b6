"""Small traces and comparisons that several tests share."""

from __future__ import annotations

from functools import cache

from elastane.perf.overhead import PRESETS
from elastane.sim.cluster_text import parse_cluster
from elastane.sim.compare import Setting
from elastane.sim.readers.rows import LeftOut, Trace, TraceRow
from elastane.sim.report.comparison import Comparison
from elastane.sim.request import SimRequest, prepare_request, run_request
from elastane.sim.workload import WorkloadOptions


def small_trace(jobs: int = 24, devices: tuple[int, ...] = (1, 2, 4, 8)) -> Trace:
    """Return jobs of several sizes and lengths that overload eight devices for a while."""
    rows = tuple(
        TraceRow(
            line=i + 2,
            job_id=f"job<{i}>",
            submit_s=60.0 * i,
            devices=devices[i % len(devices)],
            duration_s=100.0 + 37.0 * (i * i % 11),
            tenant=("vision", "speech & text")[i % 2],
            model="GooglenetModel128",
        )
        for i in range(jobs)
    )
    left_out = (LeftOut(reason="duration is negative", count=7, examples=("line 9 ('-1')",)),)
    return Trace(name="small.csv", format="csv", rows=rows, left_out=left_out, notes=("a note",))


def small_setting() -> Setting:
    """Return one node of eight devices at EDL's costs."""
    return Setting(cluster=parse_cluster("1x8"), overhead=PRESETS["edl"], options=WorkloadOptions())


@cache
def small_comparison(
    policies: tuple[str, ...] = ("fifo", "srtf", "elastic-tiresias"), sweep: tuple[str, ...] = ()
) -> Comparison:
    """Return a finished comparison of the small trace."""
    request = SimRequest(policies=policies, cluster="1x8", sweep=sweep)
    trace = small_trace()
    return run_request(request, trace, prepare_request(request, trace), lambda number, share: None)
