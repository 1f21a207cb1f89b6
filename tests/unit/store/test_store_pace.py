"""How often a waiting watch looks."""

import pytest

from elastane.store.base import DeleteEvent, Event
from elastane.store.clock import ManualClock
from elastane.store.pace import MAX_INTERVAL_S, MIN_INTERVAL_S, Waiter, compute_interval_s


@pytest.mark.parametrize(
    ("quiet_s", "interval_s"),
    [
        (0.0, MIN_INTERVAL_S),
        (0.064, MIN_INTERVAL_S),
        (0.32, 0.01),
        (0.8, MAX_INTERVAL_S),
        (9.0, MAX_INTERVAL_S),
    ],
)
def test_the_interval_grows_with_the_quiet_time_between_its_bounds(quiet_s: float, interval_s: float) -> None:
    assert compute_interval_s(quiet_s) == pytest.approx(interval_s)


class RecordingClock(ManualClock):
    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    def sleep(self, duration_s: float) -> None:
        super().sleep(duration_s)
        self.slept.append(duration_s)


def test_a_quiet_wait_slows_down_and_an_event_makes_the_next_wait_quick_again() -> None:
    clock = RecordingClock()
    events: list[Event] = []
    waiter = Waiter(lambda: list(events), clock)
    assert waiter.wait(2.0) == []
    assert (clock.slept[0], max(clock.slept)) == (MIN_INTERVAL_S, MAX_INTERVAL_S)
    events.append(DeleteEvent(key="a", revision=2))
    assert waiter.wait(2.0) == events
    events.clear()
    clock.slept.clear()
    waiter.wait(0.009)
    assert clock.slept == pytest.approx([MIN_INTERVAL_S] * 4 + [0.001])


def test_the_last_sleep_ends_with_the_time_allowed() -> None:
    clock = RecordingClock()
    waiter = Waiter(list, clock)
    waiter.wait(0.005)
    assert clock.slept == pytest.approx([0.002, 0.002, 0.001])
