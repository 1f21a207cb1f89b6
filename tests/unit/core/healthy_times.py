"""A noisy but healthy job, and the same with a slow worker, for the tests of straggler detection.

The model. Each device has a speed of its own (uniform within `spread` of the others). Each step's time varies
by `noise` (log-normal), independently. One step in 500 of a worker takes three times as long: a pause of the
interpreter, another process. None of it lasts. `ROUGH` is a busy machine with shared cores, `CALM` one
device for each worker.
"""

import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

from elastane.model.ids import WorkerId

STEP_S = 0.1
PAUSE_SHARE, PAUSE = 0.002, 3.0


class Noise(NamedTuple):
    """Say how unequal healthy workers are."""

    spread: float
    noise: float


CALM = Noise(spread=0.02, noise=0.03)
ROUGH = Noise(spread=0.05, noise=0.08)


def step_times(
    seed: int,
    workers: int,
    model: Noise,
    slowness: Callable[[int, int], float] = lambda worker, step: 1.0,
) -> Iterator[dict[WorkerId, float]]:
    """Yield the compute time per virtual worker of each worker, step by step, for ever.

    `slowness(worker, step)` says how many times as long a worker takes in a step.
    """
    rng = random.Random(seed)
    own = [rng.uniform(1 - model.spread, 1 + model.spread) for _ in range(workers)]
    step = 0
    while True:
        times = {}
        for worker in range(workers):
            noise = rng.lognormvariate(0.0, model.noise) * (PAUSE if rng.random() < PAUSE_SHARE else 1.0)
            times[WorkerId(f"w{worker}")] = STEP_S * own[worker] * noise * slowness(worker, step)
        yield times
        step += 1
