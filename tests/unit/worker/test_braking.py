"""How long a worker holds itself back for a drill, and what ends that; time is a number here."""

from typing import Any

import pytest

from elastane.model.ids import WorkerId
from elastane.model.records import Slowdown
from elastane.worker.braking import SLICE_S, Brake

ME = WorkerId("w2")
TWICE = Slowdown(factor=2.0, for_s=60.0, drill="d1")


class Bench:
    """One worker with a clock that only its sleeps move, each by `late_s` more than was asked for."""

    def __init__(self, order: Slowdown | None, late_s: float = 0.0) -> None:
        self.order = order
        self.late_s = late_s
        self.now_s = 100.0
        self.sleeps: list[float] = []
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.after_sleep: dict[int, Slowdown | None] = {}
        self.brake = Brake(lambda: self.order, self, ME, lambda: self.now_s, self.sleep)

    def sleep(self, for_s: float) -> None:
        self.sleeps.append(for_s)
        self.now_s += for_s + self.late_s
        if len(self.sleeps) in self.after_sleep:
            self.order = self.after_sleep[len(self.sleeps)]

    def append(self, kind: str, **fields: Any) -> None:
        self.told.append((kind, fields))

    def compute(self, took_s: float) -> float:
        self.now_s += took_s
        return round(self.brake.hold_back(took_s), 9)


def test_without_an_order_a_worker_goes_on_at_once() -> None:
    bench = Bench(None)
    assert bench.compute(0.1) == 0.0
    assert (bench.sleeps, bench.told) == ([], [])


def test_computing_is_stretched_by_the_factor_that_is_asked_for() -> None:
    bench = Bench(TWICE)
    assert [bench.compute(0.04), bench.compute(0.02)] == [0.04, 0.02]
    assert bench.told == [
        (
            "slowed",
            {
                "worker": ME,
                "factor": 2.0,
                "for_s": 60.0,
                "drill": "d1",
                "reason": "a drill, asked for by a person",
            },
        )
    ]


def test_what_a_sleep_was_too_long_by_is_taken_off_the_next_ones() -> None:
    bench = Bench(TWICE, late_s=0.003)
    held = [bench.compute(0.0016) for _ in range(30)]
    assert held[:4] == [0.0046, 0.0, 0.0032, 0.0]
    assert sum(held) == pytest.approx(30 * 0.0016, abs=0.0046)


def test_a_long_wait_is_made_of_short_sleeps_and_ends_with_the_order() -> None:
    bench = Bench(TWICE)
    bench.after_sleep = {3: None}
    assert bench.compute(10.0) == round(3 * SLICE_S, 9)
    assert bench.sleeps == [SLICE_S] * 3
    assert bench.told[-1] == (
        "slowed_no_more",
        {"worker": ME, "drill": "d1", "reason": "the drill is over"},
    )
    assert bench.compute(10.0) == 0.0


def test_the_worker_goes_on_when_the_time_is_up_whether_or_not_anybody_takes_the_order_back() -> None:
    bench = Bench(Slowdown(factor=2.0, for_s=1.0, drill="d1"))
    assert bench.compute(0.6) == 0.6
    assert bench.compute(0.6) == 0.0  # 1.2 s after the beginning
    assert [kind for kind, _ in bench.told] == ["slowed", "slowed_no_more"]
    assert bench.told[-1][1]["reason"] == "the time is up"
    assert bench.compute(0.6) == 0.0
    bench.order = None
    assert bench.compute(0.6) == 0.0
    assert len(bench.told) == 2


def test_a_second_drill_begins_anew_though_it_asks_for_the_same() -> None:
    bench = Bench(Slowdown(factor=2.0, for_s=1.0, drill="d1"))
    bench.compute(0.6)
    bench.order = Slowdown(factor=2.0, for_s=1.0, drill="d2")
    assert bench.compute(0.6) == 0.6
    assert [(kind, fields["drill"]) for kind, fields in bench.told] == [
        ("slowed", "d1"),
        ("slowed_no_more", "d1"),
        ("slowed", "d2"),
    ]
