"""Say numbers as people say them: 2.4 h, 37 %, 1,511 jobs, -63 %."""

from __future__ import annotations

import math

_STEPS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))


def say_duration(seconds: float) -> str:
    """Return a duration in the largest unit that leaves a number of at least 1, with two or three digits."""
    if not math.isfinite(seconds):
        return "-"
    for length, unit in _STEPS:
        if abs(seconds) >= length:
            return f"{_three_digits(seconds / length)} {unit}"
    if seconds == 0:
        return "0 s"
    return f"{seconds:.1f} s" if seconds >= 0.1 else "under 0.1 s"


def say_share(share: float) -> str:
    """Return a share from 0 to 1 in per cent."""
    percent = share * 100
    return f"{percent:.1f} %" if abs(percent) < 10 and percent else f"{percent:.0f} %"


def say_change(new: float, old: float) -> str:
    """Return how much more or less `new` is than `old`: "-63 %", "+5 %", "x 12" beyond a factor of three."""
    if not old or not math.isfinite(old) or not math.isfinite(new):
        return ""
    ratio = new / old
    if ratio >= 3:
        return f"x {_three_digits(ratio)}"
    percent = (ratio - 1) * 100
    if abs(percent) < 0.05:
        return "same"
    digits = 1 if abs(percent) < 10 else 0
    # A minus sign as wide as a plus; a hyphen would look like a dash in a table.
    return f"{percent:+.{digits}f} %".replace("-", "\N{MINUS SIGN}")


def say_number(value: float) -> str:
    """Return a count with thousands separators, or a broken number with three digits."""
    return f"{value:,.0f}" if value == int(value) else _three_digits(value)


def _three_digits(value: float) -> str:
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}".removesuffix("0")
