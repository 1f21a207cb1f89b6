"""Worlds whose job runs under a batch policy: the result follows the numbers of workers, the samples do not.

The toy state has the job's way through its data, as the real state has: where it stands, the ledger of the
shards that were handed out, and, for the checks, what it has learnt from in this epoch. The real rules cut
steps and hand out shards. So whoever is lost, and whatever is restored, the state itself says whether each
sample was trained once.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from random import Random
from typing import NamedTuple

from elastane.core.batching import BatchPolicy, CappedLocal, FixedGlobal, cut_epochs
from elastane.core.data_order import DataOrder, Place
from elastane.core.handout import Ledger, StepPlan, plan_step
from elastane.core.sightings import Sighting, Sightings
from elastane.model.ids import WorkerId
from elastane.model.records import Recovery
from elastane.model.topology import VrankRange

from .checker import Checker
from .toy import Part, State, StepRecord, Toy, compute_digest
from .world import Rules, World

Sample = tuple[int, int]
"""(shard, number in it)"""


class Course(NamedTuple):
    """Be a job's way through its data."""

    epoch: int = 0
    step: int = 0
    ledger: Ledger = Ledger()
    learnt: tuple[Sample, ...] = ()
    """What the committed steps of the epoch have trained."""


class PolicyToy(Toy):
    """Train steps of a policy's samples, which lie in shards.

    Args:
        policy: of the job.
        lengths: samples of each shard.
    """

    def __init__(self, policy: BatchPolicy, lengths: Sequence[int]) -> None:
        self.policy = policy
        self.batch = policy.describe()
        self.samples = sum(lengths)
        self.everything = {(shard, n) for shard, length in enumerate(lengths) for n in range(length)}
        self._shards = len(lengths)
        self._sightings = Sightings([Sighting(length, whole=True) for length in lengths])
        self._plans: dict[tuple[int, bytes, int], StepPlan] = {}

    def begin(self, digest: bytes) -> State:
        """Return the state with which a script begins."""
        return State(0, digest, Course())

    def count_vranks(self, virtual_workers: int, workers: int) -> int:
        """Return the number of workers: each is one."""
        return workers

    def cut(self, state: State, workers: int) -> DataOrder:
        """Return how so many workers cut the data from here on."""
        course = state.course
        place = Place(course.epoch, course.step, len(course.learnt))
        return cut_epochs(self.policy, self.samples, workers, since=place)

    def plan(self, state: State, workers: int) -> StepPlan:
        """Return what so many workers read in the next step."""
        key = (state.step, state.digest, workers)
        if key not in self._plans:
            order, epoch, step = self.cut(state, workers), state.course.epoch, state.course.step
            parts = [len(order.positions(epoch, step, seat)) for seat in range(workers)]
            self._plans[key] = self.hand_out(state.course.ledger, epoch, parts)
        return self._plans[key]

    def hand_out(self, ledger: Ledger, epoch: int, parts: Sequence[int]) -> StepPlan:
        """Return who reads what, by the real rules."""
        plan = plan_step(ledger, _shuffle(epoch, self._shards), self._sightings, parts)
        assert plan is not None, "all lengths are known"
        return plan

    def train(self, state: State, vranks: VrankRange, workers: int) -> Part:
        """Return a member's part of the next step."""
        spans = self.plan(state, workers).spans[vranks.start]
        samples = tuple((span.shard, n) for span in spans for n in range(span.start, span.stop))
        return Part(state, vranks, samples)

    def add_up(self, state: State, parts: Sequence[Part]) -> State:
        """Return the state after a step in which these parts were added up in this order."""
        course, workers = state.course, len(parts)
        learnt = course.learnt + tuple(sample for part in parts for sample in part.samples)
        after = Course(course.epoch, course.step + 1, self.plan(state, workers).after, learnt)
        if after.step == self.cut(state, workers).steps_in(course.epoch):
            after = Course(epoch=course.epoch + 1)
        trained = repr([part.samples for part in parts]).encode()
        return State(state.step + 1, compute_digest(state, trained), after)

    def weigh(self, order: DataOrder, state: State, part: Part) -> Fraction:
        """Return the weight of a part in the step's gradient, as the trainer computes it."""
        together = order.step_samples(state.course.epoch, state.course.step)
        nominal = order.batch_size
        return Fraction(len(part.samples), nominal) / Fraction(together, nominal)


