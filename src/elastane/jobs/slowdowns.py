"""Ask workers of a job to be slow, for as long as whoever asks is there.

The orders hang on a lease of the one that asks: when it is killed they vanish, and the workers go on at their
own speed. Decides nothing; what a worker does about an order is in `worker/braking.py`.
"""

from collections.abc import Mapping

from elastane.core.view import encode
from elastane.model.errors import JobStateError, LeaseLostError
from elastane.model.ids import JobId, WorkerId
from elastane.model.records import JobKeys, Slowdown
from elastane.store.base import Exists, LeaseId, Put, Store

RENEW_AFTER = 1 / 3
"""Part of the lease after which it is renewed, as workers renew theirs: two renewals may be late."""


class SlowdownLease:
    """Hold the orders of one drill.

    Args:
        store: a handle of the calling thread.
        job: the job.
        ttl_s: after so long without `renew` the workers are slow no more.
    """

    def __init__(self, store: Store, job: JobId, ttl_s: float) -> None:
        self._store = store
        self._keys = JobKeys(job)
        self._job = job
        self._ttl_s = ttl_s
        self._lease: LeaseId | None = None
        self._renewed_at_s = 0.0

    def begin(self, orders: Mapping[WorkerId, Slowdown], now_s: float) -> None:
        """Ask all these workers at once.

        Raises:
            JobStateError: one of them has just gone.
            StoreError: the store cannot be reached.
        """
        self._lease, self._renewed_at_s = self._store.grant(self._ttl_s), now_s
        result = self._store.transact(
            compares=[Exists(key=self._keys.member(worker)) for worker in orders],
            puts=[
                Put(key=self._keys.slowdown(worker), value=encode(order), lease=self._lease)
                for worker, order in orders.items()
            ],
        )
        if not result.succeeded:
            self.end()
            raise JobStateError(
                f"one of {', '.join(orders)} has left job {self._job} at this moment; look again with "
                f"`elastane show {self._job}`"
            )

    def renew(self, now_s: float) -> bool:
        """Go on, if it is time to say so; tell whether the orders still hold.

        They do not if this process was held up for longer than the lease. Raises StoreError.
        """
        if self._lease is None:
            return False
        if now_s < self._renewed_at_s + RENEW_AFTER * self._ttl_s:
            return True
        try:
            self._store.renew(self._lease)
        except LeaseLostError:
            self._lease = None
            return False
        self._renewed_at_s = now_s
        return True

    def end(self) -> None:
        """Take the orders back; harmless if there are none any more. Raises StoreError."""
        lease, self._lease = self._lease, None
        if lease is not None:
            self._store.revoke(lease)
