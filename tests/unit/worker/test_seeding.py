"""All generators of the process follow the seed; states can be put aside and back."""

import random
import sys
from collections.abc import Iterator
from itertools import pairwise

import numpy
import pytest
import torch

from elastane.core.randomness import mix_seed
from elastane.worker.seeding import (
    apply_random_state,
    apply_seed,
    capture_random_state,
    compute_batch_seed,
    compute_eval_seeds,
    seed_init,
    seed_step,
)

Draws = tuple[float, float, float, float]


def draws() -> Draws:
    """Draw from every generator; from `random` also a number that it makes in pairs."""
    return torch.rand(()).item(), float(numpy.random.rand()), random.random(), random.gauss(0, 1)


@pytest.fixture(autouse=True)
def _generators_as_before() -> Iterator[None]:
    state = capture_random_state()
    yield
    apply_random_state(state)


def test_the_same_step_and_virtual_worker_draw_the_same_numbers() -> None:
    seed_step(7, 11, 3)
    first = draws()
    draws()
    seed_step(7, 11, 3)
    assert draws() == first


def test_other_seeds_steps_and_virtual_workers_draw_other_numbers_from_every_generator() -> None:
    drawn = []
    for place in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]:
        seed_step(*place)
        drawn.append(draws())
    assert [len(set(column)) for column in zip(*drawn, strict=True)] == [4, 4, 4, 4]


def test_building_the_model_draws_the_same_numbers_in_every_process_of_a_job() -> None:
    seed_init(5)
    first = draws()
    seed_init(5)
    assert draws() == first
    seed_init(6)
    assert draws() != first


def test_steps_data_evaluation_and_building_use_streams_of_their_own() -> None:
    seeds = {
        compute_batch_seed(0, 1, 1, 1),
        compute_batch_seed(0, 0, 1, 1),
        *compute_eval_seeds(0, 1),
        *compute_eval_seeds(0, 2),
        mix_seed(0),
    }
    assert len(seeds) == 7


@pytest.mark.parametrize("mixed", [0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_every_64_bit_seed_is_taken(mixed: int) -> None:
    apply_seed(mixed)
    first = draws()
    apply_seed(mixed)
    assert draws() == first


def test_without_numpy_the_other_generators_are_seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "numpy")
    apply_seed(3)
    first = torch.rand(()).item(), random.random()
    apply_seed(3)
    state = capture_random_state()
    assert (torch.rand(()).item(), random.random()) == first
    assert state.numpy is None
    apply_random_state(state)
    assert (torch.rand(()).item(), random.random()) == first


def test_the_generators_of_all_devices_are_seeded_once_devices_are_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generators = (torch.Generator(), torch.Generator())
    monkeypatch.setattr(torch.cuda, "default_generators", generators)
    apply_seed(9)
    assert [generator.initial_seed() for generator in generators] != [9, 9]
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    apply_seed(9)
    assert [generator.initial_seed() for generator in generators] == [9, 9]


def test_a_state_put_back_continues_where_it_was_captured() -> None:
    seed_step(0, 0, 0)
    random.gauss(0, 1)  # leaves the second number of a pair waiting
    state = capture_random_state()
    first = [draws() for _ in range(3)]
    seed_step(0, 1, 0)
    apply_random_state(state)
    assert [draws() for _ in range(3)] == first
    assert all(a != b for a, b in pairwise(first))
