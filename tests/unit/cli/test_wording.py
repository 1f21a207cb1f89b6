"""How every kind of event reads."""

from datetime import UTC
from typing import Any

import pytest

from elastane.cli.wording import (
    describe_event,
    describe_line,
    first_line_of_error,
    format_bytes,
    format_duration,
)
from elastane.observe.events import Event

TRACEBACK = 'Traceback (most recent call last):\n  File "t.py", line 1\nValueError: no\n'


@pytest.mark.parametrize(
    ("kind", "fields", "words"),
    [
        ("agent_started", {"devices": ["cpu:0", "cpu:1"]}, "agent started with cpu:0, cpu:1"),
        ("agent_started", {}, "agent started"),
        ("worker_starting", {"worker": "w1", "device": "cpu:0"}, "starts w1 on cpu:0"),
        ("worker_starting", {"worker": "w1", "reason": "2 wanted"}, "starts w1: 2 wanted"),
        ("worker_exited", {"worker": "w1", "code": 0}, "w1 ended with code 0"),
        ("worker_exited", {"worker": "w1", "code": -9}, "w1 was ended by signal 9"),
        (
            "worker_ready",
            {"worker": "w1", "seconds": {"imports": 0.5, "warm_up": 2.0}},
            "w1 is ready (imports 500 ms, warm_up 2.0 s)",
        ),
        ("worker_ready", {"worker": "w1", "seconds": 0.25}, "w1 is ready after 250 ms"),
        ("worker_ready", {"worker": "w1"}, "w1 is ready"),
        (
            "proposed",
            {"generation": 3, "members": ["a", "b"], "reason": "b is ready"},
            "proposes generation 3 with a, b: b is ready",
        ),
        (
            "committed",
            {"generation": 3, "switch_step": 40, "reason": "b is ready"},
            "commits generation 3, before step 40: b is ready",
        ),
        ("committed", {"generation": 1, "switch_step": None}, "commits generation 1"),
        (
            "switched",
            {
                "generation": 3,
                "step": 40,
                "stop_s": 0.0123,
                "workers": 2,
                "mode": "planned",
                "moved_bytes": 4_000_000,
            },
            "trains from step 40 in generation 3 with 2 workers: stop time 12.3 ms, moved 4 MB",
        ),
        (
            "switched",
            {"generation": 3, "step": 40, "stop_s": 0.5, "workers": ["a"], "moved_bytes": 0},
            "trains from step 40 in generation 3 with 1 worker: stop time 500 ms",
        ),
        (
            "joined",
            {"worker": "b", "generation": 3, "step": 40, "latency_s": 0.8},
            "b joined at step 40, 800 ms after the request",
        ),
        ("left", {"worker": "b", "generation": 3, "step": 40}, "b left before step 40"),
        ("leader", {"worker": "a"}, "a leads"),
        ("link_broken", {"generation": 3, "why": "b is gone"}, "link of generation 3 broke: b is gone"),
        ("waiting", {"for": "b", "since": 3.0, "why": "it evaluates"}, "waits for b: it evaluates"),
        (
            "script_failed",
            {"worker": "a", "traceback": TRACEBACK},
            "the script failed in a: ValueError: no",
        ),
        ("finished", {"step": 90, "digest": "ab12"}, "finished after 90 steps, state ab12"),
        ("stopped", {"step": 90, "path": "/x/final"}, "stopped after 90 steps, state saved in /x/final"),
        ("unheard_of", {"x": 1, "y": "z"}, "unheard_of x=1 y=z"),
        ("switched", {"generation": 3}, "switched generation=3"),
        ("worker_exited", {"worker": "w1", "code": "nine"}, "worker_exited worker=w1 code=nine"),
    ],
)
def test_an_event_reads_so(kind: str, fields: dict[str, Any], words: str) -> None:
    assert describe_event(Event(at_s=0.0, kind=kind, source="a", fields=fields)) == words


def test_a_line_begins_with_time_and_source() -> None:
    event = Event(at_s=3661.25, kind="leader", source="a", fields={"worker": "a"})
    assert describe_line(event, UTC) == "01:01:01.2  a             a leads"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 µs"),
        (0.00084, "840 µs"),
        (0.012, "12 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 0 s"),
        (125.0, "2 min 5 s"),
        (11_520.0, "3 h 12 min"),
    ],
)
def test_durations_have_the_unit_that_suits_them(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (4_000, "4 kB"), (25_300_000, "25.3 MB"), (2 * 10**15, "2e+03 TB")],
)
def test_bytes_have_the_unit_that_suits_them(count: int, text: str) -> None:
    assert format_bytes(count) == text


def test_an_empty_traceback_is_said_to_be_empty() -> None:
    assert first_line_of_error("\n \n") == "no traceback"
