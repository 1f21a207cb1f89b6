"""Hundreds of deaths: whoever dies, wherever and whenever, the others train on and no bit changes."""

import os
import random
from pathlib import Path

import pytest
from agent_world import nothing_left_behind, wait_for
from kill_points import NEWCOMER
from kill_world import KillJob, choose_victims, run_quietly

pytestmark = pytest.mark.process

KILLS = int(os.environ.get("ELASTANE_TEST_KILLS", "60"))
SEED = int(os.environ.get("ELASTANE_TEST_SEED", "1"))

PLACES_IN_A_STEP = (
    "boundary",
    "begin",
    "fetch",
    "forward",
    "backward",
    "stepped",
    "exchange",
    "exchanged",
    "update",
    "updated",
    "committing",
    "committed",
)
IN_A_STEP = [{role: place} for place in PLACES_IN_A_STEP for role in ("leader", "other")]


def test_a_worker_may_die_at_any_place_of_a_step(tmp_path: Path) -> None:
    steps = 100 * len(IN_A_STEP)
    expected = run_quietly(tmp_path / "alone", steps)
    with nothing_left_behind():
        job = KillJob.begin(tmp_path / "job", steps)
        for victims in IN_A_STEP:
            job.settle()
            job.order(victims)
        job.settle()
        assert job.finish() == expected
    assert job.exits() == job.ended
