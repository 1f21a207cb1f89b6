"""Batch policies: sizes, learning rates, and every sample once over any change of workers."""

import math
from collections.abc import Callable
from functools import partial
from itertools import chain, cycle
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastane.core.batching import (
    BatchPolicy,
    CappedLocal,
    FixedGlobal,
    check_policy,
    check_policy_workers,
    cut_epochs,
)
from elastane.core.data_order import DataOrder, Place, Tail
from elastane.model.errors import ConfigError


class Step(NamedTuple):
    """What a step of a walk through the data was."""

    epoch: int
    parts: list[range]
    order: DataOrder


def walk(policy: BatchPolicy, samples: int, changes: list[tuple[int, int]], epochs: int) -> list[Step]:
    """Train `epochs` epochs in turns of (workers, steps), over and over again."""
    steps: list[Step] = []
    place = Place(0, 0, 0)
    for workers, length in cycle(changes):
        order = cut_epochs(policy, samples, workers, since=place)
        for _ in range(length):
            if place.epoch == epochs:
                return steps
            parts = [order.positions(place.epoch, place.step, vrank) for vrank in range(workers)]
            steps.append(Step(place.epoch, parts, order))
            place = Place(place.epoch, place.step + 1, place.trained + sum(map(len, parts)))
            if place.step == order.steps_in(place.epoch):
                place = Place(place.epoch + 1, 0, 0)
    raise AssertionError


fixed = st.builds(FixedGlobal, st.integers(1, 40))
capped = st.tuples(st.integers(1, 9), st.integers(0, 30)).map(
    lambda pair: CappedLocal(local=pair[0], max_global=pair[0] + pair[1])
)
policies = fixed | capped


@st.composite
def walks(draw: st.DrawFn, kinds: st.SearchStrategy[BatchPolicy] = policies) -> tuple[BatchPolicy, int, list]:
    policy = draw(kinds)
    samples = draw(st.integers(policy.largest_batch, 5 * policy.largest_batch + 3))
    turn = st.tuples(st.integers(1, min(9, policy.largest_batch)), st.integers(1, 5))
    return policy, samples, draw(st.lists(turn, min_size=1, max_size=8))


@given(walks())
def test_every_sample_of_every_epoch_is_trained_once_over_any_change_of_workers(
    case: tuple[BatchPolicy, int, list[tuple[int, int]]],
) -> None:
    policy, samples, changes = case
    steps = walk(policy, samples, changes, epochs=3)
    for epoch in range(3):
        dealt = [sorted(chain.from_iterable(step.parts)) for step in steps if step.epoch == epoch]
        assert list(chain.from_iterable(dealt)) == list(range(samples))  # and from front to back


@given(walks())
def test_a_step_has_the_policys_samples_in_parts_that_differ_by_one_at_most(
    case: tuple[BatchPolicy, int, list[tuple[int, int]]],
) -> None:
    policy, samples, changes = case
    steps = walk(policy, samples, changes, epochs=2)
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        lengths = [len(part) for part in step.parts]
        last = following is None or following.epoch != step.epoch
        assert max(lengths) - min(lengths) <= 1
        assert max(lengths) <= step.order.batch_size
        if not last:
            assert sum(lengths) == policy.global_batch(len(lengths)) == step.order.global_batch
            assert max(lengths) == step.order.batch_size
        assert lengths[0] >= 1  # the worker whose calls and buffers count always has a sample


@given(walks(fixed))
def test_with_a_fixed_global_batch_no_change_of_workers_changes_the_steps(
    case: tuple[BatchPolicy, int, list[tuple[int, int]]],
) -> None:
    policy, samples, changes = case
    shared = [sorted(chain.from_iterable(step.parts)) for step in walk(policy, samples, changes, epochs=2)]
    alone = [list(step.parts[0]) for step in walk(policy, samples, [(1, 1)], epochs=2)]
    assert shared == alone
    assert len(alone) == 2 * math.ceil(samples / policy.global_batch(1))


def test_where_it_divides_a_fixed_global_batch_is_dealt_like_that_of_so_many_virtual_workers() -> None:
    shared = cut_epochs(FixedGlobal(12), 50, 3)
    virtual = DataOrder(samples=50, virtual_workers=3, batch_size=4)
    assert shared == virtual
    for step in range(5):
        for vrank in range(3):
            assert shared.positions(0, step, vrank) == virtual.positions(0, step, vrank)


def test_a_small_epoch_is_cut_as_written_here_when_a_worker_joins_and_two_leave() -> None:
    order = cut_epochs(FixedGlobal(5), 14, 2)
    assert [list(order.positions(0, 0, vrank)) for vrank in range(2)] == [[0, 2, 4], [1, 3]]
    order = cut_epochs(FixedGlobal(5), 14, 3, since=Place(0, 1, 5))
    assert [list(order.positions(0, 1, vrank)) for vrank in range(3)] == [[5, 8], [6, 9], [7]]
    order = cut_epochs(FixedGlobal(5), 14, 1, since=Place(0, 2, 10))
    assert (list(order.positions(0, 2, 0)), order.steps_in(0)) == ([10, 11, 12, 13], 3)
    assert (list(order.positions(1, 0, 0)), order.steps_in(1)) == ([0, 1, 2, 3, 4], 3)


def test_the_incomplete_last_step_may_be_dropped() -> None:
    order = cut_epochs(CappedLocal(local=2, max_global=8), 15, 2, tail=Tail.DROP, since=Place(0, 1, 2))
    assert (order.global_batch, order.steps_in(0), order.steps_in(1)) == (4, 4, 3)
    assert order.step_samples(0, 3) == 4


