"""How every kind of event reads."""

from datetime import UTC
from typing import Any

import pytest

from elastane.cli.wording import (
    describe_event,
    describe_line,
    format_bytes,
    format_duration,
    name_of_error,
)
from elastane.observe.events import Event

TRACEBACK = 'Traceback (most recent call last):\n  File "t.py", line 1\nValueError: no\n'


@pytest.mark.parametrize(
    ("kind", "fields", "words"),
    [
        ("agent_started", {"node": "n0", "devices": ["cpu:0"], "pid": 7}, "agent started on n0"),
        ("agent_ended", {"phase": "finished", "message": "x"}, "agent ended: the job is finished"),
        ("worker_started", {"worker": "w1", "pid": 7, "start": "warm"}, "w1 runs as process 7 (warm start)"),
        (
            "worker_start_failed",
            {"worker": "w1", "reason": "no memory"},
            "w1 could not be started: no memory",
        ),
        (
            "worker_ending",
            {"worker": "w1", "reason": "no longer wanted", "force": "terminate"},
            "ends w1 (terminate): no longer wanted",
        ),
        ("staffing_waits", {"reason": "no device is free"}, "starts no worker now: no device is free"),
        ("preloaded", {"modules": 3}, "the prepared process is ready: workers start from it"),
        ("stop_requested", {"grace_s": 30.0}, "asks all workers to stop and save, within 30 s"),
        ("store_trouble", {"error": "busy"}, "the store cannot be used: busy"),
        ("store_trouble", {"worker": "w1", "reason": "busy"}, "the store cannot be used: busy"),
        ("store_back", {"worker": "w1", "away_s": 1.5}, "the store answers again, after 1.5 s"),
        ("withdrawn", {"generation": 2, "reason": "w2 went"}, "withdraws generation 2: w2 went"),
        ("dismissed", {"workers": ["w1", "w2"], "reason": "slow"}, "goes on without w1, w2: slow"),
        ("metrics_lost", {"worker": "w1", "reason": "1 step"}, "the loss curve has a gap: 1 step"),
        ("drill", {"worker": "w1", "harm": "kill", "reason": "x"}, "a drill kills w1: x"),
        ("drill", {"worker": "w1", "harm": "freeze", "reason": "x"}, "a drill freezes w1: x"),
        ("drill", {"worker": "w1", "harm": "slow", "factor": 1.5}, "a drill makes w1 1.5 times as slow"),
        (
            "drill",
            {"worker": "", "harm": "contend", "processes": 3, "reason": "x"},
            "a drill keeps processes busy, 3 of them: x",
        ),
        (
            "slowed",
            {"worker": "w1", "factor": 1.5, "for_s": 60.0, "reason": "x"},
            "w1 computes 1.5 times as long from now on, for 1 min 0 s at most: x",
        ),
        ("slowed_no_more", {"worker": "w1", "reason": "x"}, "w1 computes at its own speed again: x"),
        ("straggler", {"action": "bear", "reason": "w1 takes long"}, "slow workers, bear: w1 takes long"),
        ("autoscale", {"workers": 1, "wanted": 2, "reason": "x"}, "1 worker, 2 wanted: x"),
        ("leave_requested", {"worker": "w1", "reason": "SIGTERM"}, "w1 was asked to leave: SIGTERM"),
        (
            "orphaned",
            {"worker": "w1", "reason": "no agent on n0 for 30 s"},
            "w1 lets the job stop and save: no agent on n0 for 30 s",
        ),
        ("fenced", {"worker": "w1", "reason": "the lease ran out"}, "w1 stops by itself: the lease ran out"),
        ("told_to_quit", {"worker": "w1", "reason": "cut off"}, "w1 is told to quit: cut off"),
        ("warm_up_skipped", {"worker": "w1", "reason": "no batch"}, "w1 was not warmed up: no batch"),
        ("agent_started", {}, "agent started"),
        ("worker_starting", {"worker": "w1", "device": "cpu:0"}, "starts w1 on cpu:0"),
        ("worker_starting", {"worker": "w1", "reason": "2 wanted"}, "starts w1: 2 wanted"),
        ("worker_exited", {"worker": "w1", "code": 0}, "w1 ended with code 0"),
        ("worker_exited", {"worker": "w1", "code": -9}, "w1 was ended by signal 9"),
        (
            "worker_exited",
            {"worker": "w1", "code": -9, "signal": "SIGKILL", "meaning": "killed", "failure": True},
            "w1 was ended by SIGKILL (killed)",
        ),
        (
            "worker_ready",
            {"worker": "w1", "seconds": {"imports": 0.5, "warm_up": 2.0}},
            "w1 is ready (imports 500 ms, warm_up 2.0 s)",
        ),
        ("worker_ready", {"worker": "w1", "seconds": 0.25}, "w1 is ready after 250 ms"),
        ("worker_ready", {"worker": "w1"}, "w1 is ready"),
        (
            "proposed",
            {"generation": 3, "members": {"a": [0, 2], "b": [2, 4]}, "reason": "b is ready"},
            "proposes generation 3 with a, b: b is ready",
        ),
        (
            "proposed",
            {"generation": 3, "members": {}, "reason": "asked to stop"},
            "proposes generation 3, in which nobody trains on: asked to stop",
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
        ("leader", {"reason": "the job had no leader"}, "this worker leads: the job had no leader"),
        (
            "link_broken",
            {"generation": 3, "reason": "b is gone"},
            "the link of generation 3 broke: b is gone",
        ),
        (
            "waiting",
            {"worker": "b", "since_s": 2.0, "reason": "the state to be moved"},
            "b waits: the state to be moved (since 2.0 s)",
        ),
        (
            "script_failed",
            {"worker": "a", "traceback": TRACEBACK},
            "the script failed in a: ValueError: no",
        ),
        ("finished", {"step": 90, "digest": "ab12"}, "finished after 90 steps, state ab12"),
        ("stopped", {"step": 90, "path": "/x/final"}, "stopped after 90 steps, state saved in /x/final"),
        ("stopped", {"reason": "asked twice"}, "stopped: asked twice"),
        ("failed", {"reason": "3 failures"}, "failed: 3 failures"),
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
    assert name_of_error("\n \n") == "no traceback"
