"""What may stand after --autoscale, and what may not."""

import pytest

from elastane.core.autoscale_text import parse_autoscale
from elastane.core.autoscaler import AutoscaleSettings, Worth
from elastane.core.utility import Concave, Linear, Steps, Table, Utility
from elastane.model.errors import ConfigError


def test_the_efficiency_condition_is_read() -> None:
    assert parse_autoscale("efficiency=0.2,min=2,max=8,step=4") == AutoscaleSettings(
        minimum=2, maximum=8, step=4, efficiency=0.2
    )
    assert parse_autoscale(" max=8 ") == AutoscaleSettings(minimum=1, maximum=8, step=1, efficiency=0.1)
    assert parse_autoscale("efficiency=0", default_most=6) == AutoscaleSettings(maximum=6, efficiency=0.0)
    assert parse_autoscale("max=4", default_most=6).maximum == 4


def test_a_utility_is_read_with_its_price() -> None:
    assert parse_autoscale("utility=deadline:60min:50usd,price=0.77usd/h,max=8") == AutoscaleSettings(
        maximum=8, worth=Worth(utility=Steps(((3600.0, 50.0),)), price=0.77 / 3600)
    )


@pytest.mark.parametrize(
    ("text", "utility"),
    [
        ("deadline:90s:5eur", Steps(((90.0, 5.0),))),
        ("steps:1h:5eur:1.5h:2.5eur", Steps(((3600.0, 5.0), (5400.0, 2.5)))),
        ("linear:2h:100eur", Linear(7200.0, 100.0)),
        ("concave:30min:1eur", Concave(1800.0, 1.0)),
        ("table:0s:9eur:10min:3eur:1h:0eur", Table(((0.0, 9.0), (600.0, 3.0), (3600.0, 0.0)))),
    ],
)
def test_all_shapes_are_read(text: str, utility: Utility) -> None:
    worth = parse_autoscale(f"max=2,utility={text},price=1eur/min").worth
    assert worth == Worth(utility=utility, price=1 / 60)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "",
            "cannot read ''; write KEY=VALUE,KEY=VALUE with the keys efficiency, utility, price",
        ),
        ("fast", "cannot read 'fast'"),
        ("max=8,speed=3", "cannot read 'speed=3'"),
        ("max=8,max=9", "has max twice"),
        ("efficiency=0.1", "needs the most workers to use: add max=N"),
        (
            "max=8,efficiency=0.1,utility=linear:1h:5usd,price=1usd/h",
            "efficiency=... or utility=..., not both",
        ),
        ("max=eight", "max=eight is no number of workers; write max=4"),
        ("max=8,min=-1", "min=-1 is no number of workers"),
        ("max=8,efficiency=a tenth", "efficiency=a tenth is no share; write efficiency=0.1"),
        ("max=8,efficiency=2", "an efficiency of 2 is none"),
        ("min=9,max=8", "at least 9 and at most 8 workers is no range"),
        ("max=8,step=0", "0 workers cannot be added at a time"),
        ("max=8,price=1usd/h", "a price is for a utility only"),
        ("max=8,utility=linear:1h:5usd", "add the price of one, price=0.77usd/h"),
        ("max=8,utility=linear:1h:5usd,price=1usd", "price=1usd is no price of a worker"),
        ("max=8,utility=linear:1h:5usd,price=1/h", "price=1/h is no price of a worker"),
        ("max=8,utility=linear:1h:5usd,price=1eur/h", "the utility is in usd and the price in eur"),
        (
            "max=8,utility=square:1h:5usd,price=1usd/h",
            "no utility is called 'square'; known: deadline, steps",
        ),
        ("max=8,utility=linear,price=1usd/h", "must name times with their values; write linear:60min:50usd"),
        ("max=8,utility=linear:1h,price=1usd/h", "must name times with their values"),
        ("max=8,utility=linear:1h:5usd:2h:1usd,price=1usd/h", "a linear takes one time and one value"),
        ("max=8,utility=deadline:1h:5usd:2h:1usd,price=1usd/h", "a deadline takes one time and one value"),
        ("max=8,utility=steps:1h:5usd:2h:1eur,price=1usd/h", "has several currencies: eur, usd"),
        ("max=8,utility=linear:1:5usd,price=1usd/h", "'1' is no time; write 90s, 60min or 1.5h"),
        ("max=8,utility=linear:1h:5,price=1usd/h", "'5' is no value; write 50usd"),
        (
            "max=8,utility=table:1h:5usd:2h:9usd,price=1usd/h",
            "the utility rises from 5 at 3600 s to 9 at 7200 s",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_with_advice(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_autoscale(text)
    assert complaint in str(caught.value)
