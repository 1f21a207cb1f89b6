"""When a checkpoint is due, when it is whole or lost, and which ones are kept."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol_records import topology

from elastane.core.checkpoints import (
    CheckpointName,
    Flight,
    SavedFile,
    ShareNote,
    find_obstacle,
    hear_notes,
    is_due,
    parse_folder,
    plan_removal,
    share_file,
)
from elastane.model.ids import WorkerId
from elastane.model.records import CheckpointPlan
from elastane.model.topology import Mode

A, B, C = (WorkerId(w) for w in "abc")
NAME = CheckpointName(3, 500)
FLIGHT = Flight(name=NAME, writers=(A, B))


def saved(name: str) -> SavedFile:
    return SavedFile(name=name, content_bytes=1, sha256="0")


def note(file: str = "", failure: str = "", *, name: CheckpointName = NAME) -> ShareNote:
    return ShareNote(False, True, *name, saved(file) if file else None, failure)


@pytest.mark.parametrize(
    ("every_steps", "every_s", "step", "since_s", "due"),
    [
        (None, 600.0, 7, 599.9, False),
        (None, 600.0, 7, 600.0, True),
        (50, None, 99, 1e9, False),
        (50, None, 100, 0.0, True),
        (50, 600.0, 100, 0.0, True),
        (50, 600.0, 99, 601.0, True),
        (None, None, 100, 1e9, False),
    ],
)
def test_a_checkpoint_is_due_by_steps_or_by_time(
    every_steps: int | None, every_s: float | None, step: int, since_s: float, due: bool
) -> None:
    assert is_due(CheckpointPlan(every_steps=every_steps, every_s=every_s), step, since_s) is due


def test_by_default_one_is_due_every_ten_minutes() -> None:
    assert not is_due(CheckpointPlan(), 100_000, 599.0)
    assert is_due(CheckpointPlan(), 1, 600.0)


@given(st.integers(1, 10**8), st.integers(0, 10**12))
def test_a_folders_name_tells_which_checkpoint_it_is(generation: int, step: int) -> None:
    name = CheckpointName(generation, step)
    assert parse_folder(name.folder) == name


@pytest.mark.parametrize("text", ["", "logs", "g1-step-2", "g000001-step-000000002x", "xg000001-step-00002"])
def test_other_folders_are_no_checkpoints(text: str) -> None:
    assert parse_folder(text) is None


def test_shares_are_named_for_people() -> None:
    assert share_file(0, 3) == "share-1-of-3.bin"


def test_a_checkpoint_is_whole_when_all_have_written() -> None:
    first = hear_notes(FLIGHT, {A: note(), B: note("b")})
    assert first == replace(FLIGHT, written={B: saved("b")})
    assert isinstance(first, Flight)
    assert not first.whole
    second = hear_notes(first, {A: note("a"), B: note("b"), C: note("c")})
    assert isinstance(second, Flight)
    assert (second.whole, second.shares) == (True, [saved("a"), saved("b")])


def test_notes_about_another_checkpoint_say_nothing_of_this_one() -> None:
    other = note("b", name=CheckpointName(3, 400))
    assert hear_notes(FLIGHT, {B: other, A: ShareNote(due=True)}) == FLIGHT


def test_one_failed_share_is_the_end_of_a_checkpoint() -> None:
    assert hear_notes(FLIGHT, {A: note("a"), B: note(failure="disk full")}) == "b: disk full"


@pytest.mark.parametrize(
    ("written", "next_one", "obstacle"),
    [
        ({}, topology("a", "b", "c", generation=4), ""),
        ({}, topology("a", generation=4), "b left before all shares were written"),
        ({B: saved("b")}, topology("a", generation=4), ""),
        ({A: saved("a")}, topology("b", "c", generation=4), "a left before all shares were written"),
        ({}, topology(generation=4, mode=Mode.STOP), "a, b left before all shares were written"),
        (
            {A: saved("a")},
            topology("a", "b", generation=4, mode=Mode.RECOVERY, reason="lost c"),
            "a worker was lost before all shares were written (lost c)",
        ),
        ({A: saved("a"), B: saved("b")}, topology("c", generation=4, mode=Mode.RECOVERY), ""),
    ],
)
def test_a_checkpoint_outlives_a_change_if_all_that_still_write_stay(
    written: dict[WorkerId, SavedFile], next_one: object, obstacle: str
) -> None:
    assert find_obstacle(replace(FLIGHT, written=written), next_one) == obstacle  # type: ignore[arg-type]


NAMES = st.builds(CheckpointName, st.integers(1, 4), st.integers(0, 20))


@given(st.sets(NAMES), st.sets(NAMES), st.integers(0, 5))
def test_the_newest_good_ones_are_never_removed(
    good: set[CheckpointName], others: set[CheckpointName], keep: int
) -> None:
    removed = set(plan_removal(good, good | others, keep))
    kept = sorted(good, reverse=True)[: max(1, keep)]
    assert not removed & set(kept)
    assert good - removed == set(kept)
    newest = max(good, default=CheckpointName(0, 0))
    assert removed == {name for name in good | others if name < newest and name not in kept}
