"""Bear with a store that is out of reach while an agent starts: try again, say so once, give up in the end.

What is tried must be such that twice is as good as once: of a call that failed nobody knows whether it was
carried out. Knows no store and no agent.
"""

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from elastane.model.errors import (
    LeaseLostError,
    StoreBusyError,
    StoreError,
    StoreFullError,
    StoreUnreachableError,
)

RETRY_S = 0.5
"""Pause after an error of the store: short beside a lease, long beside a transaction."""

PASSING = (StoreUnreachableError, StoreBusyError, StoreFullError, LeaseLostError)
"""What may pass by itself or when somebody mends the store. A lease is lost here if it ran out between two
attempts. A wrong address or password is told at once."""

_log = logging.getLogger(__name__)

T = TypeVar("T")


def insist(
    work: Callable[[], T],
    patience_s: float,
    pause: Callable[[float], bool] | None = None,
    tell: Callable[[StoreError], object] | None = None,
) -> T:
    """Return what `work` returns as soon as the store lets it.

    Args:
        work: one step of the start, all of whose calls of the store may be repeated.
        patience_s: how long the store may be out of reach.
        pause: waits for so many seconds at most; true = there is no point in going on. None: sleeps.
        tell: called with the first error, beside the line in the log.

    Raises:
        StoreError: the store stayed out of reach, or the error is none that passes.
    """
    since_s: float | None = None
    while True:
        try:
            return work()
        except PASSING as error:
            now_s = time.monotonic()
            if since_s is None:
                since_s = now_s
                _log.warning("the agent waits for the store, for up to %g s: %s", patience_s, error)
                if tell is not None:
                    tell(error)
            if now_s - since_s >= patience_s or (pause or _sleep)(RETRY_S):
                raise


def _sleep(pause_s: float) -> bool:
    time.sleep(pause_s)
    return False
