"""Shards under a batch policy: handed out on demand, each sample once, whoever comes, goes or is lost."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from changing_session import ChangingSession
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_files import Files, as_list, make
from torch import nn

import elastane
from elastane.core.batching import BatchPolicy, CappedLocal, FixedGlobal
from elastane.core.handout import Goal
from elastane.model.errors import ConfigError, LengthUnknownError, ModelMismatchError, ShardError
from elastane.model.topology import VrankRange
from elastane.worker.course import Course
from elastane.worker.handing import Handing
from elastane.worker.scouts import MOST_SCOUTS, Scouts
from elastane.worker.session import Training
from elastane.worker.shards import ShardedData
from elastane.worker.signature import compute_signature
from elastane.worker.state import JobState, copy_state

LENGTHS = [5, 0, 19, 3, 7, 1, 26, 2, 11]
TOTAL = sum(LENGTHS)
EVERYTHING = [(shard, offset) for shard, length in enumerate(LENGTHS) for offset in range(length)]
POLICIES: list[BatchPolicy] = [FixedGlobal(12), CappedLocal(local=3, max_global=14)]


class Trained:
    """A job on shards under a policy, trained to its end by one process that plays all workers."""

    def __init__(
        self,
        policy: BatchPolicy,
        session: ChangingSession,
        data: ShardedData,
        *,
        epochs: int = 2,
        **settings: Any,
    ) -> None:
        self.job = elastane.Job(batch=policy, seed=5)
        self.session = session
        self.job._trainer._session = session
        self.loader = self.job.loader(data, collate_fn=as_list, **settings)
        model = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        self.job.prepare(model, optimizer)
        self.seen: dict[tuple[int, int], list[list[Any]]] = {}
        for epoch in self.job.epochs(epochs):
            for batch in self.loader:
                first = not self.job._trainer._done  # a step that is repeated begins anew
                place = (epoch, self.job.step)
                self.seen[place] = [*([] if first else self.seen[place]), batch]
                model(torch.tensor([sample[:2] for sample in batch]) / 30).mean().backward()
                optimizer.step()
        self.digest = self.job.digest()

    def samples_of(self, epoch: int) -> list[Any]:
        return [
            sample
            for place, parts in self.seen.items()
            if place[0] == epoch
            for part in parts
            for sample in part
        ]


FAR = 1_000_000
"""More samples than any look finds."""


def begin(files: Files) -> Course:
    job = elastane.Job(batch=FixedGlobal(4))
    job.loader(make(files), collate_fn=as_list)
    return job._trainer.course


plans = st.dictionaries(st.integers(0, 12), st.integers(1, 8), max_size=6)
losses = st.dictionaries(st.integers(0, 12), st.integers(1, 6), max_size=4)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(POLICIES), plans, losses, st.booleans())
def test_every_sample_is_trained_once_per_epoch_over_changes_and_losses(
    policy: BatchPolicy, plan: Mapping[int, int], lost: Mapping[int, int], known: bool
) -> None:
    data = make(Files(LENGTHS), **({"lengths": LENGTHS} if known else {}))
    run = Trained(policy, ChangingSession(plan, lost), data)
    for epoch in range(2):
        assert sorted(run.samples_of(epoch)) == EVERYTHING
    assert [record.samples for record in run.session.records] == [
        sum(map(len, parts)) for parts in run.seen.values()
    ]


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(POLICIES), plans, losses)
def test_lengths_that_are_found_on_the_way_change_nothing(
    policy: BatchPolicy, plan: Mapping[int, int], lost: Mapping[int, int]
) -> None:
    told = Trained(policy, ChangingSession(plan, lost), make(Files(LENGTHS, noisy=True), lengths=LENGTHS))
    found = Trained(policy, ChangingSession(plan, lost), make(Files(LENGTHS, noisy=True)))
    assert found.seen == told.seen
    weights = [run.job._trainer.state.capture().tensors for run in (told, found)]
    assert all(torch.equal(one, weights[1][name]) for name, one in weights[0].items())


@pytest.mark.parametrize("known", [True, False])
def test_loading_ahead_changes_nothing(known: bool) -> None:
    plan, lost = {0: 2, 2: 5, 3: 1, 7: 4}, {4: 2}
    lengths = {"lengths": LENGTHS} if known else {}
    here, ahead = (
        Trained(FixedGlobal(12), ChangingSession(plan, lost), make(Files(LENGTHS), **lengths), num_workers=n)
        for n in (0, 2)
    )
    assert (ahead.digest, ahead.seen) == (here.digest, here.seen)


def test_workers_take_shards_as_they_come_to_the_end_of_theirs() -> None:
    run = Trained(
        FixedGlobal(4),
        ChangingSession({0: 2, 3: 1}),
        make(Files([7, 3, 4, 2]), lengths=[7, 3, 4, 2]),
        epochs=1,
        shuffle=False,
    )
    assert list(run.seen.values()) == [
        [[(0, 0), (0, 1)], [(1, 0), (1, 1)]],
        [[(0, 2), (0, 3)], [(1, 2), (2, 0)]],
        [[(0, 4), (0, 5)], [(2, 1), (2, 2)]],
        [[(0, 6), (2, 3), (3, 0), (3, 1)]],  # alone: its own, then what the leaver held, then what is todo
    ]
    assert [record.shards for record in run.session.records] == [(2, 2, 0), (1, 2, 1), (1, 2, 1), (0, 0, 4)]


@pytest.mark.parametrize("known", [True, False])
def test_an_incomplete_last_step_may_be_dropped(known: bool) -> None:
    data = make(Files(LENGTHS), lengths=LENGTHS if known else None)
    run = Trained(FixedGlobal(12), ChangingSession({0: 3, 4: 2}), data, tail="drop")
    assert [record.samples for record in run.session.records] == [12] * (2 * (TOTAL // 12))
    for epoch in range(2):
        samples = run.samples_of(epoch)
        assert len(set(samples)) == len(samples)


def test_one_long_shard_is_read_by_all_and_many_short_ones_by_whoever_comes() -> None:
    for lengths in ([50], [1] * 50, [0] * 30 + [50], [50] + [0] * 30):
        found, told = (
            Trained(
                FixedGlobal(8), ChangingSession({0: 5, 3: 8}, {4: 2}), make(Files(lengths), **known), epochs=1
            )
            for known in ({}, {"lengths": lengths})
        )
        everything = [(shard, offset) for shard, length in enumerate(lengths) for offset in range(length)]
        assert sorted(found.samples_of(0)) == everything
        assert found.seen == told.seen
        assert [record.samples for record in found.session.records] == [8] * 6 + [2]


def test_a_joiner_that_is_sent_the_state_goes_on_where_the_others_are() -> None:
    class Captures(ChangingSession):
        def pass_boundary(self) -> None:
            super().pass_boundary()
            assert self._training is not None
            if self._training.state.step == 3 and not self.restores:
                self.restores[3] = copy_state(self._training.state.capture())

    class Joins(ChangingSession):
        def begin(self, training: Training) -> None:
            self._training = training
            training.warm_up()
            training.state.restore(captured)
            self.seat(5)
            self.plan.clear()

    capturing = Captures({0: 2, 3: 5})
    source = Trained(FixedGlobal(12), capturing, make(Files(LENGTHS)))
    captured = capturing.restores[3]
    joined = Trained(FixedGlobal(12), Joins({}), make(Files(LENGTHS)))
    assert joined.digest == source.digest
    assert joined.seen == {place: parts for place, parts in source.seen.items() if place[1] >= 3}


def test_a_rehearsal_changes_nothing_of_what_is_trained_after_it_with_batches_loaded_ahead_or_not() -> None:
    class Rehearses(ChangingSession):
        def begin(self, training: Training) -> None:
            training.warm_up()
            super().begin(training)

    plain = Trained(FixedGlobal(12), ChangingSession({0: 3}), make(Files(LENGTHS)))
    for processes in (0, 2):
        run = Trained(FixedGlobal(12), Rehearses({0: 3}), make(Files(LENGTHS)), num_workers=processes)
        assert (run.digest, run.seen) == (plain.digest, plain.seen)


def test_the_same_shards_and_changes_give_the_same_bits_and_others_do_not() -> None:
    def train(plan: Mapping[int, int]) -> str:
        return Trained(FixedGlobal(12), ChangingSession(plan), make(Files(LENGTHS, noisy=True))).digest

    assert train({0: 3, 4: 2}) == train({0: 3, 4: 2})
    assert train({0: 3, 4: 2}) != train({0: 3, 5: 2})


def test_where_lengths_are_not_told_a_loader_has_none_until_it_is_asked_too_late() -> None:
    job = elastane.Job(batch=FixedGlobal(12))
    with pytest.raises(LengthUnknownError, match=r"give lengths=\.\.\., or let .* count epochs"):
        len(job.loader(make(Files(LENGTHS))))
    assert len(elastane.Job(batch=FixedGlobal(12)).loader(make(Files(LENGTHS), lengths=LENGTHS))) == 7


def test_nothing_is_opened_before_it_is_due_where_lengths_are_not_told() -> None:
    files = Files([40] * 10)
    job = elastane.Job(batch=FixedGlobal(4))
    job.loader(make(files))
    assert files.opened == []
    files = Files([40] * 10)
    run = Trained(FixedGlobal(4), ChangingSession({0: 2, 10: 1}), make(files), epochs=1)
    assert sorted(run.samples_of(0)) == [(shard, offset) for shard in range(10) for offset in range(40)]
    assert files.read <= 2 * 400 + 2 * 40  # once by who trains, once by who looks ahead, and one that moved


def test_a_first_step_in_many_shards_looks_no_further_ahead_than_two_steps_for_each_worker() -> None:
    files = Files([1000] * 200)
    course = begin(files)
    course.enter(4)
    looks = [course.look_ahead(course.find_goals(VrankRange(seat, seat + 1)) or ()) for seat in range(4)]
    assert [[samples for _, samples, _ in own] for own in looks] == [[8]] * 4
    course.learn([one for own in looks for one in own])
    assert course.find_goals(VrankRange(0, 4)) is None
    assert (len(files.opened), files.read) == (4, 4 * 8)


def test_a_joiner_that_rehearses_reads_what_its_own_part_needs_and_no_more() -> None:
    files = Files([1000] * 200)
    job = elastane.Job(batch=FixedGlobal(32))
    job._expected_workers = 8
    job.loader(make(files), collate_fn=as_list)
    course = job._trainer.course
    order = course.order
    assert [sample[1] for sample in course.fetch_rehearsal()] == [0, 1, 2, 3]
    assert (len(files.opened), files.read) == (2, 2 * 4 + 4)
    assert course.order == order


def test_a_rehearsal_leaves_nothing_that_the_first_generation_could_see() -> None:
    rehearsed, fresh = begin(Files(LENGTHS)), begin(Files(LENGTHS))
    rehearsed.fetch_rehearsal()
    for course in (rehearsed, fresh):
        course.enter(3)
    everybody = VrankRange(0, 3)
    assert rehearsed.find_goals(everybody) == fresh.find_goals(everybody) is not None
    assert rehearsed.order == fresh.order


def test_samples_that_remain_are_estimated_while_lengths_are_not_known() -> None:
    remaining: list[int] = []

    class Asks(ChangingSession):
        def pass_boundary(self) -> None:
            super().pass_boundary()
            assert self._training is not None
            remaining.append(self._training.remaining_samples)

    Trained(FixedGlobal(10), Asks({0: 2}), make(Files([20] * 5)), epochs=2)
    assert remaining[0] == 0  # nothing has been seen
    assert remaining[2] == 2 * 100 - 20
    assert remaining[-1] == 10


def test_what_was_found_for_a_step_that_was_lost_is_forgotten_since_others_may_not_know_it() -> None:
    both = VrankRange(0, 2)
    told, untold = begin(Files(LENGTHS)), begin(Files(LENGTHS))
    goals = told.find_goals(VrankRange(0, 1))
    assert goals is not None
    told.learn(told.look_ahead(goals))
    told.enter(2)
    untold.enter(2)
    assert told.find_goals(both) == untold.find_goals(both) is not None


# --- what is refused --------------------------------------------------------------------------------------


class Fails(Files):
    """A shard that raises in its middle."""

    def open(self, number: int) -> Any:
        for sample in super().open(number):
            if sample == (2, 6):
                raise OSError("the disk is gone")
            yield sample


class Vanishes(Files):
    """A shard that cannot be opened any more once others have been read."""

    def open(self, number: int) -> Any:
        if number == 2 and len(self.opened) > 3:
            raise FileNotFoundError("2")
        return super().open(number)


class Shrinks(Files):
    """Shards that have fewer, or more, samples the second time they are read."""

    def __init__(self, lengths: list[int], by: int) -> None:
        super().__init__(lengths)
        self.by = by

    def open(self, number: int) -> Any:
        if self.opened.count(number) == 1 and number == 2:
            self.lengths[number] += self.by
        return super().open(number)


@pytest.mark.parametrize(
    ("files", "lengths", "error", "message"),
    [
        (Fails(LENGTHS), None, OSError, "the disk is gone"),
        (Fails(LENGTHS), LENGTHS, OSError, "the disk is gone"),
        (Vanishes(LENGTHS), LENGTHS, ShardError, "shard 2 cannot be opened: FileNotFoundError: 2; every"),
        (Vanishes(LENGTHS), None, ShardError, "shard 2 cannot be opened: FileNotFoundError: 2; every"),
        (Shrinks(LENGTHS, -4), None, ShardError, "shard 2 has 15 samples, but 19 when training began"),
        (Shrinks(LENGTHS, 4), None, ShardError, "shard 2 has more samples, but 19 when training began"),
        (Files([9, 4, 9]), [9, 5, 9], ShardError, "shard 1 has 4 samples, but 5 when training began"),
        (Files([0, 0, 0]), None, ConfigError, "all 3 shards are empty; is it the right folder"),
        (Files([4, 0, 7]), None, ConfigError, "the data set has 11 samples, fewer than the 12"),
        (Files([4, 0, 7]), [4, 0, 7], ConfigError, "the data set has 11 samples, fewer than the 12"),
    ],
)
def test_shards_that_cannot_be_trained_end_the_job_with_which_and_why(
    files: Files, lengths: list[int] | None, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as told:
        Trained(FixedGlobal(12), ChangingSession({0: 2}), make(files, lengths=lengths))
    if error is OSError:
        assert "in shard 2, after 6 samples" in told.value.__notes__


def test_workers_that_read_different_data_are_told_which_shard_it_is() -> None:
    handing = Handing(make(Files(LENGTHS)), 0, shuffle=True)
    handing.learn([(2, 8, False)])
    with pytest.raises(
        ShardError, match=r"one worker found 8 samples in shard 2, another 5; all workers must"
    ):
        handing.learn([(2, 5, True)])


def test_a_worker_with_other_shards_is_refused_with_and_without_lengths() -> None:
    def handing(names: str, lengths: list[int] | None = None) -> Handing:
        return Handing(elastane.shards(names.split(), open=open, lengths=lengths), 0, shuffle=True)

    assert handing("a/x b").text == handing("other/x b").text
    assert handing("x b").text != handing("x c").text
    assert handing("x b", [1, 2]).text != handing("x b", [2, 1]).text
    state = JobState(device=torch.device("cpu"), models=[nn.Linear(1, 1)])
    state.register("elastane.shards", handing("x b"))
    assert ("registered/elastane.shards", handing("x b").text) in compute_signature(state, 2).entries
    with pytest.raises(ModelMismatchError, match=r"this worker sees 2 shards .*, the job trains on 1 shards"):
        handing("x b").load_state_dict(handing("x").state_dict())


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a", "b", "a"], r"was given 'a' 2 times; .* List it once; .* such as \('a', 2\)"),
        ("corpus/*.txt", r"was given 'corpus/\*\.txt' where it needs a list of shards"),
        (list, "was given no shards"),
    ],
)
def test_a_list_that_is_none_is_refused(names: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        elastane.shards(names, open=open)
    assert elastane.shards([("a", 1), ("a", 2), 3, 3], open=open).names == (("a", 1), ("a", 2), 3, 3)


# --- those who look ahead ---------------------------------------------------------------------------------


def test_a_scout_goes_on_where_it_stopped_and_reads_a_shard_once() -> None:
    files = Files([10, 3])
    scouts = Scouts(make(files))
    drawn = torch.get_rng_state()
    assert scouts.look([Goal(0, 4), Goal(1, 4)], FAR) == [(0, 4, False), (1, 3, True)]
    assert scouts.look([Goal(0, 10)], FAR) == [(0, 10, False)]
    assert scouts.look([Goal(0, 11), Goal(1, 99)], FAR) == [(0, 10, True), (1, 3, True)]
    assert scouts.look([Goal(0, 4), Goal(1, 3)], FAR) == [(0, 4, False), (1, 3, False)]  # as the first time
    assert (files.opened, files.read, files.closed) == ([0, 1], 13, 2)
    assert torch.equal(torch.get_rng_state(), drawn)


def test_a_look_ends_once_enough_was_found_whatever_was_found_before() -> None:
    files = Files([10, 3, 0, 9, 50, 50])
    goals = [Goal(1, 8), Goal(2, 8), Goal(0, 4 + 8, 4), Goal(3, 8), Goal(4, 8)]
    found = [(1, 3, True), (2, 0, True), (0, 10, True)]  # 3, nothing, and 6 behind the fourth
    scouts = Scouts(make(files))
    assert scouts.look(goals, 8) == found
    scouts.look([Goal(3, 8), Goal(4, 8), Goal(5, 20)], FAR)
    assert scouts.look(goals, 8) == found


def test_the_scout_that_rested_longest_is_closed_first() -> None:
    files = Files([10] * (MOST_SCOUTS + 1))
    scouts = Scouts(make(files))
    scouts.look([Goal(number, 2) for number in range(MOST_SCOUTS)], FAR)
    scouts.look([Goal(0, 4)], FAR)
    scouts.look([Goal(MOST_SCOUTS, 2)], FAR)
    scouts.look([Goal(0, 6)], FAR)
    assert files.opened == [*range(MOST_SCOUTS), MOST_SCOUTS]


def test_a_scout_asks_shards_that_know_their_length() -> None:
    files = Files([10, 3], indexed=True)
    assert Scouts(make(files)).look([Goal(0, 4), Goal(1, 4)], FAR) == [(0, 10, True), (1, 3, True)]


def test_few_scouts_stay_open() -> None:
    files = Files([10] * 20)
    scouts = Scouts(make(files))
    scouts.look([Goal(number, 2) for number in range(20)], FAR)
    assert files.closed == 20 - MOST_SCOUTS
    scouts.close()
    assert files.closed == 20
