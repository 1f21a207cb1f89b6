"""Slow workers in real jobs: what is done about them, and that it changes no bit.

Each turn of a virtual worker sleeps, longer on the slow worker: times that a busy machine does not blur.
"""

from pathlib import Path

import pytest
from agent_world import World, nothing_left_behind
from elastic_world import as_flag, begin_job, end_job, run_alone, switches

from elastane.observe.metrics import read_metrics

pytestmark = pytest.mark.process

SIZE = ("--samples", "2016", "--epochs", "1", "--virtual-workers", "8")
"""50 steps of eight virtual workers, and a short one."""
FOUND_WITHIN = 15 + 15
"""Steps: 15 until a slow worker is found; until the change about it is made a few more pass meanwhile."""


def pace(**slow: float) -> tuple[str, str]:
    """Return the flag that makes every turn take 20 ms, and more on the workers named."""
    return "--pace", as_flag({"else": 0.02, **slow})


def actions(job: World) -> list[str]:
    return [event.fields["action"] for event in job.events("straggler")]


def first_change(job: World) -> int:
    """Return before which step the first change was made."""
    step = switches(job)[0].fields["step"]
    assert isinstance(step, int)
    return step


def test_virtual_workers_move_off_a_slow_worker_and_change_no_bit(tmp_path: Path) -> None:
    expected = run_alone(tmp_path / "alone", *SIZE)
    with nothing_left_behind():
        job = begin_job(tmp_path / "elastic", *SIZE, *pace(w2=0.08), workers=2, stragglers="rebalance")
        assert end_job(job) == expected
    assert actions(job)[0] == "rebalance"
    assert first_change(job) <= FOUND_WITHIN
    members = job.events("committed")[1].fields["members"]
    assert set(members) == {"w1", "w2"}
    assert members["w2"][1] - members["w2"][0] < 4
    records = read_metrics(Path(job.info.directory))
    slow = [record.step_time_s for record in records if record.generation == 1][1:]
    fast = [record.step_time_s for record in records if record.generation == 2][1:-1]
    assert sorted(fast)[len(fast) // 2] < sorted(slow)[len(slow) // 2]


def test_a_slow_worker_is_replaced_and_no_bit_changes(tmp_path: Path) -> None:
    expected = run_alone(tmp_path / "alone", *SIZE)
    with nothing_left_behind():
        job = begin_job(tmp_path / "elastic", *SIZE, *pace(w2=0.08), workers=2, stragglers="replace")
        assert end_job(job) == expected
    assert actions(job)[0] == "replace"
    assert job.events("straggler")[0].fields["workers"] == ["w2"]
    members = job.events("committed")[1].fields["members"]
    assert "w2" not in members
    assert len(members) == 2


def test_a_slow_worker_is_let_go_and_no_bit_changes(tmp_path: Path) -> None:
    expected = run_alone(tmp_path / "alone", *SIZE)
    with nothing_left_behind():
        job = begin_job(tmp_path / "elastic", *SIZE, *pace(w3=0.2), workers=3, stragglers="evict")
        assert end_job(job) == expected
    assert actions(job)[0] == "evict"
    assert set(job.events("committed")[1].fields["members"]) == {"w1", "w2"}


def test_equally_slow_workers_are_left_alone(tmp_path: Path) -> None:
    size = ("--samples", "1016", "--epochs", "1", "--virtual-workers", "8")
    expected = run_alone(tmp_path / "alone", *size)
    # Long turns: what a busy machine adds to them is little.
    slow = ("--pace", as_flag({"else": 0.1}))
    with nothing_left_behind():
        job = begin_job(tmp_path / "elastic", *size, *slow, workers=2, stragglers="replace")
        assert end_job(job) == expected
    assert not [action for action in actions(job) if action != "bear"]
    assert not switches(job)
