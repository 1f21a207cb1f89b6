"""What every coordination store does with leases, whichever back end it is."""

import pytest
from store_backends import Backend, keys, put

from elastane.model.errors import LeaseLostError
from elastane.store.base import (
    Absent,
    DeleteEvent,
    DeleteKey,
    Entry,
    Exists,
    LeaseId,
    Put,
    Store,
)


def test_keys_vanish_when_their_lease_is_not_renewed(backend: Backend, store: Store, other: Store) -> None:
    lease = store.grant(3)
    revision = put(store, "members/w", b"1", lease)
    put(store, "spec", b"2")
    assert store.get("members/w") == Entry(
        key="members/w", value=b"1", create_revision=revision, mod_revision=revision, lease=lease
    )
    backend.clock.advance(2.999)
    assert keys(other) == ["members/w", "spec"]
    backend.clock.advance(0.001)
    assert keys(other) == ["spec"]


def test_a_renewed_lease_lives_a_full_time_from_the_renewal(backend: Backend, store: Store) -> None:
    lease = store.grant(3)
    put(store, "a", b"", lease)
    for _ in range(5):
        backend.clock.advance(2.5)
        store.renew(lease)
    backend.clock.advance(2.999)
    assert keys(store) == ["a"]
    backend.clock.advance(0.001)
    assert keys(store) == []


def test_an_expired_lease_cannot_be_renewed_even_by_the_first_to_notice(
    backend: Backend, store: Store, other: Store
) -> None:
    lease = store.grant(3)
    revision = put(store, "a", b"", lease)
    backend.clock.advance(3)
    with pytest.raises(LeaseLostError, match=f"lease {lease} has expired or was revoked"):
        store.renew(lease)
    assert other.watch("", revision).poll() == [DeleteEvent(key="a", revision=revision + 1)]


def test_a_revoked_lease_takes_all_its_keys_in_one_revision(store: Store, other: Store) -> None:
    lease = store.grant(3)
    put(store, "b", b"", lease)
    put(store, "a", b"", lease)
    revision = put(store, "c")
    other.revoke(lease)
    assert store.watch("", revision).poll() == [
        DeleteEvent(key="a", revision=revision + 1),
        DeleteEvent(key="b", revision=revision + 1),
    ]
    with pytest.raises(LeaseLostError):
        store.renew(lease)


def test_revoking_a_lease_that_is_gone_is_harmless(backend: Backend, store: Store) -> None:
    revoked, expired = store.grant(3), store.grant(3)
    store.revoke(revoked)
    backend.clock.advance(3)
    for lease in (revoked, expired, LeaseId(12345)):
        store.revoke(lease)
    assert keys(store) == []


def test_a_lease_number_is_never_given_twice(backend: Backend, store: Store, other: Store) -> None:
    leases = [store.grant(1), other.grant(1)]
    store.revoke(leases[1])
    leases.append(other.grant(1))
    backend.clock.advance(5)
    leases.append(store.grant(1))
    assert len(set(leases)) == 4


def test_a_put_under_a_lost_lease_raises_and_writes_nothing(backend: Backend, store: Store) -> None:
    lease = store.grant(3)
    revision = put(store, "a")
    backend.clock.advance(3)
    with pytest.raises(LeaseLostError):
        store.transact(
            puts=[Put(key="b", value=b""), Put(key="c", value=b"", lease=lease)], deletes=[DeleteKey(key="a")]
        )
    assert (keys(store), store.range("").revision) == (["a"], revision)


def test_a_lost_lease_is_no_matter_if_the_compares_fail_anyway(store: Store) -> None:
    result = store.transact([Exists(key="absent")], [Put(key="a", value=b"", lease=LeaseId(99))])
    assert not result.succeeded


def test_a_put_without_lease_takes_the_key_off_its_lease(backend: Backend, store: Store) -> None:
    lease = store.grant(3)
    put(store, "a", b"1", lease)
    put(store, "a", b"2")
    backend.clock.advance(3)
    entry = store.get("a")
    assert entry is not None
    assert (entry.value, entry.lease) == (b"2", None)


def test_a_put_under_another_lease_moves_the_key_to_it(backend: Backend, store: Store) -> None:
    short, long = store.grant(3), store.grant(10)
    put(store, "a", b"", short)
    put(store, "a", b"", long)
    backend.clock.advance(3)
    assert keys(store) == ["a"]
    backend.clock.advance(7)
    assert keys(store) == []


def test_a_key_deleted_and_created_again_has_left_its_lease(backend: Backend, store: Store) -> None:
    put(store, "a", b"", store.grant(3))
    store.transact(deletes=[DeleteKey(key="a")])
    revision = put(store, "a")
    backend.clock.advance(3)
    assert (keys(store), store.range("").revision) == (["a"], revision)


def test_leases_that_expire_together_are_expired_in_the_order_of_their_deadlines(
    backend: Backend, store: Store
) -> None:
    late, early = store.grant(2), store.grant(1)
    put(store, "late", b"", late)
    revision = put(store, "early", b"", early)
    backend.clock.advance(5)
    assert store.watch("", revision).poll() == [
        DeleteEvent(key="early", revision=revision + 1),
        DeleteEvent(key="late", revision=revision + 2),
    ]


@pytest.mark.parametrize(
    "notice",
    [
        lambda store: store.get("x"),
        lambda store: store.range(""),
        lambda store: store.transact(),
        lambda store: store.grant(1),
        lambda store: store.revoke(LeaseId(999)),
        lambda store: store.watch("", 0).poll(),
    ],
    ids=["get", "range", "transact", "grant", "revoke", "poll"],
)
def test_whoever_looks_first_expires_a_lease_once_for_everybody(
    backend: Backend, store: Store, other: Store, notice: object
) -> None:
    revision = put(store, "a", b"", store.grant(3))
    watch = store.watch("", revision)
    assert watch.poll() == []
    backend.clock.advance(3)
    assert callable(notice)
    notice(other)
    assert watch.poll() == [DeleteEvent(key="a", revision=revision + 1)]
    assert watch.poll() == []


def test_a_transaction_sees_a_lease_that_is_due_as_expired(
    backend: Backend, store: Store, other: Store
) -> None:
    put(store, "leader", b"store", store.grant(3))
    assert not other.transact([Absent(key="leader")]).succeeded
    backend.clock.advance(3)
    assert other.transact([Absent(key="leader")], [Put(key="leader", value=b"other")]).succeeded
