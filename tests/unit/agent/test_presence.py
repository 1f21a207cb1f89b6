"""An agent's second thread: its records stay while it lives, and changes wake the agent."""

import threading
import uuid
from collections.abc import Callable, Iterator

import pytest
from faulty_store import FaultyStore, Outage

from elastane.agent import presence as presence_module
from elastane.agent.presence import Presence, PresenceSettings
from elastane.model.errors import LeaseLostError, StoreUnreachableError
from elastane.store.base import DeleteKey, Put, Store
from elastane.store.open import open_store

DEADLINE_S = 30.0


class Wakes:
    """Count wake-ups, and wait for more of them."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self.count = 0

    def __call__(self) -> None:
        with self._condition:
            self.count += 1
            self._condition.notify_all()

    def wait_until(self, holds: Callable[[], bool]) -> None:
        with self._condition:
            assert self._condition.wait_for(holds, DEADLINE_S)


@pytest.fixture
def url() -> str:
    return f"memory://{uuid.uuid4()}"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with open_store(url) as opened:
        yield opened


@pytest.fixture
def wakes() -> Wakes:
    return Wakes()


@pytest.fixture
def presence(url: str, store: Store, wakes: Wakes) -> Iterator[Presence]:
    settings = PresenceSettings(
        store_url=url,
        prefix="job/",
        ignored=("job/chatter/",),
        key="job/agent",
        record=b"here",
        shared={"name": b"job"},
        lease_ttl_s=30.0,
    )
    made = Presence(settings, wakes)
    assert made.start(store)
    wakes.wait_until(lambda: wakes.count >= 1)
    yield made
    made.stop(store)


@pytest.mark.usefixtures("presence")
def test_the_records_are_there_under_one_lease(store: Store) -> None:
    entries = store.range("").entries
    assert [(entry.key, entry.value) for entry in entries] == [("job/agent", b"here"), ("name", b"job")]
    assert len({entry.lease for entry in entries} - {None}) == 1


@pytest.mark.usefixtures("presence")
def test_a_change_under_the_prefix_wakes_and_others_do_not(store: Store, wakes: Wakes) -> None:
    for key in ("other/x", "job/chatter/x"):
        store.transact(puts=[Put(key=key, value=b"")])
    store.transact(puts=[Put(key="job/x", value=b"")])
    wakes.wait_until(lambda: wakes.count == 2)
    store.transact(deletes=[DeleteKey(key="job/x")])
    wakes.wait_until(lambda: wakes.count == 3)


@pytest.mark.usefixtures("presence")
def test_records_that_were_lost_with_their_lease_are_written_anew(store: Store, wakes: Wakes) -> None:
    entry = store.get("name")
    assert entry is not None
    assert entry.lease is not None
    store.revoke(entry.lease)  # wakes the thread, which then finds its lease gone
    wakes.wait_until(lambda: store.get("job/agent") is not None and wakes.count >= 3)
    assert {entry.key for entry in store.range("").entries} == {"job/agent", "name"}


def test_stopping_takes_the_records_away_and_ends_the_thread(presence: Presence, store: Store) -> None:
    presence.stop(store)
    presence.stop(store)
    assert store.range("").entries == ()
    assert "elastane-presence" not in {thread.name for thread in threading.enumerate()}


def make_other(url: str) -> Presence:
    settings = PresenceSettings(
        store_url=url, prefix="job/", key="job/agent", record=b"other", lease_ttl_s=30.0
    )
    return Presence(settings, Wakes())


def test_a_presence_that_was_never_started_is_stopped_without_harm(url: str, store: Store) -> None:
    make_other(url).stop(store)


@pytest.mark.usefixtures("presence")
def test_a_place_that_is_taken_is_left_alone(url: str, store: Store) -> None:
    other = make_other(url)
    assert not other.start(store)
    other.stop(store)
    entry = store.get("job/agent")
    assert entry is not None
    assert entry.value == b"here"


def test_one_whose_place_was_taken_while_its_lease_was_lost_says_so(
    presence: Presence, store: Store, wakes: Wakes
) -> None:
    entry = store.get("job/agent")
    assert entry is not None
    assert entry.lease is not None
    # In one transaction, as a lease that expires under a sleeping machine would let another one in.
    store.transact(puts=[Put(key="job/agent", value=b"other", lease=store.grant(30.0))])
    store.revoke(entry.lease)
    wakes.wait_until(lambda: presence.displaced)


@pytest.mark.usefixtures("presence")
def test_what_all_agents_share_is_put_back_when_it_went_with_anothers_lease(
    store: Store, wakes: Wakes
) -> None:
    store.transact(deletes=[DeleteKey(key="name")])
    store.transact(puts=[Put(key="job/x", value=b"")])  # wakes the thread, which looks after its records
    wakes.wait_until(lambda: store.get("name") is not None)


def leases(store: Store) -> set[object]:
    return {entry.lease for entry in store.range("").entries}


def test_a_record_that_was_written_and_not_answered_is_ones_own_at_the_next_attempt(
    url: str, store: Store
) -> None:
    outage = Outage()
    outage.lost_answers = 1
    starting = make_other(url)
    with pytest.raises(StoreUnreachableError):
        starting.start(FaultyStore(store, outage))
    before = leases(store)
    assert starting.start(store)
    assert leases(store) == before
    starting.stop(store)
    assert store.range("").entries == ()


def test_a_record_that_was_written_and_not_answered_goes_with_an_agent_that_gives_up(
    url: str, store: Store
) -> None:
    outage = Outage()
    outage.lost_answers = 1
    starting = make_other(url)
    with pytest.raises(StoreUnreachableError):
        starting.start(FaultyStore(store, outage))
    starting.stop(store)
    assert store.range("").entries == ()


def test_an_attempt_whose_lease_ran_out_meanwhile_is_made_with_a_new_one(url: str, store: Store) -> None:
    outage = Outage()
    outage.lost_answers = 1
    starting = make_other(url)
    with pytest.raises(StoreUnreachableError):
        starting.start(FaultyStore(store, outage))
    (lease,) = leases(store)
    store.revoke(lease)  # type: ignore[arg-type]
    with pytest.raises(LeaseLostError):
        starting.start(store)
    assert starting.start(store)
    starting.stop(store)


def test_one_that_was_not_answered_while_another_came_leaves_that_one_alone(url: str, store: Store) -> None:
    outage = Outage()
    outage.lost_answers = 1
    starting = make_other(url)
    with pytest.raises(StoreUnreachableError):
        starting.start(FaultyStore(store, outage))
    (lease,) = leases(store)
    store.transact(puts=[Put(key="job/agent", value=b"here", lease=store.grant(30.0))])
    assert not starting.start(store)
    with pytest.raises(LeaseLostError):
        store.renew(lease)  # type: ignore[arg-type]


def test_an_agent_that_takes_its_lease_anew_and_is_not_answered_is_not_displaced_by_itself(
    url: str, store: Store, wakes: Wakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    outage = Outage()
    monkeypatch.setattr(presence_module, "open_store", lambda *_, **__: FaultyStore(open_store(url), outage))
    monkeypatch.setattr(presence_module, "_RETRY_S", 0.01)
    settings = PresenceSettings(
        store_url=url, prefix="job/", key="job/agent", record=b"here", lease_ttl_s=30.0
    )
    presence = Presence(settings, wakes)
    assert presence.start(store)
    wakes.wait_until(lambda: wakes.count >= 1)
    (lease,) = leases(store)
    outage.lost_answers = 1
    store.revoke(lease)  # type: ignore[arg-type]
    wakes.wait_until(lambda: wakes.count >= 3 and outage.lost_answers == 0)
    presence.stop(store)
    assert not presence.displaced
