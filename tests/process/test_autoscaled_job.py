"""The autoscaler in real jobs: it finds the number of workers that pays, and no bit changes.

Each turn of a virtual worker sleeps, so speeds are known however busy the machine is.
"""

from pathlib import Path

import pytest
from agent_world import World, nothing_left_behind
from elastic_world import as_flag, begin_job, end_job, run_alone, switches

pytestmark = pytest.mark.process

SIZE = ("--samples", "2416", "--epochs", "1", "--virtual-workers", "8")
"""60 steps of eight virtual workers, and a short one."""


def sizes(job: World) -> list[int]:
    return [event.fields["workers"] for event in switches(job)]


def test_workers_are_added_while_they_pay(tmp_path: Path) -> None:
    expected = run_alone(tmp_path / "alone", *SIZE)
    flags = ("--pace", as_flag({"else": 0.02}))
    with nothing_left_behind():
        job = begin_job(tmp_path / "elastic", *SIZE, *flags, autoscale="max=2,efficiency=0.2")
        assert end_job(job) == expected
    assert sizes(job) == [2]
    last = job.events("autoscale")[-1].fields
    assert last["settled"]
    assert set(last["samples_per_s"]) == {"1", "2"}


def test_a_worker_that_does_not_pay_is_given_back(tmp_path: Path) -> None:
    expected = run_alone(tmp_path / "alone", *SIZE)
    flags = ("--pace", as_flag({"else": 0.02, "w2": 0.1}))
    with nothing_left_behind():
        job = begin_job(tmp_path / "elastic", *SIZE, *flags, autoscale="max=4")
        assert end_job(job) == expected
    assert sizes(job) == [2, 1]
    told = [event.fields["reason"] for event in job.events("autoscale")]
    assert told[0] == "one size says nothing; try 2"
    assert told[1].startswith("1 -> 2 workers did not pay: efficiency -")
    assert told[1].endswith("; 1 is kept")
