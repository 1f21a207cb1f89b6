"""A data set in shards whose readers change: the live side of `core.handout`, part of the replicated state.

What counts is the ledger after the last committed step, and what was known of lengths by then. From there
everything ahead is computed when it is asked for: what each virtual worker reads in which step, and whether
somebody must look ahead first. Nothing here reads a shard or knows other workers.
"""

from collections.abc import Sequence
from typing import Any

from elastane.core.data_order import DataOrder
from elastane.core.handout import Counts, Goal, Ledger, Rest, StepPlan, count_left, plan_scouting, plan_step
from elastane.core.sightings import UNSEEN, Sighting, Sightings
from elastane.model.errors import ConfigError, ShardError
from elastane.worker.feed_plan import BatchKey
from elastane.worker.permutation import EpochShards
from elastane.worker.shards import UNKNOWN, Pick, ShardCatalogue, ShardedData

UNKNOWN_SAMPLES = 1 << 62
"""Length of a data set that nobody knows yet: longer than any, so that all steps ahead are full ones."""
STEPS_SEEN = 2
"""Full steps that must be seen before one begins: itself, so that it can be planned, and the next, so that
nobody has to ask whether the epoch is over."""


class Handing:
    """Tell who reads what, step by step, of one data set.

    Args:
        data: the shards.
        seed: the job's.
        shuffle: whether each epoch has the shards in an order of its own.
    """

    def __init__(self, data: ShardedData, seed: int, *, shuffle: bool) -> None:
        self.names = data.names
        self._catalogue = ShardCatalogue(data.describe(counting=False))
        self._shards = EpochShards(len(data.names), seed, shuffle=shuffle)
        self._finds = data.known_lengths is None
        lengths = data.known_lengths
        kept = [UNSEEN] * len(data.names) if lengths is None else [Sighting(n, whole=True) for n in lengths]
        self._sightings = Sightings(kept)
        self._ledger = Ledger()
        self._at = (0, 0)
        self._plans: dict[tuple[int, int], StepPlan] = {}
        self._order: DataOrder | None = None

    # --- the replicated state -----------------------------------------------------------------------

    @property
    def text(self) -> str:
        """Return the shards in words, equal exactly where they are."""
        return self._catalogue.text

    def state_dict(self) -> dict[str, Any]:
        """Return what every worker must know to go on after the last committed step."""
        ledger = self._ledger
        state = {
            "catalogue": self._catalogue.state_dict(),
            "opened": ledger.opened,
            "returned": [list(rest) for rest in ledger.returned],
            "doing": [None if rest is None else list(rest) for rest in ledger.doing],
        }
        if self._finds:
            kept = self._sightings.kept
            state["samples"] = [seen.samples for seen in kept]
            state["whole"] = [shard for shard, seen in enumerate(kept) if seen.whole]
        return state

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Take over what was handed out so far.

        Raises:
            ModelMismatchError: these are not the job's shards.
        """
        self._catalogue.load_state_dict(state["catalogue"])
        self._ledger = Ledger(
            opened=state["opened"],
            returned=tuple(Rest(*rest) for rest in state["returned"]),
            doing=tuple(None if rest is None else Rest(*rest) for rest in state["doing"]),
        )
        if self._finds:
            whole = set(state["whole"])
            kept = [Sighting(n, shard in whole) for shard, n in enumerate(state["samples"])]
            self._sightings = Sightings(kept)
        self._plans.clear()

    # --- following the job --------------------------------------------------------------------------

    @property
    def samples(self) -> int:
        """Return how many samples an epoch has; UNKNOWN_SAMPLES as long as that is not known."""
        total = self._sightings.total
        return UNKNOWN_SAMPLES if total is None else total

    def estimate_samples(self) -> int:
        """Return about how many samples an epoch has."""
        return self._sightings.estimate_total()

    def forget(self) -> None:
        """Forget what was found since the last committed step: others may not know it."""
        self._sightings.forget()

    def enter(self, order: DataOrder, epoch: int, step: int) -> None:
        """Go on from the last committed step, by the steps of `order`."""
        self._at = (epoch, step)
        self._plans.clear()
        self._order = order

    def advance(self) -> None:
        """Take note that the step that was due is committed."""
        epoch, step = self._at
        self._ledger = self._plans.pop(self._at).after
        self._at = (epoch, step + 1)
        self._sightings.keep()

    def begin_epoch(self) -> None:
        """Hand out all shards anew."""
        self._ledger = Ledger()
        self._at = (self._at[0] + 1, 0)
        self._plans = {key: plan for key, plan in self._plans.items() if key >= self._at}

    def count_after(self) -> Counts:
        """Count the epoch's shards as they are once the step that is due is committed."""
        return self._plans[self._at].after.count(self._shards.order(self._at[0]), self._sightings)

    # --- looking ahead ------------------------------------------------------------------------------

    @property
    def wanted(self) -> int:
        """Return how many samples ahead are asked for."""
        return STEPS_SEEN * self._known_order().global_batch

    def find_goals(self) -> tuple[tuple[Goal, ...], ...] | None:
        """Return where each virtual worker must look before the step that is due can begin; None: nowhere."""
        if self._plan(*self._at) is not None:
            return None
        ledger = self._ledger.seated(self._known_order().virtual_workers)
        goals = plan_scouting(ledger, self._shards.order(self._at[0]), self._sightings, self.wanted)
        assert any(goals), "whenever a step cannot be planned, somebody can look further ahead"
        return goals

    def learn(self, found: Sequence[tuple[int, int, bool]]) -> None:
        """Take note of (shard, samples, whether that is all of it), as all workers do.

        Raises:
            ShardError: it contradicts what is known.
            ConfigError: all shards are empty.
        """
        for shard, samples, whole in found:
            known = self._sightings.of(shard)
            if not self._sightings.note(shard, Sighting(samples, whole)):
                raise ShardError(
                    f"one worker found {known.samples} samples in shard {self.names[shard]!s}, another "
                    f"{samples}; all workers must read the same data, which must not change while a job "
                    "trains on it"
                )
        if self._sightings.total == 0:
            raise ConfigError(
                f"all {len(self.names)} shards are empty; is it the right folder, and does `open` give the "
                "samples of a shard?"
            )

    def resize(self, order: DataOrder) -> None:
        """Take the order of a data set whose length has become known; nothing that was planned changes."""
        self._order = order

    # --- for the feeder -----------------------------------------------------------------------------

    def picks(self, key: BatchKey) -> list[Pick] | None:
        """Return the samples of a batch; None if more must be seen first."""
        plan = self._plan(key.epoch, key.step)
        if plan is None:
            return None
        picks: list[Pick] = []
        for span in plan.spans[key.vrank]:
            seen = self._sightings.of(span.shard)
            length = seen.samples if seen.whole else UNKNOWN
            picks += [Pick(span.shard, offset, length) for offset in range(span.start, span.stop)]
        return picks

    def _plan(self, epoch: int, step: int) -> StepPlan | None:
        first = self._at[1] if epoch == self._at[0] else 0
        planned = step
        while planned > first and (epoch, planned - 1) not in self._plans:
            planned -= 1
        for number in range(planned, step + 1):
            if (epoch, number) in self._plans:
                continue
            plan = self._plan_next(epoch, number, first)
            if plan is None:
                return None
            self._plans[epoch, number] = plan
        return self._plans[epoch, step]

    def _plan_next(self, epoch: int, step: int, first: int) -> StepPlan | None:
        order, shards = self._known_order(), self._shards.order(epoch)
        if step > first:
            ledger = self._plans[epoch, step - 1].after
        else:
            ledger = self._ledger if epoch == self._at[0] else Ledger()
        if not self._sightings.are_whole:
            left = count_left(ledger, shards, self._sightings, self.wanted)
            if left is None or left < self.wanted:
                return None
        seats = range(order.virtual_workers)
        return plan_step(
            ledger, shards, self._sightings, [len(order.positions(epoch, step, seat)) for seat in seats]
        )

    def _known_order(self) -> DataOrder:
        assert self._order is not None, "a hand-out has an order from its first generation on"
        return self._order
