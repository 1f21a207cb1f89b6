"""Elastic jobs on data in shards: the same bits over changes and kills, with and without data processes."""

from pathlib import Path

import pytest
from agent_world import nothing_left_behind
from elastic_world import as_flag, begin_job, end_job, run_alone, switches

pytestmark = pytest.mark.process


@pytest.mark.parametrize("num_workers", [0, 2])
def test_changes_of_workers_change_nothing_where_data_lie_in_shards(tmp_path: Path, num_workers: int) -> None:
    size = ("--samples", "811", "--epochs", "3", "--shards", "11")
    expected = run_alone(tmp_path / "alone", *size)
    flags = ("--plan", as_flag([3, 2, 4, 1]), "--num-workers", str(num_workers))
    with nothing_left_behind():
        job = begin_job(tmp_path / "elastic", *size, *flags)
        assert end_job(job) == expected
    assert {event.fields["workers"] for event in switches(job)} >= {1, 2, 3, 4}


def test_a_worker_killed_in_the_middle_of_a_shard_costs_no_sample(tmp_path: Path) -> None:
    size = ("--samples", "811", "--epochs", "3", "--shards", "11")
    expected = run_alone(tmp_path / "alone", *size)
    marks = tmp_path / "marks"
    marks.mkdir()
    flags = ("--deaths", "[3, 0]", "--marks", str(marks))
    with nothing_left_behind():
        job = begin_job(tmp_path / "elastic", *size, *flags, workers=3)
        assert end_job(job) == expected
    assert len(job.events("worker_exited", code=-9)) == 2
