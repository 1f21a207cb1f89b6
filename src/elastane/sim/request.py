"""What a user asks of the simulator, checked as a whole, and carrying it out.

`elastane sim` and Python programs alike make a SimRequest and get a Comparison. Every contradiction is found
before the first line of a trace is read. Writes nothing.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from elastane.model.cluster import Cluster
from elastane.model.errors import ConfigError
from elastane.perf.overhead import Overhead, parse_overhead
from elastane.sim.cluster_text import parse_cluster
from elastane.sim.compare import (
    Failure,
    OnProgress,
    PolicyRun,
    Setting,
    SweepRun,
    Task,
    run_tasks,
)
from elastane.sim.policy_choice import choose_labels, make_policy
from elastane.sim.profiles import SAMPLE_PACKAGE, load_profile_set
from elastane.sim.readers import EVERYTHING, Selection, Trace, format_named, read_trace
from elastane.sim.readers.history import compute_history
from elastane.sim.report.comparison import Comparison
from elastane.sim.sweep import Axis, list_points, parse_sweep
from elastane.sim.workload import AS_IT_IS, Preparation, WorkloadOptions, prepare_workload

SAMPLE_CLUSTER = "10x8"
"""Cluster of the built-in sample: its 400 jobs ask for 101 % of it, so that policies differ."""

DEFAULT_POLICIES = ("fifo-backfill", "tiresias", "elastic-tiresias", "elastane")
"""What most clusters run, the best-known policy from research, its elastic form, and our own."""

DEFAULT_OVERHEAD = "edl"
"""Every change is charged as EDL measured it: leaving costs out flatters policies that change a lot."""

_IDLE_LOAD = 0.3
"""Below this offered load queues hardly form and policies hardly differ."""

_LARGE_PART = 0.2
"""A larger part of left-out rows is worth a warning: results may not be those of the whole trace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimRequest:
    """Hold a request. `trace` None is the built-in sample; texts are as a user types them."""

    trace: Path | None = None
    policies: tuple[str, ...] = DEFAULT_POLICIES
    cluster: str | None = None
    format_name: str | None = None
    overhead: str = DEFAULT_OVERHEAD
    sweep: tuple[str, ...] = ()
    selection: Selection = EVERYTHING
    options: WorkloadOptions = AS_IT_IS
    by_node: bool = False
    round_s: float = 0.0
    processes: int = 1

    def __post_init__(self) -> None:
        _check_policies(self.policies)
        if self.trace is None and self.format_name is not None:
            raise ConfigError(f"--format {self.format_name} without a trace: the sample's format is known.")
        if self.format_name is not None:
            format_named(self.format_name)
        if self.cluster is not None:
            parse_cluster(self.cluster)
        if self.options.profiles is not None:
            load_profile_set(self.options.profiles)
        if self.processes < 1:
            raise ConfigError(f"--jobs {self.processes}: at least one process is needed.")
        if not 0 <= self.round_s < float("inf"):
            raise ConfigError(f"--round {self.round_s}: a round lasts 0 seconds (no rounds) or more.")
        parse_overhead(self.overhead)
        self._check_sweep()

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Return the axes of the sweep, none if there is no sweep."""
        return parse_sweep(self.sweep)

    def command(self) -> str:
        """Return the command line that makes the same request."""
        standard, options, chosen = AS_IT_IS, self.options, self.selection
        words = ["elastane", "sim", *([str(self.trace)] if self.trace else [])]
        for policy in self.policies:
            words += ["--policy", policy]
        days = f"{chosen.from_day:g}:{'' if chosen.to_day == float('inf') else format(chosen.to_day, 'g')}"
        flags = (
            ("--cluster", self.cluster, None),
            ("--format", self.format_name, None),
            ("--overhead", self.overhead, None),
            ("--seed", options.seed, None),
            ("--profiles", options.profiles, None),
            ("--load", options.load, standard.load),
            ("--elastic-share", options.elastic_share, standard.elastic_share),
            ("--max-growth", options.max_growth, None),
            ("--days", days if chosen.has_window else None, None),
            ("--tenant", chosen.tenant, None),
            ("--round", self.round_s, 0.0),
            *(("--sweep", text, None) for text in self.sweep),
        )
        for flag, value, default in flags:
            if value is not None and value != default:
                words += [flag, f"{value:g}" if isinstance(value, float) else str(value)]
        return shlex.join(words + (["--by-node"] if self.by_node else []))

    def _check_sweep(self) -> None:
        standard = AS_IT_IS
        fixed = {
            "load": self.options.load != standard.load,
            "seed": self.options.seed != standard.seed,
            "elastic": self.options.elastic_share != standard.elastic_share,
            "nodes": self.cluster is not None and ("," in self.cluster or "x" not in self.cluster),
        }
        for axis in self.axes:
            if fixed[axis.name] and axis.name == "nodes":
                raise ConfigError(
                    f"--sweep nodes needs a cluster of equal nodes such as 64x8, not {self.cluster!r}."
                )
            if fixed[axis.name]:
                raise ConfigError(
                    f"--sweep varies {axis.name}, and another flag fixes it; leave one of them out."
                )


def read_request_trace(request: SimRequest) -> Trace:
    """Return the trace that the request names, or the built-in sample."""
    if request.trace is not None:
        return read_trace(request.trace, request.format_name, request.selection)
    sample = resources.files(SAMPLE_PACKAGE) / "philly_sample.csv"
    with resources.as_file(sample) as path:
        return read_trace(path, None, request.selection)


def choose_cluster(request: SimRequest, trace: Trace) -> Cluster:
    """Return the cluster of the request; raise ConfigError with a suggestion if it names none."""
    if request.cluster is not None:
        return parse_cluster(request.cluster, by_node=request.by_node)
    if request.trace is None:
        return parse_cluster(SAMPLE_CLUSTER, by_node=request.by_node)
    raise ConfigError(f"how large is the cluster? Add --cluster NODESxDEVICES. {_suggest_cluster(trace)}")


def prepare_request(request: SimRequest, trace: Trace) -> tuple[Cluster, Preparation]:
    """Return the cluster, and the workload as that cluster sees it."""
    cluster = choose_cluster(request, trace)
    return cluster, prepare_workload(trace, cluster, request.options)


def list_tasks(request: SimRequest) -> list[Task]:
    """Return the runs of a request: each policy once, then each policy at each point of the sweep."""
    points = list_points(request.axes) if request.sweep else ()
    return [Task(policy=policy) for policy in request.policies] + [
        Task(policy=policy, point=point) for point in points for policy in request.policies
    ]


def run_request(
    request: SimRequest,
    trace: Trace,
    prepared: tuple[Cluster, Preparation],
    on_progress: OnProgress,
) -> Comparison:
    """Run everything and return what came out.

    Raises ConfigError if not a single policy gave a result.
    """
    cluster, preparation = prepared
    overhead: Overhead = parse_overhead(request.overhead)
    setting = Setting(cluster=cluster, overhead=overhead, options=request.options, round_s=request.round_s)
    tasks = list_tasks(request)
    labels = choose_labels(request.policies)
    outcomes = [
        dataclasses.replace(outcome, policy=labels[outcome.policy])
        for outcome in run_tasks(trace, setting, tasks, processes=request.processes, on_progress=on_progress)
    ]
    failures = tuple(outcome for outcome in outcomes if isinstance(outcome, Failure))
    runs = tuple(outcome for outcome in outcomes if isinstance(outcome, PolicyRun))
    if not runs:
        raise ConfigError("no policy gave a result: " + "; ".join(failure.message for failure in failures))
    return Comparison(
        trace=trace,
        preparation=preparation,
        cluster=cluster,
        overhead=overhead,
        seed=request.options.seed,
        command=request.command(),
        runs=runs,
        failures=failures,
        axes=request.axes,
        sweep=tuple(outcome for outcome in outcomes if isinstance(outcome, SweepRun)),
        warnings=tuple(find_warnings(trace, preparation)),
    )


def compare(request: SimRequest) -> Comparison:
    """Read, prepare and run what the request names, without showing progress.

    Raises ConfigError if nothing useful can be done.
    """
    trace = read_request_trace(request)
    return run_request(request, trace, prepare_request(request, trace), lambda number, share: None)


def find_warnings(trace: Trace, preparation: Preparation) -> list[str]:
    """Return what a reader must know before he believes the figures."""
    warnings = []
    jobs = len(preparation.workload.jobs)
    left_out = sum(entry.count for entry in trace.left_out + preparation.left_out if not entry.expected)
    if left_out > _LARGE_PART * (jobs + left_out):
        warnings.append(
            f"{left_out:,} of {jobs + left_out:,} rows were left out, a large part; see the reasons before "
            "trusting the figures."
        )
    if preparation.offered_load < _IDLE_LOAD:
        warnings.append(
            f"The jobs ask for only {preparation.offered_load:.0%} of the cluster: hardly anybody waits, so "
            "policies differ little. Try a smaller --cluster, or --sweep load=1:8:1."
        )
    return warnings


def _check_policies(policies: Sequence[str]) -> None:
    if not policies:
        raise ConfigError("no policy is named; give at least one --policy.")
    doubled = sorted({policy for policy in policies if policies.count(policy) > 1})
    if doubled:
        raise ConfigError(
            f"--policy {doubled[0]} is given twice; once is enough, its results would be equal."
        )
    for policy in policies:
        make_policy(policy)


def _suggest_cluster(trace: Trace) -> str:
    """Return how many devices the trace keeps busy, and a cluster that size."""
    history = compute_history(trace.rows)
    if history is not None:
        nodes = -(-history.peak_devices // 8)
        return (
            f"The history shows up to {history.peak_devices:,} devices in use at once: with nodes of 8, "
            f"--cluster {nodes}x8."
        )
    known = [row for row in trace.rows if row.duration_s is not None]
    span_s = trace.rows[-1].submit_s - trace.rows[0].submit_s
    largest = max(row.devices for row in trace.rows)
    if not known or span_s <= 0:
        return f"The largest job asks for {largest} devices."
    busy = sum(row.devices * (row.duration_s or 0.0) for row in known) / span_s
    nodes = max(1, -(-largest // 8), round(busy / 8))
    return (
        f"The trace's jobs keep {busy:,.0f} devices busy on average and the largest asks for {largest}: with "
        f"nodes of 8, --cluster {nodes}x8 would be about fully loaded."
    )
