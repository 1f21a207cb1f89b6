"""Read the small notations of the command line: numbers of workers, changes of them, durations."""

import re
from dataclasses import dataclass

from elastane.model.errors import ConfigError

MAX_WORKERS = 10_000
"""More workers than any job of one machine or rack has: a larger number is a slip of the hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRange:
    """Say with how many workers a job may start and how many it wants."""

    minimum: int
    wanted: int


def parse_workers(text: str) -> WorkerRange:
    """Read `4` (wanted 4, starts with as few as 1) or `2:8` (wanted 8, starts with 2 or more).

    Raises:
        ConfigError: the text is neither, or its numbers make no range.
    """
    match = re.fullmatch(r"(?:(\d+):)?(\d+)", text.strip(), flags=re.ASCII)
    if match is None:
        raise ConfigError(
            f"--workers {text!r} is no number of workers; write 4, or 1:8 for at least 1, wanted 8"
        )
    minimum, wanted = int(match[1] or 1), int(match[2])
    _check_count(wanted)
    if not 1 <= minimum <= wanted:
        raise ConfigError(
            f"--workers {text} asks for at least {minimum} of {wanted} workers; "
            f"the first number must be 1 to {wanted}"
        )
    return WorkerRange(minimum=minimum, wanted=wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleTo:
    """Ask for a number of workers."""

    workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleBy:
    """Ask for more (or, below 0, fewer) workers than are wanted now."""

    workers: int


MAX_SLOWNESS = 100.0
"""A worker a hundred times as slow as the others is as good as hung: there is `--freeze` for that."""


def parse_slowness(text: str) -> tuple[str, float]:
    """Read `w2=1.33`: which worker, by its id or its place in the job, and how many times as slow.

    Raises:
        ConfigError: the text is something else, or such a worker would not be slow, or would be hung.
    """
    name, equals, number = text.strip().rpartition("=")
    if not equals or not name or re.fullmatch(r"\d+(?:\.\d+)?", number, flags=re.ASCII) is None:
        raise ConfigError(f"--slow {text!r} is no slow worker; write WORKER=TIMES, like w2=1.33 or 0=2")
    factor = float(number)
    if not 1 < factor <= MAX_SLOWNESS:
        raise ConfigError(
            f"--slow {text}: a worker that computes {factor:g} times as long is "
            + ("not slow; " if factor <= 1 else "as good as hung, for which there is --freeze; ")
            + f"the number must be above 1 and at most {MAX_SLOWNESS:g}"
        )
    return name, factor


_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(text: str) -> float:
    """Read `5s`, `500ms`, `2m`, `1h` or a bare number of seconds; return seconds.

    Raises:
        ConfigError: the text is none of them, or no time at all.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)?", text.strip(), flags=re.ASCII)
    seconds = float(match[1]) * _UNITS_S[match[2] or "s"] if match else 0.0
    if seconds <= 0:
        raise ConfigError(f"{text!r} is no time; write 5s, 500ms, 2m or 1h")
    return seconds


def parse_scale(text: str) -> ScaleTo | ScaleBy:
    """Read `8` (eight workers), `+2` (two more) or `-1` (one fewer).

    Raises:
        ConfigError: the text is none of them.
    """
    match = re.fullmatch(r"([+-]?)(\d+)", text.strip(), flags=re.ASCII)
    if match is None:
        raise ConfigError(f"{text!r} is no number of workers; write 8, +2 or -1")
    count = int(match[2])
    if match[1]:
        if count == 0:
            raise ConfigError(f"{text} changes nothing; write 8, +2 or -1")
        return ScaleBy(workers=count if match[1] == "+" else -count)
    _check_count(count)
    return ScaleTo(workers=count)


def _check_count(workers: int) -> None:
    if not 1 <= workers <= MAX_WORKERS:
        raise ConfigError(
            f"a job cannot have {workers} workers; ask for 1 up to its number of virtual workers"
            + (", or end it with `elastane stop`" if workers < 1 else "")
        )


def parse_failures(text: str) -> tuple[int, int, int]:
    """Read `3:10:100`: the failures of the script, of machines, and the preemptions that end a job.

    Raises:
        ConfigError: the text is not three numbers from 1 on.
    """
    match = re.fullmatch(r"([1-9]\d{0,8}):([1-9]\d{0,8}):([1-9]\d{0,8})", text.strip(), flags=re.ASCII)
    if match is None:
        raise ConfigError(
            f"--failures {text!r} is not three numbers from 1 on; "
            "write SCRIPT:MACHINE:PREEMPTION, like 3:10:100"
        )
    return int(match[1]), int(match[2]), int(match[3])


def parse_checkpoint_every(text: str) -> tuple[int | None, float | None]:
    """Read `500steps`, `10m`, `500steps,10m` (whichever comes first) or `never`; return (steps, seconds).

    Raises:
        ConfigError: the text is none of them.
    """
    steps: int | None = None
    seconds: float | None = None
    for part in text.split(",") if text.strip() != "never" else ():
        match = re.fullmatch(r"(\d+)\s*steps?", part.strip(), flags=re.ASCII)
        if match is None:
            seconds = parse_duration(part)
        elif int(match[1]) == 0:
            raise ConfigError(
                f"{text!r} is no interval; write 500steps, 10m, both joined by a comma, or never"
            )
        else:
            steps = int(match[1])
    return steps, seconds
