"""Runs in this process and in others: the same results, and failures that stay where they happen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sim_fakes import small_setting, small_trace

from elastane.sim.cluster_text import parse_cluster
from elastane.sim.compare import Failure, Outcome, PolicyRun, Setting, SweepRun, Task, run_tasks
from elastane.sim.sweep import SweepPoint

BROKEN = """
from typing import ClassVar
class Broken:
    name: ClassVar[str] = "broken"
    clairvoyant: ClassVar[bool] = False
    def plan(self, view, now):
        return 1 / 0
"""


def run(tasks: list[Task], processes: int = 1) -> list[Outcome]:
    return run_tasks(
        small_trace(), small_setting(), tasks, processes=processes, on_progress=lambda n, s: None
    )


def digest(outcome: Outcome) -> str:
    assert not isinstance(outcome, Failure), outcome.message
    return outcome.result.digest if isinstance(outcome, PolicyRun) else outcome.digest


def test_a_policy_gives_its_result_settings_and_changes() -> None:
    (outcome,) = run([Task(policy="tiresias:limits=100+1000")])
    assert isinstance(outcome, PolicyRun)
    assert (outcome.result.policy, outcome.clairvoyant) == ("tiresias", False)
    assert outcome.result.settings["limits"] == (100.0, 1000.0)
    assert outcome.summary.startswith("Tiresias")
    assert outcome.changes is not None
    assert len(outcome.changes.job) == outcome.result.counters.changes


def test_recording_does_not_change_what_happens() -> None:
    plain = SweepPoint(axes=("load",), values=(1.0,))
    recorded, unrecorded = run(
        [Task(policy="elastic-tiresias"), Task(policy="elastic-tiresias", point=plain)]
    )
    assert isinstance(unrecorded, SweepRun)
    assert digest(recorded) == digest(unrecorded)


def test_points_of_a_sweep_change_load_and_cluster() -> None:
    points = [
        SweepPoint(axes=("load", "nodes"), values=values) for values in ((1.0, 1.0), (2.0, 1.0), (2.0, 2.0))
    ]
    runs = [
        run
        for run in run([Task(policy="fifo", point=point) for point in points])
        if isinstance(run, SweepRun)
    ]
    loads = [entry.offered_load for entry in runs]
    assert loads == pytest.approx([loads[0], 2 * loads[0], loads[0]])
    assert [entry.capacity for entry in runs] == [8, 8, 16]
    means = [entry.metrics.jct_mean_s for entry in runs]
    assert means[0] < means[1] > means[2]


def test_a_seed_in_a_sweep_can_be_replayed_alone() -> None:
    trace = small_trace()
    unnamed = type(trace)(
        name="t", format="csv", rows=tuple(type(row)(**{**_fields(row), "model": None}) for row in trace.rows)
    )
    points = [SweepPoint(axes=("seed",), values=(float(seed),)) for seed in range(3)]
    tasks = [Task(policy="elastic-tiresias", point=point) for point in points]
    many = run_tasks(unnamed, small_setting(), tasks, processes=1, on_progress=lambda n, s: None)
    alone = run_tasks(unnamed, small_setting(), tasks[2:], processes=1, on_progress=lambda n, s: None)
    assert len({digest(outcome) for outcome in many}) == 3
    assert digest(many[2]) == digest(alone[0])


def _fields(row: object) -> dict[str, object]:
    return {name: getattr(row, name) for name in row.__struct_fields__}  # type: ignore[attr-defined]


def test_a_policy_that_breaks_is_named_with_its_line_and_the_others_go_on(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text(BROKEN)
    broken, fine = run([Task(policy=f"{path}:Broken"), Task(policy="fifo")])
    assert isinstance(broken, Failure)
    assert broken.message == f"policy {path}:Broken failed: ZeroDivisionError: division by zero at {path}:7"
    assert isinstance(fine, PolicyRun)


def test_a_point_that_no_job_fits_is_a_failure_that_names_the_point() -> None:
    trace = small_trace(devices=(8,))
    tiny = Setting(
        cluster=parse_cluster("2x4"), overhead=small_setting().overhead, options=small_setting().options
    )
    point = SweepPoint(axes=("nodes",), values=(1.0,))
    (failure,) = run_tasks(
        trace, tiny, [Task(policy="fifo", point=point)], processes=1, on_progress=lambda n, s: None
    )
    assert isinstance(failure, Failure)
    assert failure.message.startswith(
        "policy fifo at nodes 1: small.csv: none of the 24 jobs can run on 4 devices"
    )


def test_progress_ends_at_one_for_every_task() -> None:
    shares: dict[int, float] = {}
    run_tasks(
        small_trace(),
        small_setting(),
        [Task(policy="fifo"), Task(policy="srtf")],
        processes=1,
        on_progress=lambda number, share: shares.update({number: share}),
    )
    assert shares == {0: 1.0, 1: 1.0}


@pytest.mark.slow
def test_other_processes_give_the_same_results_in_the_order_of_the_tasks() -> None:
    tasks = [Task(policy=policy) for policy in ("fifo", "tiresias", "elastic-tiresias")]
    here, there = run(tasks), run(tasks, processes=2)
    assert [digest(outcome) for outcome in here] == [digest(outcome) for outcome in there]
    for mine, theirs in zip(here, there, strict=True):
        assert isinstance(mine, PolicyRun)
        assert isinstance(theirs, PolicyRun)
        np.testing.assert_array_equal(mine.result.series.used, theirs.result.series.used)
