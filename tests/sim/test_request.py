"""Requests are checked as a whole before anything is read, and say how to repeat themselves."""

from __future__ import annotations

from pathlib import Path

import pytest
from sim_fakes import small_trace

from elastane.model.errors import ConfigError
from elastane.sim.readers import Selection, Trace, TraceRow
from elastane.sim.request import (
    DEFAULT_POLICIES,
    SimRequest,
    choose_cluster,
    find_warnings,
    list_tasks,
    prepare_request,
    read_request_trace,
    run_request,
)
from elastane.sim.workload import WorkloadOptions


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"policies": ()}, "at least one --policy"),
        ({"policies": ("fifo", "srtf", "fifo")}, "--policy fifo is given twice"),
        ({"policies": ("nonsense",)}, "unknown policy 'nonsense'"),
        ({"format_name": "slurm"}, "without a trace"),
        ({"trace": Path("x"), "format_name": "slrum"}, "Did you mean 'slurm'"),
        ({"cluster": "many"}, "write NODESxDEVICES"),
        ({"overhead": "free"}, "no overhead model is called 'free'; known: edl"),
        ({"processes": 0}, "at least one process"),
        ({"round_s": -1.0}, "a round lasts 0 seconds"),
        ({"options": WorkloadOptions(profiles="h100")}, "unknown set of profiles"),
        (
            {"sweep": ("load=1,2",), "options": WorkloadOptions(load=2.0)},
            "varies load, and another flag fixes it",
        ),
        ({"sweep": ("seed=1,2",), "options": WorkloadOptions(seed=2)}, "varies seed, and another flag"),
        ({"sweep": ("nodes=1,2",), "cluster": "2x8:V100,2x8:P100"}, "needs a cluster of equal nodes"),
        ({"sweep": ("nodes=1,2",), "cluster": "64"}, "needs a cluster of equal nodes"),
        ({"sweep": ("speed=1",)}, "with an axis of load"),
    ],
)
def test_contradictions_are_found_before_anything_is_read(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SimRequest(**fields)  # type: ignore[arg-type]


def test_the_sample_comes_with_its_cluster_and_four_hundred_jobs() -> None:
    request = SimRequest()
    trace = read_request_trace(request)
    cluster, made = prepare_request(request, trace)
    assert (request.policies, cluster.capacity) == (DEFAULT_POLICIES, 80)
    assert (len(made.workload.jobs), made.profile_set, made.left_out) == (400, "pcs-afs", ())
    assert made.offered_load == pytest.approx(1.014, abs=0.001)


def test_a_trace_without_a_cluster_gets_a_suggestion() -> None:
    with pytest.raises(
        ConfigError, match=r"devices busy on average.*--cluster 2x8 would be about fully loaded"
    ):
        choose_cluster(SimRequest(trace=Path("x.csv")), small_trace())


def test_a_history_with_starts_suggests_what_was_really_in_use() -> None:
    rows = tuple(
        TraceRow(line=2, job_id=str(i), submit_s=float(i), devices=8, duration_s=1000.0, waited_s=0.0)
        for i in range(9)
    )
    with pytest.raises(ConfigError, match="up to 72 devices in use at once: with nodes of 8, --cluster 9x8"):
        choose_cluster(SimRequest(trace=Path("x.csv")), Trace(name="t", format="slurm", rows=rows))


def test_the_command_repeats_every_choice() -> None:
    request = SimRequest(
        trace=Path("my jobs.csv"),
        policies=("fifo", "tiresias:limits=5+9"),
        cluster="4x8",
        sweep=("nodes=2,4",),
        selection=Selection(from_day=1, to_day=3.5, tenant="a b"),
        options=WorkloadOptions(seed=3, load=1.5, elastic_share=0.5),
        by_node=True,
        round_s=60.0,
    )
    assert request.command() == (
        "elastane sim 'my jobs.csv' --policy fifo --policy tiresias:limits=5+9 --cluster 4x8 --overhead edl "
        "--seed 3 --load 1.5 --elastic-share 0.5 --days 1:3.5 --tenant 'a b' --round 60 --sweep nodes=2,4 "
        "--by-node"
    )


def test_tasks_are_each_policy_once_and_then_at_each_point() -> None:
    tasks = list_tasks(SimRequest(policies=("fifo", "srtf"), sweep=("load=1,2",)))
    named = [(task.policy, task.point.values if task.point else None) for task in tasks]
    assert named == [
        ("fifo", None), ("srtf", None), ("fifo", (1.0,)), ("srtf", (1.0,)), ("fifo", (2.0,)),
        ("srtf", (2.0,)),
    ]  # fmt: skip


def test_if_no_policy_gives_a_result_the_reasons_are_the_error(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(
        "from elastane.model.cluster import KEEP\n"
        "class Lazy:\n    name, clairvoyant = 'lazy', False\n"
        "    def plan(self, view, now):\n        return KEEP\n"
    )
    request = SimRequest(policies=(f"{path}:Lazy",), cluster="1x8")
    trace = small_trace()
    with pytest.raises(
        ConfigError,
        match=r"no policy gave a result: policy .*own.py:Lazy: policy 'lazy' leaves 24 jobs waiting for ever",
    ):
        run_request(request, trace, prepare_request(request, trace), lambda number, share: None)


def test_doubtful_results_come_with_warnings() -> None:
    trace = small_trace()
    request = SimRequest(cluster="40x8")
    warnings = find_warnings(trace, prepare_request(request, trace)[1])
    assert [warning.split(":")[0].split(" of ")[0] for warning in warnings] == [
        "7",
        "The jobs ask for only 5%",
    ]
