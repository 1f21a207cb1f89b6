"""Hundreds of deaths: whoever dies, wherever and whenever, the others train on and no bit changes.

`make soak` lets many more die, at moments that a seed chooses; a failure names the seed.
"""

import os
import random
import time
from pathlib import Path

import pytest
from agent_world import nothing_left_behind
from kill_points import NEWCOMER
from kill_world import KillJob, run_quietly

pytestmark = pytest.mark.process

KILLS = int(os.environ.get("ELASTANE_TEST_KILLS", "60"))
SEED = int(os.environ.get("ELASTANE_TEST_SEED", "1"))
STEPS_FOR_A_KILL = 60
LONGEST_PAUSE_S = 0.4
"""Longer than a recovery and a join together take: deaths fall into all their parts."""

IN_A_STEP = [
    {role: place}
    for place in (
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
    for role in ("leader", "other")
]
IN_A_JOIN = [
    {"other": "forward", NEWCOMER: "prepare"},
    {"other": "forward", NEWCOMER: "connecting"},
    {"other": "forward", NEWCOMER: "connected"},
    {"other": "forward", NEWCOMER: "entering"},
    {"other": "forward", NEWCOMER: "receiving"},
    {"leader": "backward", NEWCOMER: "receiving"},
    {"other": "forward", NEWCOMER: "seated"},
    {"other": "forward", "main": "supplying"},
    {"other": "forward", "leader": "supplying"},
    {"leader": "forward", "other": "supplying"},
]
IN_A_RECOVERY = [
    {"leader": "exchange", "other": "exchange"},
    {"leader": "update", "other": "exchanged"},
    {"leader": "committed", "other": "update"},
    {"leader": "forward", "other": "halting"},
    {"leader": "forward", "other": "connecting"},
    {"leader": "forward", "other": "entering"},
    {"other": "forward", "leader": "halted"},
    {"other": "forward", "leader": "about to write proposed"},
    {"other": "forward", "leader": "wrote proposed"},
    {"other": "forward", "leader": "connected"},
    {"other": "forward", "leader": "about to write committed"},
    {"other": "forward", "leader": "wrote committed"},
    {"other": "forward", "leader": "seated"},
]
WHILE_READING = [
    *({role: place} for place in ("reading", "read", "exchanged") for role in ("leader", "other")),
    {"leader": "reading", "other": "exchanged"},
    {"leader": "exchanged", "other": "read"},
    {"other": "forward", NEWCOMER: "reading"},
    {"other": "forward", NEWCOMER: "read"},
    {"other": "forward", "main": "exchanged", NEWCOMER: "reading"},
    {"other": "forward", "main": "supplying"},
]


@pytest.mark.parametrize(
    ("orders", "more"),
    [
        pytest.param(IN_A_STEP, (), id="in a step"),
        pytest.param(IN_A_JOIN, (), id="in a join"),
        pytest.param(IN_A_RECOVERY, (), id="in a recovery"),
        pytest.param(WHILE_READING, ("--read",), id="while they read each other's memory"),
    ],
)
def test_workers_may_die_at_any_place(
    tmp_path: Path, orders: list[dict[str, str]], more: tuple[str, ...]
) -> None:
    steps = STEPS_FOR_A_KILL * sum(map(len, orders))
    expected = run_quietly(tmp_path / "alone", steps)
    with nothing_left_behind():
        job = KillJob.begin(tmp_path / "job", steps, *more)
        for victims in orders:
            job.settle()
            job.order(victims)
        job.settle()
        assert job.finish() == expected
    assert job.exits() == job.ended


def test_workers_may_die_at_any_moment(tmp_path: Path) -> None:
    generator = random.Random(SEED)
    steps = STEPS_FOR_A_KILL * KILLS
    expected = run_quietly(tmp_path / "alone", steps)
    with nothing_left_behind():
        job = KillJob.begin(tmp_path / "job", steps)
        while len(job.ended) < KILLS:
            if generator.random() < 0.5:
                job.settle()
            time.sleep(generator.uniform(0.0, LONGEST_PAUSE_S))
            job.kill_some(generator)
        job.settle()
        assert job.finish() == expected, f"ELASTANE_TEST_SEED={SEED}"
    assert job.exits() == job.ended
