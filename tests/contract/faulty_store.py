"""A store that can be taken away, or lose answers: as a server that does not answer."""

from collections.abc import Sequence

from elastane.model.errors import StoreUnreachableError
from elastane.store.base import (
    Compare,
    Delete,
    Entry,
    Event,
    LeaseId,
    Put,
    Snapshot,
    Store,
    TransactionResult,
    Watch,
)


class Outage:
    """Say whether the store is away; shared by all handles of a test."""

    def __init__(self) -> None:
        self.away = False
        self.failing_calls = 0
        """So many of the next calls fail."""
        self.lost_answers = 0
        """So many of the next transactions are done, and their answers get lost."""

    def check(self) -> None:
        if self.failing_calls:
            self.failing_calls -= 1
            raise StoreUnreachableError("the store does not answer")
        if self.away:
            raise StoreUnreachableError("the store does not answer")

    def check_answer(self) -> None:
        if self.lost_answers:
            self.lost_answers -= 1
            raise StoreUnreachableError("the transaction may or may not have taken effect")


class FaultyStore(Store):
    """Hand everything to a real store unless that is away."""

    def __init__(self, inner: Store, outage: Outage) -> None:
        self._inner = inner
        self._outage = outage

    def get(self, key: str) -> Entry | None:
        self._outage.check()
        return self._inner.get(key)

    def range(self, prefix: str) -> Snapshot:
        self._outage.check()
        return self._inner.range(prefix)

    def transact(
        self, compares: Sequence[Compare] = (), puts: Sequence[Put] = (), deletes: Sequence[Delete] = ()
    ) -> TransactionResult:
        self._outage.check()
        result = self._inner.transact(compares, puts, deletes)
        self._outage.check_answer()
        return result

    def grant(self, ttl_s: float) -> LeaseId:
        self._outage.check()
        return self._inner.grant(ttl_s)

    def renew(self, lease: LeaseId) -> None:
        self._outage.check()
        self._inner.renew(lease)

    def revoke(self, lease: LeaseId) -> None:
        self._outage.check()
        self._inner.revoke(lease)

    def watch(self, prefix: str, after_revision: int) -> Watch:
        self._outage.check()
        return FaultyWatch(self._inner.watch(prefix, after_revision), self._outage)

    def close(self) -> None:
        self._inner.close()


class FaultyWatch(Watch):
    """Tell what happened unless the store is away."""

    def __init__(self, inner: Watch, outage: Outage) -> None:
        self._inner = inner
        self._outage = outage

    def poll(self) -> list[Event]:
        self._outage.check()
        return self._inner.poll()

    def wait(self, timeout_s: float) -> list[Event]:
        self._outage.check()
        return self._inner.wait(timeout_s)

    def close(self) -> None:
        self._inner.close()
