"""Put the process's random generators where (seed, step, vrank) says; save and restore them.

Covered: torch's default generators (CPU, and CUDA once it is initialised), numpy's global generator
once numpy is imported, and `random`. Generators that a script makes for itself are its own affair.
Streams are well defined but not those of `torch.manual_seed`: this one costs 7 us instead of 110 us.
"""

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from elastane.core.randomness import DATA_STREAM, EVAL_STREAM, INIT_STREAM, STEP_STREAM, mix_seed

_NUMPY_SEED_MASK = (1 << 32) - 1  # numpy.random.seed takes 32 bits


def seed_init(seed: int) -> None:
    """Seed all generators for building the model: everything before the first step."""
    mixed = mix_seed(seed, INIT_STREAM)
    torch.manual_seed(mixed)  # the slow way once: it also reaches devices that are initialised later
    apply_seed(mixed)


def seed_step(seed: int, step: int, vrank: int) -> None:
    """Seed all generators for the forward and backward pass of `vrank` in `step` of the job."""
    apply_seed(mix_seed(seed, STEP_STREAM, step, vrank))


def compute_batch_seed(seed: int, epoch: int, step: int, vrank: int) -> int:
    """Return the seed under which the batch of `vrank` in `step` of `epoch` is fetched and augmented."""
    return mix_seed(seed, DATA_STREAM, epoch, step, vrank)


def compute_eval_seeds(seed: int, batch: int) -> tuple[int, int]:
    """Return the seeds under which evaluation batch number `batch` is fetched and evaluated."""
    return mix_seed(seed, EVAL_STREAM, batch, 0), mix_seed(seed, EVAL_STREAM, batch, 1)


def apply_seed(mixed: int) -> None:
    """Seed all generators of this process with a 64-bit seed that `mix_seed` gave."""
    torch.default_generator.manual_seed(mixed)
    if _cuda_is_initialised():
        for generator in torch.cuda.default_generators:
            generator.manual_seed(mixed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(mixed & _NUMPY_SEED_MASK)
    random.seed(mixed)


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomState:
    """Hold the states of all generators of this process."""

    cpu: torch.Tensor
    cuda: tuple[torch.Tensor, ...]
    numpy: Any
    python: Any


def capture_random_state() -> RandomState:
    """Return the present states of all generators."""
    numpy = sys.modules.get("numpy")
    return RandomState(
        cpu=torch.get_rng_state(),
        cuda=tuple(torch.cuda.get_rng_state_all()) if _cuda_is_initialised() else (),
        numpy=numpy.random.get_state() if numpy is not None else None,
        python=random.getstate(),
    )


@contextmanager
def kept_random_state() -> Iterator[None]:
    """Put all generators back where they were, also if what is done meanwhile raises."""
    drawn = capture_random_state()
    try:
        yield
    finally:
        apply_random_state(drawn)


def apply_random_state(state: RandomState) -> None:
    """Put all generators back to `state`; those that did not exist when it was captured are left alone."""
    torch.set_rng_state(state.cpu)
    if state.cuda:
        torch.cuda.set_rng_state_all(list(state.cuda))
    if state.numpy is not None:
        sys.modules["numpy"].random.set_state(state.numpy)
    random.setstate(state.python)


def _cuda_is_initialised() -> bool:
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
