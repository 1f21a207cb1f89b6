"""Cells: what is accepted, and in which words the rest is refused."""

from __future__ import annotations

import pytest

from elastane.sim.readers.fields import (
    BadCell,
    NotAJob,
    parse_devices,
    parse_duration,
    parse_elapsed,
    parse_job_id,
    parse_submit,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("00:00:01", 1.0),
        ("01:02:03", 3723.0),
        ("1-02:03:04", 93784.0),
        ("12-00:00:00", 1036800.0),
        ("05:07", 307.0),
        ("00:00:01.500", 1.5),
    ],
)
def test_every_form_of_elapsed_time_is_understood(text: str, seconds: float) -> None:
    assert parse_elapsed(text) == seconds


@pytest.mark.parametrize("text", ["soon", "1:2:3:4", "-1:00:00", "1d2h", "9" * 5000 + ":00:00"])
def test_other_clock_readings_are_refused(text: str) -> None:
    with pytest.raises(BadCell, match="is not a time like 1-02:03:04"):
        parse_elapsed(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("1e3", 1000.0),
        ("2020-04-01 10:00:00", 1585735200.0),
        ("2020-04-01T10:00:00", 1585735200.0),
        ("2020-04-01T12:00:00+02:00", 1585735200.0),
        (" 17.5 ", 17.5),
    ],
)
def test_submission_times_may_be_seconds_or_dates(text: str, seconds: float) -> None:
    assert parse_submit(text, "submit") == seconds


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "submit is missing"),
        ("Unknown", "submit is missing"),
        ("NaN", "submit is missing"),
        ("-1", "submit is negative"),
        ("yesterday", "submit is neither a number nor a date and time"),
        ("inf", "submit is neither a number nor a date and time"),
        ("1585735200000", "submit is too large (wrong unit?)"),
    ],
)
def test_unusable_submission_times_say_why(text: str, reason: str) -> None:
    with pytest.raises(BadCell) as caught:
        parse_submit(text, "submit")
    assert (caught.value.reason, caught.value.found) == (reason, text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "duration is missing"),
        ("-5", "duration is negative"),
        ("0", "duration is zero (the job never ran)"),
        ("1e300", "duration is too large (wrong unit?)"),
        ("inf", "duration is not finite"),
        ("2h", "duration is not a number"),
    ],
)
def test_unusable_durations_say_why(text: str, reason: str) -> None:
    with pytest.raises(BadCell) as caught:
        parse_duration(text)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("-1", "gpus is negative"),
        ("0", "gpus is zero (a job without devices)"),
        ("2.5", "gpus is not a whole number"),
        ("99999999", "gpus is too large (wrong column?)"),
        ("many", "gpus is not a number"),
    ],
)
def test_unusable_device_counts_say_why(text: str, reason: str) -> None:
    with pytest.raises(BadCell) as caught:
        parse_devices(text, "gpus")
    assert caught.value.reason == reason


def test_a_job_without_devices_is_no_fault_of_the_file() -> None:
    with pytest.raises(NotAJob):
        parse_devices("0", "gpus")


def test_a_whole_number_written_as_a_float_is_a_device_count() -> None:
    assert parse_devices("8.0", "gpus") == 8


def test_a_job_id_is_any_text_without_its_surrounding_blanks() -> None:
    assert parse_job_id("  17_3 ") == "17_3"
    with pytest.raises(BadCell, match="job id is missing"):
        parse_job_id("  ")