@cache
def _shuffle(epoch: int, shards: int) -> list[int]:
    numbers = list(range(shards))
    Random(epoch).shuffle(numbers)
    return numbers


class PolicyChecker(Checker):
    """Check what holds under a batch policy in place of one known history."""

    world: "PolicyWorld"

    def __init__(self, world: "PolicyWorld") -> None:
        super().__init__(world)
        self._sound: set[object] = set()

    def parts_fit(self, worker: WorkerId, state: State, parts: dict[WorkerId, Part]) -> None:
        """Check the samples and weights of what is about to be added up."""
        super().parts_fit(worker, state, parts)
        key = (state.step, state.digest, tuple(part.samples for _, part in sorted(parts.items())))
        if key not in self._sound:  # else somebody has added up the same
            self._check_samples_of(state, list(parts.values()))
            self._sound.add(key)

    def _check_samples_of(self, state: State, parts: list[Part]) -> None:
        toy, course, step = self.world.toy, state.course, state.step
        trained = [sample for part in parts for sample in part.samples]
        self._check(len(set(trained)) == len(trained), "I6", f"step {step} trains a sample twice: {trained}")
        again = set(trained) & set(course.learnt)
        self._check(not again, "I6", f"step {step} trains {again} again in epoch {course.epoch}")
        whole = min(toy.policy.global_batch(len(parts)), toy.samples - len(course.learnt))
        self._check(len(trained) == whole, "I6", f"step {step} has {len(trained)} samples, not {whole}")
        order = toy.cut(state, len(parts))
        if course.step + 1 == order.steps_in(course.epoch):
            missing = toy.everything - set(course.learnt) - set(trained)
            self._check(not missing, "I6", f"epoch {course.epoch} leaves out {missing}")
        weights = [toy.weigh(order, state, part) for part in parts]
        fair = [Fraction(len(part.samples), whole) for part in parts]
        self._check(weights == fair and sum(weights) == 1, "weights", f"step {step} weighs {weights}")

    def _check_result(self, worker: WorkerId, record: StepRecord) -> None:
        """Check that a step has one result: another one only if all that knew the first are lost."""
        known = self.reference.get(record.step + 1)
        same = [w for generation, w in self.commits.get(record.step, ()) if generation == record.generation]
        if known is None or (known != record.digest and not same):
            self.reference = {step: d for step, d in self.reference.items() if step <= record.step}
            self.reference[record.step + 1] = record.digest
            return
        right = known == record.digest
        self._check(right, "hash", f"{worker} has another state after step {record.step} than {same}")

    def _compute_history(self, state: State) -> dict[int, bytes]:
        before = {step: digest for step, digest in self.reference.items() if step < state.step}
        return {**before, state.step: state.digest}

    def _check_samples(self) -> None:
        """Leave it: every commit was checked, and the state knows what it has learnt from."""


class PolicyWorld(World):
    """Be a world whose job runs under a policy that its seed has drawn, on shards of unequal length."""

    toy: PolicyToy
    make_toy: Callable[[BatchPolicy, Sequence[int]], PolicyToy] = PolicyToy

    def __init__(self, seed: int, rules: Rules | None = None, verbose: bool = False) -> None:
        super().__init__(seed, rules, verbose)
        drawn = Random(f"policy of {seed}")
        local, batch = drawn.randint(1, 3), drawn.choice((5, 6, 8, 12))
        policy = FixedGlobal(batch) if drawn.random() < 0.5 else CappedLocal(local=local, max_global=batch)
        lengths = [drawn.choice((0, 1, 2, 3, 5, 9, 20)) for _ in range(drawn.randint(2, 9))]
        self.toy = self.make_toy(policy, [*lengths, batch + drawn.randint(0, 9)])
        self.checker = PolicyChecker(self)
        self.virtual_workers = policy.largest_batch
        self.wanted = drawn.randint(1, min(self.devices, self.virtual_workers))
        self.recovery = drawn.choice((Recovery.EXACT, Recovery.EXACT, Recovery.CHECKPOINT))
