"""Who reads which shard next, where the number of workers changes: EDL's hand-out as a pure function.

The shards of an epoch are todo, doing or done. Every virtual worker (under a batch policy: every worker;
here a seat) holds one shard and reads it from front to back; at its end it takes the first of todo. Who has
none, since todo is empty, reads on in what another holds. What seats hold that are gone goes back to the
front of todo, from the sample on that no committed step has trained. How many samples a seat trains in a
step is not decided here (see `batching`), nor is anything read.

Theory of operation. EDL's leader hands out shards in answer to workers' requests, and workers report their
offsets (Wu et al., TPDS 2021). Steps are synchronous here, so whose request comes when follows from what
was committed: all workers compute the same `StepPlan` from the same `Ledger`, which is a part of the
replicated state and changes with a commit only. Nobody asks, nobody answers, and no loss can part an offset
from the model that has learnt from the samples before it.

Rule of the file. How long a shard is may not be known yet (`Sightings`). A plan asks for no more than it
needs, and says so if that was not yet seen. So it is the same whether lengths were told or found on the way.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from elastane.core.sightings import Sightings

MOST_GOALS = 64
"""Shards that one seat is given to look through at a time: where shards are tiny, few rounds must do for
many. Who has found enough in the first ones leaves out the others (see `worker.scouts`)."""


class Rest(NamedTuple):
    """Name what is left of a shard: all samples from `offset` on."""

    shard: int
    offset: int


class Span(NamedTuple):
    """Name the samples start, start + 1, ..., stop - 1 of a shard."""

    shard: int
    start: int
    stop: int


class Goal(NamedTuple):
    """Ask to look how long a shard is, but not beyond so many samples; those up to `offset` are trained."""

    shard: int
    samples: int
    offset: int = 0


class Counts(NamedTuple):
    """Count an epoch's shards."""

    todo: int
    doing: int
    done: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Say how far the shards of an epoch are handed out, after some committed step.

    Attributes:
        opened: how many of the epoch's shards, in its order, have been handed out.
        returned: rests that were handed back: they come before all others that are todo.
        doing: what each seat holds; None if it has come to an end and todo was empty.
    """

    opened: int = 0
    returned: tuple[Rest, ...] = ()
    doing: tuple[Rest | None, ...] = ()

    def seated(self, seats: int) -> "Ledger":
        """Return the ledger for so many seats: what the others hold goes back to the front of todo."""
        if seats == len(self.doing):
            return self
        handed_back = tuple(rest for rest in self.doing[seats:] if rest is not None)
        missing = (None,) * (seats - len(self.doing))
        return Ledger(
            opened=self.opened,
            returned=handed_back + self.returned,
            doing=self.doing[:seats] + missing,
        )

    def todo(self, order: Sequence[int]) -> Iterator[Rest]:
        """Iterate over what nobody holds, in the order in which it is handed out."""
        yield from self.returned
        yield from (Rest(order[place], 0) for place in range(self.opened, len(order)))

    def count(self, order: Sequence[int], sightings: Sightings) -> Counts:
        """Count the shards; one that is held but known to be at its end is done."""
        held = [rest for rest in self.doing if rest is not None]
        doing = sum(1 for rest in held if sightings.count(rest.shard, rest.offset, 1) != 0)
        todo = len(self.returned) + len(order) - self.opened
        return Counts(todo, doing, len(order) - todo - doing)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """Say what every seat reads in one step.

    Attributes:
        spans: of each seat, in the order in which it reads them.
        after: the ledger once the step is committed.
    """

    spans: tuple[tuple[Span, ...], ...]
    after: Ledger


def plan_step(
    ledger: Ledger, order: Sequence[int], sightings: Sightings, parts: Sequence[int]
) -> StepPlan | None:
    """Return who reads what in a step; None if more must be seen first.

    Args:
        ledger: after the last committed step, whatever seats there were.
        order: the numbers of all shards, in the epoch's order.
        sightings: what is known of their lengths.
        parts: samples of each seat in the step; together no more than are left (see `count_left`).
    """
    draft = _Draft(ledger.seated(len(parts)), order, sightings, parts)
    seats = range(len(parts))
    if not all(draft.draw(seat, seat) for seat in seats):
        return None
    if not all(draft.take(seat) for seat in seats):
        return None
    helpers = [seat for seat in seats if draft.needs[seat]]
    if not all(draft.help_out(seat, turn) for turn, seat in enumerate(helpers)):
        return None
    return draft.finish()


def count_left(ledger: Ledger, order: Sequence[int], sightings: Sightings, most: int) -> int | None:
    """Return how many samples of the epoch are not trained, or `most`; None if more must be seen first."""
    left = 0
    known = True
    for rest in _everything(ledger, order):
        found = sightings.count(rest.shard, rest.offset, most - left)
        if found is None:
            known = False
            found = max(0, sightings.of(rest.shard).samples - rest.offset)
        left += found
        if left >= most:
            return most
    return left if known else None


def plan_scouting(
    ledger: Ledger, order: Sequence[int], sightings: Sightings, wanted: int
) -> tuple[tuple[Goal, ...], ...]:
    """Return which shards each seat is to look through, so that later steps can be planned.

    A seat looks ahead in what it holds; one that holds nothing, or what is known to its end, or far enough,
    takes shards that are todo.

    Args:
        ledger: for the seats that there are: see `Ledger.seated`.
        order: the numbers of all shards, in the epoch's order.
        sightings: what is known of their lengths.
        wanted: samples from the present one on that should be known of each shard: as many as two steps have,
            so that whenever something must be seen, somebody is told to look at it.
    """
    goals = [_goals([rest] if rest is not None else [], sightings, wanted) for rest in ledger.doing]
    idle = [seat for seat, own in enumerate(goals) if not own]
    ahead = _goals(ledger.todo(order), sightings, wanted, most=MOST_GOALS * len(idle))
    for turn, seat in enumerate(idle):
        goals[seat] = ahead[turn :: len(idle)]
    return tuple(tuple(own) for own in goals)


def _goals(rests: Iterable[Rest], sightings: Sightings, wanted: int, most: int = 1) -> list[Goal]:
    short = (
        Goal(rest.shard, rest.offset + wanted, rest.offset)
        for rest in rests
        if sightings.count(rest.shard, rest.offset, wanted) is None
    )
    return list(islice(short, most))


def _everything(ledger: Ledger, order: Sequence[int]) -> Iterator[Rest]:
    yield from (rest for rest in ledger.doing if rest is not None)
    yield from ledger.todo(order)


class _Draft:
    """Fill the parts of a step one after another. Methods return False if more must be seen first."""

    def __init__(
        self, ledger: Ledger, order: Sequence[int], sightings: Sightings, parts: Sequence[int]
    ) -> None:
        self.needs = list(parts)
        self._order = order
        self._sightings = sightings
        self._opened = ledger.opened
        self._returned = deque(ledger.returned)
        self._doing = list(ledger.doing)
        self._spans: list[list[Span]] = [[] for _ in parts]

    def draw(self, seat: int, holder: int) -> bool:
        """Let a seat read on in what `holder` holds, until its part is full or the shard ends."""
        rest, need = self._doing[holder], self.needs[seat]
        if rest is None or not need:
            return True
        found = self._sightings.count(rest.shard, rest.offset, need)
        if found is None:
            return False
        stop = rest.offset + found
        if found:
            self._spans[seat].append(Span(rest.shard, rest.offset, stop))
            self.needs[seat] -= found
        self._doing[holder] = Rest(rest.shard, stop) if found == need else None
        return True

    def take(self, seat: int) -> bool:
        """Let a seat that has come to the end of its shard take shards from todo until its part is full."""
        while self.needs[seat]:
            if self._returned:
                self._doing[seat] = self._returned.popleft()
            elif self._opened < len(self._order):
                self._doing[seat] = Rest(self._order[self._opened], 0)
                self._opened += 1
            else:
                return True
            if not self.draw(seat, seat):
                return False
        return True

    def help_out(self, seat: int, turn: int) -> bool:
        """Let a seat for which todo had nothing read in what others hold: each helper begins at another."""
        holders = [holder for holder, rest in enumerate(self._doing) if rest is not None]
        first = turn % len(holders) if holders else 0
        return all(self.draw(seat, holder) for holder in holders[first:] + holders[:first])

    def finish(self) -> StepPlan:
        """Return the plan."""
        assert not any(self.needs), "a step's parts are no more than the samples that are left"
        after = Ledger(opened=self._opened, returned=tuple(self._returned), doing=tuple(self._doing))
        return StepPlan(spans=tuple(tuple(spans) for spans in self._spans), after=after)
