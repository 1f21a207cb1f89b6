"""The hand-out of shards: every sample once over any change, whoever knows how long the shards are."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from elastane.core.handout import (
    MOST_GOALS,
    Counts,
    Goal,
    Ledger,
    Rest,
    Span,
    StepPlan,
    count_left,
    plan_scouting,
    plan_step,
)
from elastane.core.sightings import UNSEEN, Sighting, Sightings


def told(lengths: list[int]) -> Sightings:
    return Sightings([Sighting(length, whole=True) for length in lengths])


def unseen(lengths: list[int]) -> Sightings:
    return Sightings([UNSEEN] * len(lengths))


def split(samples: int, seats: int) -> list[int]:
    """Return the parts of a step, as `DataOrder` cuts them."""
    return [samples // seats + (seat < samples % seats) for seat in range(seats)]


def plan(ledger: Ledger, lengths: list[int], parts: list[int]) -> StepPlan:
    planned = plan_step(ledger, range(len(lengths)), told(lengths), parts)
    assert planned is not None
    return planned


def samples_of(spans: tuple[tuple[Span, ...], ...]) -> Iterator[tuple[int, int]]:
    for own in spans:
        for span in own:
            yield from ((span.shard, offset) for offset in range(span.start, span.stop))


# --- small cases, written down ------------------------------------------------------------------------


def test_each_seat_takes_a_shard_and_the_next_when_it_ends() -> None:
    lengths = [3, 9, 5]
    first = plan(Ledger(), lengths, [2, 2])
    assert first == StepPlan(
        spans=((Span(0, 0, 2),), (Span(1, 0, 2),)),
        after=Ledger(opened=2, doing=(Rest(0, 2), Rest(1, 2))),
    )
    second = plan(first.after, lengths, [2, 2])
    assert second == StepPlan(
        spans=((Span(0, 2, 3), Span(2, 0, 1)), (Span(1, 2, 4),)),
        after=Ledger(opened=3, doing=(Rest(2, 1), Rest(1, 4))),
    )


def test_who_finds_nothing_todo_reads_on_in_what_another_holds() -> None:
    lengths = [2, 20]
    ledger = plan(Ledger(), lengths, [2, 2, 2]).after
    assert ledger == Ledger(opened=2, doing=(None, Rest(1, 4), None))  # the first was found at its end
    assert plan(ledger, lengths, [2, 2, 2]) == StepPlan(
        spans=((Span(1, 6, 8),), (Span(1, 4, 6),), (Span(1, 8, 10),)),
        after=Ledger(opened=2, doing=(None, Rest(1, 10), None)),
    )


def test_helpers_begin_at_different_holders() -> None:
    ledger = Ledger(opened=2, doing=(Rest(0, 0), Rest(1, 0), None, None))
    assert plan(ledger, [50, 50], [1, 1, 4, 4]).spans == (
        (Span(0, 0, 1),),
        (Span(1, 0, 1),),
        (Span(0, 1, 5),),
        (Span(1, 1, 5),),
    )


def test_a_helper_goes_on_to_the_next_holder_when_a_shard_ends() -> None:
    ledger = Ledger(opened=2, doing=(Rest(0, 0), Rest(1, 0), None))
    step = plan(ledger, [3, 50], [2, 2, 4])
    assert step.spans[2] == (Span(0, 2, 3), Span(1, 2, 5))
    assert step.after.doing == (None, Rest(1, 5), None)


def test_what_leavers_hold_goes_to_the_front_of_todo_from_where_they_were() -> None:
    ledger = Ledger(opened=4, returned=(Rest(3, 7),), doing=(Rest(0, 5), Rest(1, 6), None, Rest(2, 4)))
    reduced = Ledger(opened=4, returned=(Rest(2, 4), Rest(3, 7)), doing=(Rest(0, 5), Rest(1, 6)))
    assert ledger.seated(2) == reduced
    assert ledger.seated(1).returned == (Rest(1, 6), Rest(2, 4), Rest(3, 7))
    lengths = [6, 30, 5, 9, 8]
    step = plan(ledger, lengths, [4, 4])
    assert step.spans[0] == (Span(0, 5, 6), Span(2, 4, 5), Span(3, 7, 9))
    assert step.after == Ledger(opened=4, doing=(Rest(3, 9), Rest(1, 10)))


def test_new_seats_take_what_is_first_of_todo() -> None:
    ledger = Ledger(opened=1, doing=(Rest(0, 5),))
    assert ledger.seated(3) == Ledger(opened=1, doing=(Rest(0, 5), None, None))
    assert plan(ledger, [9, 9, 9], [1, 1, 1]).after.doing == (Rest(0, 6), Rest(1, 1), Rest(2, 1))
    assert ledger.seated(1) is ledger


def test_empty_shards_are_passed_over() -> None:
    step = plan(Ledger(), [0, 0, 3, 0, 2], [2, 2])
    assert step.spans == ((Span(2, 0, 2),), (Span(4, 0, 2),))


def test_shards_are_counted_as_todo_doing_and_done() -> None:
    lengths, order = [4, 6, 5, 9, 9], range(5)
    ledger = Ledger(opened=3, returned=(Rest(2, 1),), doing=(Rest(0, 4), Rest(1, 2), None))
    assert ledger.count(order, told(lengths)) == Counts(todo=3, doing=1, done=1)
    assert ledger.count(order, unseen(lengths)) == Counts(todo=3, doing=2, done=0)
    assert Ledger().count(order, told(lengths)) == Counts(5, 0, 0)


def test_the_samples_left_are_counted_as_far_as_is_asked() -> None:
    order, ledger = [1, 0, 2], Ledger(opened=1, doing=(Rest(1, 2),))
    assert count_left(ledger, order, told([3, 5, 4]), 100) == 10
    assert count_left(ledger, order, told([3, 5, 4]), 7) == 7
    partly = Sightings([UNSEEN, Sighting(5, whole=True), Sighting(4, whole=False)])
    assert count_left(ledger, order, partly, 7) == 7
    assert count_left(ledger, order, partly, 8) is None


def test_a_plan_that_needs_to_know_more_is_none() -> None:
    seen = Sightings([Sighting(3, whole=False), UNSEEN])
    assert plan_step(Ledger(), range(2), seen, [3]) is not None
    assert plan_step(Ledger(), range(2), seen, [4]) is None
    assert plan_step(Ledger(), range(2), seen, [1, 1]) is None


def test_seats_look_ahead_in_what_they_hold_and_idle_ones_in_what_is_todo() -> None:
    seen = Sightings([UNSEEN, Sighting(8, whole=True), *[UNSEEN] * 5])
    ledger = Ledger(opened=3, returned=(Rest(6, 3),), doing=(Rest(0, 2), Rest(1, 4), None))
    assert plan_scouting(ledger, [0, 1, 6, 2, 3, 4, 5], seen, 10) == (
        (Goal(0, 12, 2),),
        (Goal(6, 13, 3), Goal(3, 10), Goal(5, 10)),
        (Goal(2, 10), Goal(4, 10)),
    )


def test_a_seat_looks_into_so_many_shards_at_a_time() -> None:
    goals = plan_scouting(Ledger(doing=(None, None)), range(1000), Sightings([UNSEEN] * 1000), 5)
    assert [len(own) for own in goals] == [MOST_GOALS, MOST_GOALS]


# --- what is known of lengths ---------------------------------------------------------------------------


def test_what_is_found_is_kept_by_a_commit_and_forgotten_without_one() -> None:
    seen = Sightings([UNSEEN, Sighting(4, whole=True)])
    seen.note(0, Sighting(3, whole=False))
    seen.note(0, Sighting(2, whole=False))  # somebody else's, who has seen less
    assert (seen.of(0), seen.total, seen.kept[0]) == (Sighting(3, whole=False), None, UNSEEN)
    seen.keep()
    seen.note(0, Sighting(6, whole=True))
    assert (seen.total, seen.are_whole) == (10, True)
    seen.forget()
    assert (seen.total, seen.are_whole, seen.of(0)) == (None, False, Sighting(3, whole=False))
    seen.note(0, Sighting(6, whole=True))
    seen.keep()
    seen.forget()
    assert (seen.total, seen.kept) == (10, [Sighting(6, whole=True), Sighting(4, whole=True)])


def test_samples_are_estimated_from_the_shards_that_are_known() -> None:
    seen = Sightings([Sighting(10, whole=True), Sighting(20, whole=True), UNSEEN, Sighting(40, whole=False)])
    assert seen.estimate_total() == 10 + 20 + 15 + 40
    assert Sightings([UNSEEN, UNSEEN]).estimate_total() == 0
    assert Sightings([UNSEEN, Sighting(7, whole=False)]).estimate_total() == 14


@pytest.mark.parametrize(
    ("known", "found"),
    [
        (Sighting(4, whole=True), Sighting(5, whole=True)),
        (Sighting(4, whole=True), Sighting(5, whole=False)),
        (Sighting(5, whole=False), Sighting(4, whole=True)),
    ],
)
def test_shards_that_two_workers_find_to_differ_are_told(known: Sighting, found: Sighting) -> None:
    seen = Sightings([known])
    assert not seen.note(0, found)
    assert seen.note(0, known)
    assert seen.of(0) == known


# --- properties -----------------------------------------------------------------------------------------


@dataclass
class World:
    """A job that trains one epoch of shards and looks ahead only as far as it must, or knows all lengths."""

    lengths: list[int]
    order: list[int]
    sightings: Sightings
    ledger: Ledger = field(default_factory=Ledger)
    trained: list[tuple[int, int]] = field(default_factory=list)
    rounds: int = 0

    def parts(self, batch: int, seats: int) -> list[int] | None:
        """Return the parts of the next step; None at the epoch's end."""
        while (left := count_left(self.ledger, self.order, self.sightings, 2 * batch)) is None:
            self.scout(batch, seats)
        return split(min(batch, left), seats) if left else None

    def scout(self, batch: int, seats: int) -> None:
        goals = plan_scouting(self.ledger.seated(seats), self.order, self.sightings, 2 * batch)
        before = [self.sightings.of(shard) for shard in range(len(self.lengths))]
        for own in goals:
            found = 0
            for shard, samples, offset in own:
                if found < 2 * batch:  # who has found enough looks no further
                    length = self.lengths[shard]
                    self.sightings.note(shard, Sighting(min(length, samples), whole=samples > length))
                    found += max(0, min(length, samples) - offset)
        assert before != [self.sightings.of(shard) for shard in range(len(self.lengths))]
        self.rounds += 1

    def step(self, batch: int, seats: int, *, commits: bool = True) -> StepPlan | None:
        parts = self.parts(batch, seats)
        if parts is None:
            return None
        while (planned := plan_step(self.ledger, self.order, self.sightings, parts)) is None:
            self.scout(batch, seats)
        assert [sum(span.stop - span.start for span in own) for own in planned.spans] == parts
        if commits:
            self.sightings.keep()
            self.trained += samples_of(planned.spans)
            self.ledger = planned.after
        else:
            self.sightings.forget()
        return planned


