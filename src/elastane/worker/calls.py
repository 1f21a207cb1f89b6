"""Work that other threads hand to the control thread, since only that one touches its store handle.

Work that finds the store out of reach stays first in line and is done again when the store is back: it may
have taken effect the first time, so it must be such that twice is as good as once.
"""

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

from elastane.model.errors import (
    LeaseLostError,
    StoreAccessError,
    StoreBusyError,
    StoreFullError,
    StoreUnreachableError,
)
from elastane.store.base import Store

OUTAGE = (StoreUnreachableError, StoreBusyError, StoreFullError, StoreAccessError)
"""What passes when somebody mends the store, the network or the disk."""

_log = logging.getLogger(__name__)

Work = Callable[[Store], object]


class Calls:
    """Queue work from any thread, do it in the control thread."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Work, Future[object]]] = deque()

    def submit(self, work: Work) -> Future[object]:
        """Queue `work`; the future gets its result or its error."""
        future: Future[object] = Future()
        self._waiting.append((work, future))
        return future

    def post(self, work: Work) -> None:
        """Queue `work` whose result nobody awaits; a failure is logged. Usable in a signal handler."""
        self.submit(work).add_done_callback(_tell_failure)

    def answer(self, store: Store) -> None:
        """Do all that waits.

        Raises:
            StoreError: one of `OUTAGE`; what is not done yet still waits.
        """
        while self._waiting:
            work, future = self._waiting[0]
            try:
                result = work(store)
            except OUTAGE:
                raise
            except Exception as error:  # noqa: BLE001 - raised where the result is awaited
                self._waiting.popleft()
                future.set_exception(error)
            else:
                self._waiting.popleft()
                future.set_result(result)

    def refuse(self) -> None:
        """Refuse all that waits: this worker is no part of the job any more."""
        while self._waiting:
            _, future = self._waiting.popleft()
            future.set_exception(LeaseLostError("this worker has given up its place in the job"))


def _tell_failure(future: Future[object]) -> None:
    error = future.exception()
    if error is not None:
        _log.warning("a request of this worker was not carried out: %s", error)
