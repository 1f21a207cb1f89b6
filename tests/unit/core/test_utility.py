"""Utility functions of all shapes, and those that are none."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastane.core.utility import Concave, Linear, Steps, Table, Utility
from elastane.model.errors import ConfigError

HOUR_S = 3600.0


def values(utility: Utility, *times_s: float, initial_s: float = 100.0) -> list[float]:
    return [utility.value(time_s, initial_s) for time_s in times_s]


def test_a_linear_utility_falls_evenly_to_nothing() -> None:
    assert values(Linear(100.0, 50.0), 0, 25, 50, 100, 1000) == [50.0, 37.5, 25.0, 0.0, 0.0]


def test_a_concave_utility_falls_ever_faster_to_nothing() -> None:
    assert values(Concave(100.0, 100.0), 0, 50, 80, 100, 1000) == pytest.approx([100.0, 75.0, 36.0, 0.0, 0.0])


def test_a_deadline_is_bridged_from_its_end_to_the_time_first_expected() -> None:
    deadline = Steps(((60.0, 50.0),))
    assert values(deadline, 0, 60, 80, 90, 100, 200, initial_s=100.0) == [50.0, 50.0, 25.0, 12.5, 0.0, 0.0]


def test_a_deadline_that_was_expected_to_be_kept_has_no_bridge() -> None:
    assert values(Steps(((60.0, 50.0),)), 59, 60, 60.1, initial_s=40.0) == [50.0, 50.0, 0.0]


def test_steps_are_bridged_from_end_to_end() -> None:
    steps = Steps(((60.0, 50.0), (120.0, 20.0)))
    assert values(steps, 30, 60, 90, 120, 150, 180, initial_s=180.0) == [50.0, 50.0, 35.0, 20.0, 10.0, 0.0]


def test_a_table_is_straight_between_its_points_and_constant_outside() -> None:
    table = Table(((10.0, 8.0), (20.0, 4.0), (40.0, 4.0), (50.0, -6.0)))
    assert values(table, 0, 10, 15, 30, 45, 99) == [8.0, 8.0, 6.0, 4.0, -1.0, -6.0]


@settings(deadline=None)
@given(
    st.sampled_from(
        [Linear(100.0, 9.0), Concave(70.0, 9.0), Steps(((20.0, 9.0), (50.0, 1.0))), Table(((1.0, 2.0),))]
    ),
    st.floats(0, 500),
    st.floats(0, 500),
    st.floats(0, 500),
)
def test_no_utility_ever_rises(utility: Utility, one_s: float, other_s: float, initial_s: float) -> None:
    early, late = values(utility, min(one_s, other_s), max(one_s, other_s), initial_s=initial_s)
    assert late <= early + 1e-9


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Linear(0.0, 5.0), "a linear utility needs a time and a value above 0; got 0 s and 5"),
        (lambda: Linear(HOUR_S, 0.0), "got 3600 s and 0"),
        (lambda: Concave(float("inf"), 5.0), "a concave utility needs a time"),
        (lambda: Concave(HOUR_S, float("nan")), "a concave utility needs a time"),
        (lambda: Steps(()), "a steps utility needs at least one time with its value"),
        (lambda: Steps(((-1.0, 5.0),)), "must be numbers, times not below 0"),
        (lambda: Steps(((1.0, float("inf")),)), "must be numbers"),
        (lambda: Steps(((60.0, 5.0), (60.0, 4.0))), "times of a steps utility must rise: 60 s follows 60 s"),
        (lambda: Steps(((60.0, -5.0),)), "the last step is worth -5"),
        (
            lambda: Table(((60.0, 5.0), (120.0, 6.0))),
            "the utility rises from 5 at 60 s to 6 at 120 s; a job that takes longer cannot be worth more",
        ),
        (lambda: Steps(((60.0, 5.0), (120.0, 6.0))), "the utility rises from 5 at 60 s to 6 at 120 s"),
    ],
)
def test_what_is_no_utility_is_refused(make: Callable[[], Utility], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint.replace("(", r"\(")):
        make()
