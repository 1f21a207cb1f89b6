"""Rehearse steps whose results are thrown away, so that a joiner's first real one is hardly slower.

All members wait for a joiner's first step. The very first step of a process costs many times a usual one:
kernels are chosen, memory is fetched, optimizer state is made; the next ones are slower still, while the
interpreter learns from what it runs. So steps are rehearsed as they are trained, but for the exchange with
others, until they get no faster or all of it takes too long.
"""

import time
from collections.abc import Callable
from typing import Any

from elastane.model.topology import VrankRange
from elastane.worker.reducer import SMALL_BYTES, GradientReducer
from elastane.worker.update import Update

PATIENCE_S = 0.1
"""After this time no further step is rehearsed: half of what a warm join of a small model takes in all."""
GAIN = 0.05
"""A step that saves less than this part of the one before it shows that the process is warm."""
MOST_STEPS = 10


def rehearse(
    update: Update, reducer: GradientReducer, batch: Any, clock: Callable[[], float] = time.monotonic
) -> int:
    """Rehearse steps on `batch`; return how many.

    Leaves the state changed and the reducer without a generation: both are about to be given new ones.

    Raises:
        Exception: whatever the model raises. The reducer can enter its first generation all the same.
    """
    # Adding up is rehearsed where gradients are small: large ones might not fit twice beside a large model.
    virtual_workers = 2 if reducer.gradient_bytes <= SMALL_BYTES else 1
    rehearsed, before_s, now_s = 0, float("inf"), clock()
    give_up_at_s = now_s + PATIENCE_S
    while now_s < give_up_at_s and rehearsed < MOST_STEPS:
        began_s = now_s
        _rehearse_step(update, reducer, batch, virtual_workers)
        rehearsed, now_s = rehearsed + 1, clock()
        if now_s - began_s > (1 - GAIN) * before_s:
            break
        before_s = now_s - began_s
    return rehearsed


def _rehearse_step(update: Update, reducer: GradientReducer, batch: Any, virtual_workers: int) -> None:
    try:
        reducer.enter((VrankRange(0, virtual_workers),), 0, None)
        for vrank in range(virtual_workers):
            reducer.begin_vrank(vrank, total_weight=float(virtual_workers))
            update.rehearse_body(batch)
            reducer.end_vrank()
        reducer.finish()
        update.rehearse_step()
    finally:
        reducer.discard()
