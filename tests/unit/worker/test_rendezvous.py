"""Peers find each other through the job's store, and give up at once when told to."""

import threading

import pytest

from elastane.model.errors import LinkBrokenError
from elastane.store.clock import MonotonicClock
from elastane.store.memory import MemoryStore, MemoryWorld
from elastane.worker.rendezvous import Rendezvous

DEADLINE_S = 20.0


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld(MonotonicClock())


def test_a_value_set_before_or_during_the_wait_is_found(world: MemoryWorld) -> None:
    one = Rendezvous(MemoryStore(world), "link/3.0/", timeout_s=DEADLINE_S)
    one.set("0", b"early")
    found: list[bytes] = []

    def read() -> None:
        other = Rendezvous(MemoryStore(world), "link/3.0/", timeout_s=DEADLINE_S)
        other.wait(["0"])
        assert other.check(["0"])
        found.extend([other.get("0"), other.get("1"), other.get("1")])
        other.close()

    reader = threading.Thread(target=read)
    reader.start()
    one.set("1", b"late")
    reader.join()
    assert found == [b"early", b"late", b"late"]
    assert not one.has_extended_api()


def test_another_attempt_sees_nothing_of_this_one(world: MemoryWorld) -> None:
    Rendezvous(MemoryStore(world), "link/3.0/", timeout_s=1).set("0", b"old")
    assert not Rendezvous(MemoryStore(world), "link/3.1/", timeout_s=1).check(["0"])


def test_a_wait_ends_when_the_proposal_is_dropped(world: MemoryWorld) -> None:
    dropped = threading.Event()
    failures: list[str | None] = []

    def read() -> None:
        rendezvous = Rendezvous(MemoryStore(world), "p/", timeout_s=DEADLINE_S, cancelled=dropped)
        with pytest.raises(LinkBrokenError, match="the proposal was dropped"):
            rendezvous.get("0")
        failures.append(rendezvous.failure)

    reader = threading.Thread(target=read)
    reader.start()
    dropped.set()
    reader.join(DEADLINE_S)
    assert failures == ["the proposal was dropped while its members connected"]


def test_a_wait_ends_when_time_is_up(world: MemoryWorld) -> None:
    rendezvous = Rendezvous(MemoryStore(world), "p/", timeout_s=0.0)
    with pytest.raises(LinkBrokenError, match=r"'p/0' within 0 s"):
        rendezvous.get("0")


def test_keys_vanish_with_the_lease_of_their_owner(world: MemoryWorld) -> None:
    store = MemoryStore(world)
    lease = store.grant(30.0)
    Rendezvous(store, "p/", timeout_s=1, lease=lease).set("0", b"address")
    store.revoke(lease)
    assert store.range("p/").entries == ()
