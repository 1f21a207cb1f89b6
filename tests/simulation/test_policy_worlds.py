"""Seeded worlds under batch policies: every sample once, fair weights, one version of each step."""

from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction

import pytest

from elastane.core.data_order import DataOrder
from elastane.core.handout import Ledger, Rest, StepPlan
from elastane.model.topology import Mode

from .policies import PolicyToy, PolicyWorld
from .run import describe_failure, run_policy_seed, run_seeds
from .test_simulation import HARD_TIMES, DeafMember, HastyLeader, ask_much, lose_everybody
from .toy import Part, State
from .world import Rules, World

WORLDS = 60
CHUNK = 20


@pytest.mark.parametrize("first", range(0, WORLDS, CHUNK))
def test_worlds_under_batch_policies_keep_all_invariants(first: int) -> None:
    assert run_seeds(range(first, first + CHUNK), run_policy_seed) == []


def test_worlds_under_batch_policies_have_changes_losses_and_whole_epochs() -> None:
    worlds = [PolicyWorld(seed) for seed in range(20)]
    outcomes = [world.run() for world in worlds]
    assert sum(outcome.generations for outcome in outcomes) > 60
    modes = Counter(t.mode for world in worlds for t in world.checker.topologies.values())
    assert min(modes[mode] for mode in (Mode.RECOVERY, Mode.RESTORE)) > 5, modes
    assert max(w.state.course.epoch for world in worlds for w in world.workers.values() if w.state.course) > 5
    sizes = {len(t.members) for world in worlds for t in world.checker.topologies.values()}
    assert sizes >= {1, 2, 3, 4, 5}


def test_a_seed_gives_the_same_world_again_and_one_that_fails_says_how() -> None:
    outcome = run_policy_seed(3)
    assert run_policy_seed(3) == outcome
    line = "   [python -m tests.simulation.run --policies --seed 3 --verbose]"
    assert describe_failure(outcome, "--policies ") == line


# --- rules broken on purpose -------------------------------------------------------------------------------


class ReadsRestsFromTheFront(PolicyToy):
    """Hand a shard that a leaver held out again as if nobody had read of it."""

    def hand_out(self, ledger: Ledger, epoch: int, parts: Sequence[int]) -> StepPlan:
        kept = ledger.seated(len(parts))
        returned = tuple(
            Rest(rest.shard, 0) if rest not in ledger.returned else rest for rest in kept.returned
        )
        doing = kept.doing if kept is ledger else tuple(rest and Rest(*rest) for rest in kept.doing)
        return super().hand_out(Ledger(opened=kept.opened, returned=returned, doing=doing), epoch, parts)


class CountsWhenAsked(PolicyToy):
    """Keep offsets at a leader, who counts a shard's samples as read when they are asked for."""

    leader = Ledger()
    epoch = 0

    def hand_out(self, ledger: Ledger, epoch: int, parts: Sequence[int]) -> StepPlan:
        if epoch != self.epoch:
            self.epoch, self.leader = epoch, Ledger()
        plan = super().hand_out(self.leader, epoch, parts)
        self.leader = plan.after
        return plan


class WeighsEqually(PolicyToy):
    """Average the workers' gradients as if all parts were equal."""

    def weigh(self, order: DataOrder, state: State, part: Part) -> Fraction:
        return Fraction(1, order.virtual_workers)


class CutsByItsOwnNumber(PolicyToy):
    """Let the last worker of several cut the step as if it were one more."""

    def train(self, state: State, vranks: object, workers: int) -> Part:
        alone = getattr(vranks, "stop", 0) == workers > 1
        fits = workers + alone <= self.policy.largest_batch
        return super().train(state, vranks, workers + alone * fits)  # type: ignore[arg-type]


def keep(world: World) -> None:
    """Leave the world as its seed made it."""


@pytest.mark.parametrize(
    ("rules", "toy", "circumstances", "invariants"),
    [
        (Rules, ReadsRestsFromTheFront, ask_much, {"I6"}),
        (Rules, CountsWhenAsked, ask_much, {"I6"}),
        (Rules, CutsByItsOwnNumber, keep, {"I6"}),
        (Rules, WeighsEqually, keep, {"weights"}),
        (HastyLeader, PolicyToy, keep, {"I2", "I4", "I7", "hash"}),
        (DeafMember, PolicyToy, ask_much, {"I2", "I4", "I7", "hash"}),
    ],
)
def test_what_is_broken_is_noticed(
    rules: Callable[[], Rules],
    toy: type[PolicyToy],
    circumstances: Callable[[World], None],
    invariants: set[str],
) -> None:
    broken = type("BrokenWorld", (PolicyWorld,), {"make_toy": toy})
    noticed = "nothing"
    for seed in range(200):
        world = broken(seed, rules())
        circumstances(world)
        try:
            noticed = world.run().violation
        except AssertionError as error:  # more is asked of the hand-out than is left
            noticed = f"I6: {error}"
        if noticed:
            break
    assert noticed.partition(":")[0] in invariants


@pytest.mark.parametrize("circumstances", [ask_much, lose_everybody, *HARD_TIMES[1:3]])
def test_the_right_rules_keep_the_invariants_in_hard_times(circumstances: Callable[[World], None]) -> None:
    failures = []
    for seed in range(4):
        world = PolicyWorld(seed)
        circumstances(world)
        failures.append(world.run().violation)
    assert failures == [""] * 4
