"""Read what a user writes after `--autoscale`.

    efficiency=0.1,min=1,max=8,step=1
    utility=deadline:60min:50usd,price=0.77usd/h,max=8

A utility is `deadline:T:V`, `steps:T:V:T:V...`, `linear:T:V`, `concave:T:V` or `table:T:V:T:V...`: times with
their unit (s, min, h), values with any currency, which must be that of the price.
"""

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from elastane.core.autoscaler import AutoscaleSettings, Worth
from elastane.core.utility import Concave, Linear, Point, Steps, Table, Utility
from elastane.model.errors import ConfigError

SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}
KEYS = ("efficiency", "utility", "price", "min", "max", "step")
SHAPES = ("deadline", "steps", "linear", "concave", "table")

_NUMBER = r"(\d+(?:\.\d+)?)"
_T = TypeVar("_T")


def parse_autoscale(text: str, default_most: int | None = None) -> AutoscaleSettings:
    """Return the settings that `text` describes.

    Args:
        text: as in the module's text.
        default_most: `max` if the text has none.

    Raises:
        ConfigError: the text says something else, or what it says contradicts itself.
    """
    given = _split(text)
    maximum = _read(given, "max", _parse_count, default_most)
    if maximum is None:
        raise ConfigError("--autoscale needs the most workers to use: add max=N")
    if "utility" in given and "efficiency" in given:
        raise ConfigError(
            "--autoscale takes efficiency=... or utility=..., not both: one condition for growing"
        )
    return AutoscaleSettings(
        minimum=_read(given, "min", _parse_count, 1),
        maximum=maximum,
        step=_read(given, "step", _parse_count, 1),
        efficiency=_read(given, "efficiency", _parse_share, 0.1),
        worth=_read_worth(given),
    )


def _split(text: str) -> dict[str, str]:
    given: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.strip().partition("=")
        if not equals or key not in KEYS:
            raise ConfigError(
                f"--autoscale cannot read {part.strip()!r}; write KEY=VALUE,KEY=VALUE with the keys "
                f"{', '.join(KEYS)}"
            )
        if key in given:
            raise ConfigError(f"--autoscale has {key} twice")
        given[key] = value.strip()
    return given


def _read(given: Mapping[str, str], key: str, parse: Callable[[str, str], _T], default: _T) -> _T:
    return parse(key, given[key]) if key in given else default


def _parse_count(key: str, text: str) -> int:
    if not re.fullmatch(r"\d+", text, flags=re.ASCII):
        raise ConfigError(f"{key}={text} is no number of workers; write {key}=4")
    return int(text)


def _parse_share(key: str, text: str) -> float:
    if not re.fullmatch(_NUMBER, text, flags=re.ASCII):
        raise ConfigError(f"{key}={text} is no share; write {key}=0.1 for a tenth")
    return float(text)


def _read_worth(given: Mapping[str, str]) -> Worth | None:
    if "utility" not in given:
        if "price" in given:
            raise ConfigError("a price is for a utility only; add utility=deadline:60min:50usd or drop it")
        return None
    if "price" not in given:
        raise ConfigError(
            "a utility is weighed against what workers cost: add the price of one, price=0.77usd/h"
        )
    utility, currency = _parse_utility(given["utility"])
    price, price_currency = _parse_price(given["price"])
    if currency != price_currency:
        raise ConfigError(f"the utility is in {currency} and the price in {price_currency}; use one currency")
    return Worth(utility=utility, price=price)


def _parse_price(text: str) -> tuple[float, str]:
    match = re.fullmatch(rf"{_NUMBER}([^\W\d]+)/(s|min|h)", text, flags=re.ASCII)
    if match is None:
        raise ConfigError(f"price={text} is no price of a worker; write price=0.77usd/h")
    return float(match[1]) / SECONDS[match[3]], match[2]


def _parse_utility(text: str) -> tuple[Utility, str]:
    shape, *cells = text.split(":")
    if shape not in SHAPES:
        raise ConfigError(f"no utility is called {shape!r}; known: {', '.join(SHAPES)}")
    if not cells or len(cells) % 2:
        raise ConfigError(f"utility={text} must name times with their values; write {shape}:60min:50usd")
    points, currencies = [], set()
    for time_text, value_text in zip(cells[::2], cells[1::2], strict=True):
        value, currency = _parse_value(value_text)
        points.append((_parse_time(time_text), value))
        currencies.add(currency)
    if len(currencies) > 1:
        raise ConfigError(f"utility={text} has several currencies: {', '.join(sorted(currencies))}")
    return _make_utility(shape, tuple(points)), currencies.pop()


def _make_utility(shape: str, points: tuple[Point, ...]) -> Utility:
    if shape == "steps":
        return Steps(points)
    if shape == "table":
        return Table(points)
    if len(points) > 1:
        raise ConfigError(f"a {shape} takes one time and one value; for several use steps or table")
    if shape == "deadline":
        return Steps(points)
    return Linear(*points[0]) if shape == "linear" else Concave(*points[0])


def _parse_time(text: str) -> float:
    match = re.fullmatch(rf"{_NUMBER}(s|min|h)", text, flags=re.ASCII)
    if match is None:
        raise ConfigError(f"{text!r} is no time; write 90s, 60min or 1.5h")
    return float(match[1]) * SECONDS[match[2]]


def _parse_value(text: str) -> tuple[float, str]:
    match = re.fullmatch(rf"{_NUMBER}([^\W\d]+)", text, flags=re.ASCII)
    if match is None:
        raise ConfigError(f"{text!r} is no value; write 50usd")
    return float(match[1]), match[2]


def find_currency(text: str) -> str:
    """Return the currency of the price in a text that `parse_autoscale` has accepted; "" if it has none."""
    given = _split(text)
    return _parse_price(given["price"])[1] if "price" in given else ""
