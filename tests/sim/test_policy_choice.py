"""Policies as users type them: names, options, files of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastane.model.errors import ConfigError
from elastane.policy.elastic_tiresias import ElasticTiresias
from elastane.policy.fifo import Fifo
from elastane.policy.registry import POLICIES
from elastane.policy.tiresias import Tiresias
from elastane.sim.policy_choice import choose_labels, describe_policy, make_policy

OWN = '''
from dataclasses import dataclass
from typing import ClassVar
from elastane.model.cluster import KEEP

@dataclass(frozen=True)
class Lazy:
    """Do nothing at all."""
    name: ClassVar[str] = "lazy"
    clairvoyant: ClassVar[bool] = False
    patience: int = 3
    eager: bool = False
    def plan(self, view, now):
        return KEEP
'''


def write(folder: Path, text: str) -> Path:
    path = folder / "own.py"
    path.write_text(text)
    return path


def test_a_name_gives_the_policy_with_its_defaults() -> None:
    assert make_policy("fifo") == Fifo()
    assert make_policy("tiresias") == Tiresias()


def test_options_are_read_as_the_fields_types_say() -> None:
    made = make_policy("elastic-tiresias:limits=500+10000,waiting_trigger=4,floor=gpus,floor_share=0.25")
    assert made == ElasticTiresias(limits=(500.0, 10000.0), waiting_trigger=4, floor="gpus", floor_share=0.25)


def test_an_unknown_name_lists_the_known_ones_and_the_nearest() -> None:
    with pytest.raises(ConfigError) as caught:
        make_policy("tiresas")
    message = str(caught.value)
    assert "Did you mean 'tiresias'?" in message
    assert all(name in message for name in POLICIES)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("tiresias:limit=5", r"'limit=5' is no option of it.*limits=3250\+7200\+18000"),
        ("tiresias:limits", "'limits' is no option of it"),
        ("tiresias:limits=a+b", r"option limits='a\+b' is not of its kind"),
        ("elastic-tiresias:waiting_trigger=ten", r"is not of its kind \(int\)"),
        ("elastic-tiresias:floor=carpet", r"is not of its kind \(throughput or gpus\)"),
        ("tiresias:limits=9+5", "policy 'tiresias:limits=9"),
        ("fifo:speed=9", "its options and defaults: none"),
        ("gone.py:Lazy", "there is no such file"),
    ],
)
def test_impossible_choices_are_refused_with_what_is_possible(choice: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_policy(choice)


def test_a_class_in_a_file_is_a_policy_with_options(tmp_path: Path) -> None:
    path = write(tmp_path, OWN)
    made = make_policy(f"{path}:Lazy:patience=7,eager=yes")
    assert (made.name, made.patience, made.eager) == ("lazy", 7, True)  # type: ignore[attr-defined]
    assert describe_policy(type(made)) == "Do nothing at all."


def test_a_file_policy_goes_by_its_own_name_unless_that_is_taken(tmp_path: Path) -> None:
    own, twin = f"{write(tmp_path, OWN)}:Lazy", f"{tmp_path / 'own.py'}:Lazy:patience=7"
    assert choose_labels(["fifo", own, twin]) == {"fifo": "fifo", own: "lazy", twin: "lazy:patience=7"}
    again = str(tmp_path / "own.py")
    assert choose_labels([own, again]) == {own: own, again: again}


def test_the_only_policy_of_a_file_needs_no_name(tmp_path: Path) -> None:
    assert make_policy(str(write(tmp_path, OWN))).name == "lazy"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("class Other:\n    pass\n", "no policy class 'Lazy'; classes with a plan\\(\\) in it: none"),
        ("def broken(:\n", "cannot be loaded: SyntaxError"),
        ("raise ValueError('boom')\n", "cannot be loaded: ValueError: boom"),
        ("class Lazy:\n    def plan(self, view, now):\n        ...\n", "has no name, clairvoyant"),
        (
            "class Lazy:\n    def __init__(self, a):\n        ...\n    def plan(self, v, n):\n        ...\n",
            "cannot be made without arguments",
        ),
    ],
)
def test_faults_in_a_policy_file_are_said_in_words(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_policy(f"{write(tmp_path, text)}:Lazy")
