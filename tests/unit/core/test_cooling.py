"""Devices rest for longer each time, and are forgiven."""

import pytest

from elastane.core.cooling import CoolingSettings, Ledger, Offence, compute_rest_s
from elastane.model.ids import DeviceId

X, Y = DeviceId("n/gpu:0"), DeviceId("n/gpu:1")
SETTINGS = CoolingSettings(first_rest_s=100.0, longest_rest_s=1000.0)


@pytest.mark.parametrize(
    ("count", "rest_s"), [(1, 100.0), (2, 200.0), (4, 800.0), (5, 1000.0), (10_000, 1000.0)]
)
def test_the_rest_doubles_up_to_the_longest(count: int, rest_s: float) -> None:
    assert compute_rest_s(count, SETTINGS) == rest_s


def test_a_device_rests_and_is_free_again() -> None:
    ledger = Ledger().note([X], 50.0, SETTINGS)
    assert ledger.offences == {X: Offence(count=1, noted_at_s=50.0, rests_until_s=150.0)}
    assert ledger.resting(149.9) == {X}
    assert ledger.next_change_s(149.9) == 150.0
    assert ledger.resting(150.0) == frozenset()
    assert ledger.next_change_s(150.0) is None


def test_an_offence_soon_after_the_rest_counts_as_the_next_and_a_late_one_as_the_first() -> None:
    ledger = Ledger().note([X], 0.0, SETTINGS)
    assert ledger.note([X], 199.0, SETTINGS).offences[X].count == 2
    assert ledger.note([X], 199.0, SETTINGS).offences[X].rests_until_s == 399.0
    assert ledger.note([X], 200.0, SETTINGS).offences[X].count == 1


def test_what_is_forgotten_is_no_longer_kept() -> None:
    ledger = Ledger().note([X], 0.0, SETTINGS).note([Y], 500.0, SETTINGS)
    assert set(ledger.offences) == {Y}


def test_rounds_count_those_that_went_together_once() -> None:
    ledger = Ledger().note([X, Y], 0.0, SETTINGS)
    assert (ledger.rounds(1.0), ledger.last_round_s(1.0)) == (1, 0.0)
    ledger = ledger.note([X], 110.0, SETTINGS)
    assert (ledger.rounds(111.0), ledger.last_round_s(111.0)) == (2, 110.0)
    assert (ledger.rounds(10_000.0), ledger.last_round_s(10_000.0)) == (0, None)
