"""Sweeps as users type them."""

from __future__ import annotations

import pytest

from elastane.model.errors import ConfigError
from elastane.sim.sweep import Axis, SweepPoint, list_points, parse_sweep


def test_from_to_step_includes_both_ends_in_spite_of_rounding() -> None:
    # (0.7 - 0.1) / 0.1 is a little less than 6.
    (axis,) = parse_sweep(["load=0.1:0.7:0.1"])
    assert axis == Axis(name="load", values=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7))


def test_lists_are_sorted_and_values_occur_once() -> None:
    assert parse_sweep(["nodes=32,16,16"]) == (Axis(name="nodes", values=(16.0, 32.0)),)


def test_points_are_all_combinations_of_two_axes() -> None:
    points = list_points(parse_sweep(["load=1,2", "nodes=4,8"]))
    assert points == tuple(
        SweepPoint(axes=("load", "nodes"), values=values)
        for values in ((1.0, 4.0), (1.0, 8.0), (2.0, 4.0), (2.0, 8.0))
    )
    assert (points[1].value("nodes", 0.0), points[1].value("seed", 7.0)) == (8.0, 7.0)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["load"], "write AXIS=FROM:TO:STEP"),
        (["load="], "write AXIS=FROM:TO:STEP"),
        (["colour=1:2:1"], "with an axis of load, nodes, seed, elastic"),
        (["load=a:b:c"], "is no FROM:TO:STEP and no list of numbers"),
        (["load=1:2"], "is no FROM:TO:STEP and no list of numbers"),
        (["load=1:2:3:4"], "is no FROM:TO:STEP and no list of numbers"),
        (["load=2:1:0.5"], "has no values; FROM must not be above TO"),
        (["load=1:2:0"], "has no values"),
        (["load=1:2:-1"], "has no values"),
        (["load=nan"], "has no values"),
        (["load=0:1:0.5"], "load must be more than 0"),
        (["nodes=1.5"], "nodes takes whole numbers"),
        (["seed=-1"], "seed takes whole numbers"),
        (["elastic=0:2:1"], "elastic is a share from 0 to 1"),
        (["load=1,2", "load=3"], "each axis can be varied once"),
        (["load=1", "nodes=1", "seed=1"], "varies 3 axes; a map has one or two"),
        (["load=1:2:0.0001"], "steps; at most 400 are run"),
        (["load=1:2:0.01", "nodes=1:10:1"], "has 1,010 points; at most 400 are run"),
    ],
)
def test_impossible_sweeps_are_refused(texts: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_sweep(texts)