@pytest.mark.parametrize(
    ("policy", "batches"),
    [
        (FixedGlobal(12), [12, 12, 12, 12, 12]),
        (CappedLocal(local=4, max_global=14), [4, 8, 12, 14, 14]),
        (CappedLocal(local=4, max_global=4), [4, 4, 4, 4, 4]),
    ],
)
def test_the_samples_of_a_step_follow_the_workers(policy: BatchPolicy, batches: list[int]) -> None:
    assert [policy.global_batch(workers) for workers in range(1, 6)] == batches
    assert policy.is_constant == (len(set(batches)) == 1)


def halved(batch: int, chosen_for: int) -> float:
    return batch / chosen_for / 2


@pytest.mark.parametrize(
    ("rule", "scales"),
    [
        ("none", [1.0, 1.0, 1.0]),
        ("linear", [0.5, 1.0, 2.0]),
        ("sqrt", [math.sqrt(0.5), 1.0, math.sqrt(2.0)]),
        (halved, [0.25, 0.5, 1.0]),
    ],
)
def test_the_learning_rate_follows_the_batch_by_the_rule(rule: object, scales: list[float]) -> None:
    policy = CappedLocal(local=8, max_global=64, lr_rule=rule)  # type: ignore[arg-type]
    assert [policy.lr_scale(batch, 16) for batch in (8, 16, 32)] == scales
    assert FixedGlobal(16).lr_scale(16, 16) == 1.0


def test_a_rule_may_be_anything_that_takes_two_numbers() -> None:
    rules = [max, lambda batch, chosen_for=1: 1.0, lambda *batches: 2.0, partial(halved)]
    scales = [CappedLocal(local=8, max_global=64, lr_rule=rule).lr_scale(16, 8) for rule in rules]  # type: ignore[arg-type]
    assert scales == [16.0, 1.0, 2.0, 1.0]


@pytest.mark.parametrize("returned", [0.0, -1.0, math.nan, math.inf, "2", None])
def test_a_rule_that_returns_no_factor_is_told(returned: object) -> None:
    policy = CappedLocal(local=8, max_global=64, lr_rule=lambda *_: returned)  # type: ignore[arg-type,return-value]
    with pytest.raises(ConfigError, match=r"returned .* for a global batch of 32 samples, chosen for 8"):
        policy.lr_scale(32, 8)


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (FixedGlobal(64), "FixedGlobal(64)"),
        (CappedLocal(local=8, max_global=64), "CappedLocal(local=8, max_global=64)"),
        (
            CappedLocal(local=8, max_global=64, lr_rule="linear", lr_batch=16),
            "CappedLocal(local=8, max_global=64, lr_rule='linear', lr_batch=16)",
        ),
        (
            CappedLocal(local=8, max_global=64, lr_rule=halved),
            "CappedLocal(local=8, max_global=64, lr_rule=halved)",
        ),
    ],
)
def test_a_policy_is_described_as_it_is_written(policy: BatchPolicy, text: str) -> None:
    assert policy.describe() == text


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: FixedGlobal(0), r"FixedGlobal: samples is 0; it is the number of samples of a step"),
        (lambda: FixedGlobal(2.5), r"samples is 2\.5; .*whole number"),  # type: ignore[arg-type]
        (lambda: FixedGlobal(True), r"samples is True; .*whole number"),
        (lambda: CappedLocal(local=0, max_global=4), r"CappedLocal: local is 0; .* at least 1"),
        (
            lambda: CappedLocal(local=8, max_global=7),
            r"max_global is 7 and local is 8; .* give max_global of at least 8",
        ),
        (lambda: CappedLocal(local=8, max_global=16.5), r"max_global is 16\.5; .*whole number"),  # type: ignore[arg-type]
        (lambda: CappedLocal(local=8, max_global="16"), r"max_global is '16'; .*whole number"),  # type: ignore[arg-type]
        (
            lambda: CappedLocal(local=8, max_global=16, lr_rule=lambda batch: 1.0),  # type: ignore[arg-type,misc]
            r"the lr_rule .*<lambda> cannot be called with two numbers; it is given the global batch",
        ),
        (lambda: check_policy(64), r"batch=64 is no batch policy; give elastane\.FixedGlobal"),
        (lambda: check_policy(FixedGlobal), r"batch=FixedGlobal is no batch policy"),
        (lambda: CappedLocal(local=8, max_global=9, lr_batch=0), r"lr_batch is 0; it is a global batch"),
        (
            lambda: CappedLocal(local=8, max_global=9, lr_rule="cubic"),  # type: ignore[arg-type]
            r"lr_rule='cubic' is unknown; use 'none', 'linear', 'sqrt' or a function",
        ),
        (
            lambda: check_policy_workers(FixedGlobal(4), 5),
            r"5 workers cannot share the 4 samples of a step of FixedGlobal\(4\): .* ask for 1 to 4 workers",
        ),
        (lambda: check_policy_workers(CappedLocal(local=2, max_global=6), 0), r"ask for 1 to 6 workers"),
        (lambda: cut_epochs(FixedGlobal(4), 9, 5), r"ask for 1 to 4 workers"),
        (
            lambda: cut_epochs(CappedLocal(local=2, max_global=16), 15, 1),
            r"has 15 samples, fewer than the 16 that a step of CappedLocal\(.*\) may have",
        ),
        (lambda: cut_epochs(FixedGlobal(4), 9, 2, tail=Tail.PAD), r"tail='pad' repeats .* use 'exact'"),
    ],
)
def test_what_makes_no_step_is_refused_with_what_to_do(wrong: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        wrong()
