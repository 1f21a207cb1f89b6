"""Orders to be slow, over a real store: they are there for as long as whoever gave them is."""

import uuid
from collections.abc import Iterator

import pytest

from elastane.core.view import encode
from elastane.jobs.requests import read_picture
from elastane.jobs.slowdowns import SlowdownLease
from elastane.model.errors import JobStateError
from elastane.model.ids import DeviceId, JobId, NodeId, WorkerId
from elastane.model.records import JobKeys, MemberRecord, Slowdown, Spec, WorkerPhase
from elastane.store.base import DeleteKey, Put, Store
from elastane.store.open import open_store

JOB = JobId("j")
KEYS = JobKeys(JOB)
W1, W2, GONE = WorkerId("w1"), WorkerId("w2"), WorkerId("w3")
ORDER = Slowdown(factor=1.5, for_s=60.0, drill="d")
TTL_S = 30.0


@pytest.fixture
def store() -> Iterator[Store]:
    """A job with two workers."""
    with open_store(f"memory://{uuid.uuid4()}") as opened:
        records: dict[str, object] = {KEYS.spec: Spec(wanted=2)}
        for worker in (W1, W2):
            records[KEYS.member(worker)] = MemberRecord(
                worker=worker, node=NodeId("n"), device=DeviceId("cpu:0"), pid=1, phase=WorkerPhase.TRAINING
            )
        opened.transact(puts=[Put(key=key, value=encode(record)) for key, record in records.items()])
        yield opened


def orders_of(store: Store) -> dict[WorkerId, Slowdown]:
    return dict(read_picture(store, JOB).view.slowdowns)


def test_all_workers_are_asked_at_once_and_let_go_at_once(store: Store) -> None:
    lease = SlowdownLease(store, JOB, TTL_S)
    lease.begin({W1: ORDER, W2: ORDER}, 0.0)
    assert orders_of(store) == {W1: ORDER, W2: ORDER}
    lease.end()
    assert orders_of(store) == {}
    lease.end()
    assert not lease.renew(0.0)


def test_the_orders_hang_on_a_lease_so_they_vanish_with_whoever_gave_them(store: Store) -> None:
    lease = SlowdownLease(store, JOB, TTL_S)
    lease.begin({W1: ORDER}, 0.0)
    entry = store.get(KEYS.slowdown(W1))
    assert entry is not None
    assert entry.lease is not None
    assert lease.renew(0.0)
    assert lease.renew(TTL_S / 2)
    store.revoke(entry.lease)  # as it runs out when this process is held up
    assert lease.renew(TTL_S / 2 + 0.1)  # not yet time to ask
    assert not lease.renew(TTL_S)
    assert not lease.renew(TTL_S)


def test_nobody_is_asked_if_one_of_them_has_gone(store: Store) -> None:
    store.transact(deletes=[DeleteKey(key=KEYS.member(W2))])
    lease = SlowdownLease(store, JOB, TTL_S)
    with pytest.raises(JobStateError, match="one of w1, w2 has left job j at this moment"):
        lease.begin({W1: ORDER, W2: ORDER}, 0.0)
    assert orders_of(store) == {}
