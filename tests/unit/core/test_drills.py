"""Whom a drill may harm: never the last one that surely holds the training state."""

from dataclasses import replace
from typing import Any

import pytest
from protocol_records import PREPARING, READY, record, topology, view

from elastane.core.drills import Spared, Target, choose_target, find_safe_holders
from elastane.core.view import JobView
from elastane.model.ids import WorkerId
from elastane.model.records import ExitRecord, Leave

A, B, C = WorkerId("a"), WorkerId("b"), WorkerId("c")


def pair(**more: Any) -> JobView:
    """Return a job of which a and b train."""
    return view(record("a"), record("b"), current=topology("a", "b"), leader=A, **more)


def target(worker: WorkerId, **changes: Any) -> Target:
    known = {"phase": "training", "seated": True, "leader": False, "main": False, "changing": False}
    return Target(worker=worker, pid=1, generation=1, wanted=2, **{**known, **changes})


@pytest.mark.parametrize(
    ("draw", "expected"),
    [(0.0, target(A, leader=True, main=True)), (0.49, target(A, leader=True, main=True)), (0.99, target(B))],
)
def test_the_draw_decides_who_of_those_that_may_be_harmed_is(draw: float, expected: Target) -> None:
    assert choose_target(pair(), {A, B}, (), draw) == expected


def test_workers_on_other_machines_are_spared() -> None:
    assert choose_target(pair(), {B}, (), 0.0) == target(B)
    assert choose_target(pair(), (), (), 0.0) == Spared(reason="a, b run on other machines")


def test_the_only_worker_with_the_state_is_spared_unless_all_may_be_risked() -> None:
    lone = view(record("a"), current=topology("a"))
    alone = Spared(reason="a alone holds the training state")
    assert choose_target(lone, {A}, (), 0.5) == alone
    assert choose_target(lone, {A}, (), 0.5, risk_all=True) == target(A, leader=True, main=True)


def test_who_prepares_to_join_may_be_harmed_though_one_worker_alone_has_the_state() -> None:
    growing = view(record("a"), record("b", PREPARING), current=topology("a"), proposal=None)
    chosen = choose_target(growing, {A, B}, (), 0.99)
    assert chosen == target(B, phase="preparing", seated=False)
    assert choose_target(growing, {A, B}, (), 0.0) == chosen


def test_nobody_is_harmed_twice_and_who_was_harmed_counts_as_gone() -> None:
    assert choose_target(pair(), {A, B}, {B}, 0.5) == Spared(reason="a alone holds the training state")
    assert choose_target(pair(), {A, B}, {A, B}, 0.5) == Spared(
        reason="no worker lives that was not harmed already"
    )


@pytest.mark.parametrize(
    ("change", "holders"),
    [
        ({}, (A, B)),
        ({"leaving": {A: Leave.NOW}}, (B,)),
        ({"wanted": 1}, (A,)),
        ({"proposal": topology("a", "c", generation=2, leaving=(B,))}, (A,)),
        ({"exits": {A: ExitRecord(worker=A, code=-9)}}, (B,)),
    ],
)
def test_only_those_that_are_going_to_stay_are_sure_to_keep_the_state(
    change: dict[str, Any], holders: tuple[WorkerId, ...]
) -> None:
    assert find_safe_holders(pair(**change)) == holders


def test_who_has_yet_to_enter_the_generation_is_not_sure_to_have_the_state() -> None:
    joining = view(record("a"), record("b", READY), current=topology("a", "b"))
    assert find_safe_holders(joining) == (A,)
    assert choose_target(joining, {A}, (), 0.0) == Spared(reason="a alone holds the training state")


def test_before_the_first_generation_nobody_holds_a_state() -> None:
    assert find_safe_holders(view(record("a", READY), current=None)) == ()
    assert choose_target(view(record("a", READY), current=None), {A}, (), 0.0) == Spared(
        reason="no worker that is sure to stay holds the training state yet"
    )


def test_a_target_tells_what_it_is_to_its_job() -> None:
    changing = replace(pair(proposal=topology("a", "b", "c", generation=2)), leader=B)
    assert choose_target(changing, {A, B}, (), 0.99) == target(B, leader=True, changing=True)
