"""B13: Tiresias against Elastic-Tiresias on real traces, every change charged, as a map of regimes.

Run: python -m benchmarks.elastic_tiresias --out FILE.json [--quick]. Sources: Microsoft's Philly and ITP
clusters and Pollux's workloads. Rows are cluster sizes, columns offered loads (device-seconds asked for over
those there are while jobs arrive); submission times are scaled to reach a load. Both policies have EDL's
queues (500 and 10,000 GPU-seconds) and pay EDL's overheads. Published: -89.5 % mean JCT on a Microsoft trace.
"""

from __future__ import annotations

import itertools
import multiprocessing
from dataclasses import dataclass
from pathlib import Path

from benchmarks.simulator_figures import Figure, make_figure, parse_arguments, report
from elastane.model.cluster import Cluster, Workload
from elastane.perf.overhead import PRESETS
from elastane.policy.base import Policy
from elastane.policy.registry import make_policy
from elastane.sim.engine import simulate
from elastane.sim.readers.read import read_trace
from elastane.sim.workload import WorkloadOptions, prepare_workload

TRACES = Path(__file__).parents[1] / "data" / "traces"

EDL_LIMITS = (500.0, 10_000.0)
PUBLISHED = "<= -89.5"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Name a trace, the part of it that is used, and the cluster sizes and loads of its map."""

    name: str
    path: str
    first: int
    jobs: int
    capacities: tuple[int, ...]
    loads: tuple[float, ...]


LOADS = (0.6, 0.9, 1.2, 1.6, 2.5)
SOURCES = (
    Source(
        name="philly",
        path="philly/philly_109k.csv.gz",
        first=20_000,
        jobs=8_000,
        capacities=(256, 512),
        loads=LOADS,
    ),
    Source(
        name="itp-01", path="itp/cluster01.csv.gz", first=0, jobs=5000, capacities=(128, 512), loads=LOADS
    ),
    Source(name="itp-10", path="itp/cluster10.csv.gz", first=0, jobs=5000, capacities=(64, 256), loads=LOADS),
    Source(
        name="pollux",
        path="pollux/workloads/workload-6.csv",
        first=0,
        jobs=1000,
        capacities=(32, 64),
        loads=LOADS,
    ),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """Hold one point of a map."""

    source: Source
    capacity: int
    load: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """Hold both policies' mean JCT, what the elastic one lost to changes, and both efficiencies."""

    tiresias_s: float
    elastic_s: float
    lost_share: float
    resizes_per_job: float
    efficiency: tuple[float, float]

    @property
    def change(self) -> float:
        """Return the change of mean JCT in per cent."""
        return 100.0 * (self.elastic_s / self.tiresias_s - 1.0)


def prepare(cell: Cell) -> tuple[Workload, Cluster]:
    """Return the part of the trace on its cluster at its load."""
    source, cluster = cell.source, Cluster.of(1, cell.capacity)
    trace = read_trace(TRACES / source.path)
    as_it_is = prepare_workload(trace, cluster, WorkloadOptions())
    part = as_it_is.workload.jobs[source.first : source.first + source.jobs]
    span_s = part[-1].submit_s - part[0].submit_s
    offered = sum(job.requested * job.work_s for job in part) / (cell.capacity * span_s)
    scaled = prepare_workload(trace, cluster, WorkloadOptions(load=cell.load / offered)).workload
    jobs = scaled.jobs[source.first : source.first + source.jobs]
    return Workload(name=source.name, jobs=jobs, profiles=scaled.profiles), cluster


def compare(cell: Cell) -> Outcome:
    """Run both policies on one cell."""
    workload, cluster = prepare(cell)

    def run(policy: Policy) -> tuple[float, float, float, float]:
        metrics = simulate(workload, cluster, policy, overhead=PRESETS["edl"]).metrics
        return metrics.jct_mean_s, metrics.lost_share, metrics.resizes_per_job, metrics.cluster_efficiency

    plain = run(make_policy("tiresias", limits=EDL_LIMITS))
    elastic = run(make_policy("elastic-tiresias", limits=EDL_LIMITS))
    return Outcome(plain[0], elastic[0], elastic[1], elastic[2], (plain[3], elastic[3]))


def print_map(source: Source, outcomes: dict[tuple[int, float], Outcome]) -> None:
    """Print the change of mean JCT by cluster size and load."""
    print(f"\n{source.name}: change of mean JCT in %, rows: devices, columns: offered load")
    print("        " + "".join(f"{load:>9.2f}" for load in source.loads))
    for capacity in source.capacities:
        cells = [outcomes.get((capacity, load)) for load in source.loads]
        print(f"{capacity:8d}" + "".join("        -" if c is None else f"{c.change:9.1f}" for c in cells))


def describe(cell: Cell, outcome: Outcome) -> list[Figure]:
    """Return the figures of one cell."""
    case = f"{cell.source.name}, {cell.capacity} devices, load {cell.load}"
    return [
        make_figure("mean JCT, elastic against plain", case, [outcome.change], "%", PUBLISHED),
        make_figure("mean JCT, tiresias", case, [outcome.tiresias_s], "s"),
        make_figure("mean JCT, elastic-tiresias", case, [outcome.elastic_s], "s"),
        make_figure("cluster efficiency, tiresias", case, [outcome.efficiency[0]], "share"),
        make_figure("cluster efficiency, elastic-tiresias", case, [outcome.efficiency[1]], "share"),
        make_figure("device time lost to changes", case, [outcome.lost_share], "share"),
        make_figure("resizes per job", case, [outcome.resizes_per_job], ""),
    ]


def main() -> None:
    """Fill every source's map and report."""
    arguments = parse_arguments(__doc__ or "")
    figures: list[Figure] = []
    sources = SOURCES[2:] if arguments.quick else SOURCES
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for source in sources:
            sizes = source.capacities[:1] if arguments.quick else source.capacities
            loads = (0.8, 1.5) if arguments.quick else source.loads
            cells = [Cell(source, *pair) for pair in itertools.product(sizes, loads)]
            outcomes = pool.map(compare, cells, chunksize=1)
            by_place = {(c.capacity, c.load): o for c, o in zip(cells, outcomes, strict=True)}
            print_map(source, by_place)
            for cell, outcome in zip(cells, outcomes, strict=True):
                figures += describe(cell, outcome)
    best = min(entry.value for entry in figures if entry.unit == "%")
    figures.append(make_figure("best change of mean JCT", "all", [best], "%", PUBLISHED))
    report("B13", figures, arguments.out)


if __name__ == "__main__":
    main()