@st.composite
def shards(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    lengths = draw(st.lists(st.integers(0, 30) | st.just(0) | st.integers(1, 3), min_size=1, max_size=12))
    return lengths, list(draw(st.permutations(range(len(lengths)))))


turns = st.lists(
    st.tuples(st.integers(1, 6), st.integers(6, 14), st.booleans(), st.integers(1, 3)), min_size=1, max_size=8
)
"""(seats, samples of a step, whether a step is lost first, steps)"""


@settings(max_examples=300, deadline=None)
@given(shards(), turns)
def test_every_sample_is_read_once_and_lengths_found_on_the_way_change_no_plan(
    case: tuple[list[int], list[int]], changes: list[tuple[int, int, bool, int]]
) -> None:
    lengths, order = case
    knowing = World(lengths, order, told(lengths))
    finding = World(lengths, order, unseen(lengths))
    going = True
    while going:
        for seats, batch, lost, steps in changes:
            if lost:  # by so many that a step was begun and never committed
                finding.step(batch, 7 - seats, commits=False)
            for _ in range(steps):
                planned = knowing.step(batch, seats)
                assert finding.step(batch, seats) == planned
                going = going and planned is not None
    everything = [(shard, offset) for shard, length in enumerate(lengths) for offset in range(length)]
    assert sorted(finding.trained) == sorted(knowing.trained) == everything
    assert knowing.rounds == 0
    assert knowing.ledger.count(order, knowing.sightings) == Counts(
        *_without_readers(knowing.ledger, order, lengths)
    )


def _without_readers(ledger: Ledger, order: list[int], lengths: list[int]) -> tuple[int, int, int]:
    # At an epoch's end only empty shards can be left that nobody took.
    todo = list(ledger.todo(order))
    assert all(rest.offset == lengths[rest.shard] for rest in todo)
    return len(todo), 0, len(order) - len(todo)


@settings(max_examples=200, deadline=None)
@given(shards(), turns)
def test_samples_of_a_shard_are_read_from_front_to_back_by_one_seat_while_there_are_others_todo(
    case: tuple[list[int], list[int]], changes: list[tuple[int, int, bool, int]]
) -> None:
    lengths, order = case
    world = World(lengths, order, told(lengths))
    places = [0] * len(lengths)
    for seats, batch, _, steps in changes:
        for _ in range(steps):
            planned = world.step(batch, seats)
            if planned is None:
                break
            for shard, offset in sorted(samples_of(planned.spans)):
                assert offset == places[shard]
                places[shard] += 1
            readers = [{span.shard for span in own} for own in planned.spans]
            if any(planned.after.todo(order)):
                assert sum(map(len, readers)) == len(set().union(*readers))


class HandingOut(RuleBasedStateMachine):
    """Workers join, leave, are lost and train, in any order; then what is left of the epoch is trained."""

    batch = 6

    @initialize(case=shards(), seats=st.integers(1, 6))
    def begin(self, case: tuple[list[int], list[int]], seats: int) -> None:
        self.world = World(*case, unseen(case[0]))
        self.seats = seats
        self.over = False

    @rule()
    def train(self) -> None:
        self.over = self.world.step(self.batch, self.seats) is None

    @precondition(lambda self: self.seats < 6)
    @rule()
    def join(self) -> None:
        self.seats += 1

    @precondition(lambda self: self.seats > 1)
    @rule()
    def leave(self) -> None:
        self.seats -= 1

    @precondition(lambda self: self.seats > 1)
    @rule(fewer=st.integers(1, 5))
    def lose(self, fewer: int) -> None:
        self.world.step(self.batch, self.seats, commits=False)
        self.seats = max(1, self.seats - fewer)

    @rule()
    def restart_from_a_saved_state(self) -> None:
        world = self.world
        self.world = World(
            world.lengths, world.order, Sightings(world.sightings.kept), world.ledger, world.trained
        )

    @invariant()
    def no_sample_is_read_twice_or_passed_over(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        assert len(set(world.trained)) == len(world.trained)
        left = count_left(world.ledger, world.order, told(world.lengths), 10_000)
        assert left == sum(world.lengths) - len(world.trained)
        assert self.over <= (left == 0)

    @invariant()
    def a_shard_is_in_one_place(self) -> None:
        if not hasattr(self, "world"):
            return
        ledger = self.world.ledger
        held = [rest.shard for rest in (*ledger.doing, *ledger.returned) if rest is not None]
        assert len(set(held)) == len(held)
        assert set(held) <= set(self.world.order[: ledger.opened])

    def teardown(self) -> None:
        if hasattr(self, "world"):
            while self.world.step(self.batch, self.seats) is not None:
                pass
            assert len(self.world.trained) == sum(self.world.lengths)


HandingOut.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestHandingOut = HandingOut.TestCase
