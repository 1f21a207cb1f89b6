"""The small notations: what is read, and what is refused with which words."""

import pytest

from elastane.cli.parse import (
    ScaleBy,
    ScaleTo,
    WorkerRange,
    parse_checkpoint_every,
    parse_failures,
    parse_scale,
    parse_workers,
)
from elastane.model.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "workers"),
    [
        ("4", WorkerRange(minimum=1, wanted=4)),
        ("1", WorkerRange(minimum=1, wanted=1)),
        ("2:8", WorkerRange(minimum=2, wanted=8)),
        (" 3:3 ", WorkerRange(minimum=3, wanted=3)),
    ],
)
def test_numbers_of_workers_are_read(text: str, workers: WorkerRange) -> None:
    assert parse_workers(text) == workers


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "--workers '' is no number of workers; write 4, or 1:8 for at least 1, wanted 8"),
        ("four", "--workers 'four' is no number of workers; write 4, or 1:8 for at least 1, wanted 8"),
        ("1:2:3", "--workers '1:2:3' is no number of workers; write 4, or 1:8 for at least 1, wanted 8"),
        ("-1", "--workers '-1' is no number of workers; write 4, or 1:8 for at least 1, wanted 8"),
        ("٣", "--workers '٣' is no number of workers; write 4, or 1:8 for at least 1, wanted 8"),
        ("8:2", "--workers 8:2 asks for at least 8 of 2 workers; the first number must be 1 to 2"),
        ("0:2", "--workers 0:2 asks for at least 0 of 2 workers; the first number must be 1 to 2"),
        (
            "0",
            "a job cannot have 0 workers; ask for 1 up to its number of virtual workers, "
            "or end it with `elastane stop`",
        ),
        ("1000000", "a job cannot have 1000000 workers; ask for 1 up to its number of virtual workers"),
    ],
)
def test_numbers_of_workers_that_make_no_sense_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_workers(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "wish"), [("8", ScaleTo(workers=8)), ("+2", ScaleBy(workers=2)), ("-1", ScaleBy(workers=-1))]
)
def test_changes_of_workers_are_read(text: str, wish: ScaleTo | ScaleBy) -> None:
    assert parse_scale(text) == wish


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("more", "'more' is no number of workers; write 8, +2 or -1"),
        ("1.5", "'1.5' is no number of workers; write 8, +2 or -1"),
        ("--all", "'--all' is no number of workers; write 8, +2 or -1"),
        ("+0", "+0 changes nothing; write 8, +2 or -1"),
        (
            "0",
            "a job cannot have 0 workers; ask for 1 up to its number of virtual workers, "
            "or end it with `elastane stop`",
        ),
        ("1000000", "a job cannot have 1000000 workers; ask for 1 up to its number of virtual workers"),
    ],
)
def test_changes_of_workers_that_make_no_sense_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_scale(text)
    assert str(caught.value) == message


def test_budgets_of_failures_are_three_numbers() -> None:
    assert parse_failures("3:10:100") == (3, 10, 100)


@pytest.mark.parametrize("text", ["", "3", "3:10", "0:1:1", "3:-1:1", "a:b:c", "1:2:3:4", "٣:1:1"])
def test_what_is_no_budget_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not three numbers from 1 on"):
        parse_failures(text)


@pytest.mark.parametrize(
    ("text", "interval"),
    [
        ("500steps", (500, None)),
        ("1 step", (1, None)),
        ("10m", (None, 600.0)),
        ("30", (None, 30.0)),
        ("500steps,10m", (500, 600.0)),
        ("never", (None, None)),
    ],
)
def test_intervals_of_checkpoints_are_read(text: str, interval: tuple[int | None, float | None]) -> None:
    assert parse_checkpoint_every(text) == interval


@pytest.mark.parametrize("text", ["0steps", "often", "", "-5m", "5steps,"])
def test_what_is_no_interval_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is no"):
        parse_checkpoint_every(text)
