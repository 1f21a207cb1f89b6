"""What every coordination store does with keys, revisions, prefixes and compares."""

import pytest
from store_backends import keys, put

from elastane.model.errors import StoreRequestError
from elastane.store.base import (
    MAX_OPERATIONS,
    MAX_TRANSACTION_BYTES,
    Absent,
    Compare,
    CreateRevisionIs,
    Delete,
    DeleteEvent,
    DeleteKey,
    DeletePrefix,
    Entry,
    Exists,
    LeaseId,
    LeaseIs,
    ModRevisionIs,
    Put,
    Store,
    TransactionResult,
    ValueIs,
)

# --- keys and revisions ---


def test_a_new_store_is_empty(store: Store) -> None:
    assert store.get("a") is None
    assert store.range("").entries == ()


def test_an_entry_is_seen_by_every_handle_as_it_was_written(store: Store, other: Store) -> None:
    revision = put(store, "job/a", b"\x00\xffvalue")
    entry = Entry(key="job/a", value=b"\x00\xffvalue", create_revision=revision, mod_revision=revision)
    assert store.get("job/a") == entry
    assert other.get("job/a") == entry


def test_an_empty_value_is_not_an_absent_key(store: Store) -> None:
    revision = put(store, "a", b"")
    assert store.get("a") == Entry(key="a", value=b"", create_revision=revision, mod_revision=revision)


def test_an_overwritten_key_keeps_its_create_revision_until_it_is_deleted(store: Store) -> None:
    created = put(store, "a", b"1")
    changed = put(store, "a", b"2")
    assert store.get("a") == Entry(key="a", value=b"2", create_revision=created, mod_revision=changed)
    store.transact(deletes=[DeleteKey(key="a")])
    created_again = put(store, "a", b"3")
    assert store.get("a") == Entry(
        key="a", value=b"3", create_revision=created_again, mod_revision=created_again
    )
    assert created < changed < created_again


def test_all_writes_of_a_transaction_share_one_revision(store: Store) -> None:
    before = put(store, "old")
    result = store.transact(
        puts=[Put(key="a", value=b""), Put(key="b", value=b"")], deletes=[DeleteKey(key="old")]
    )
    assert result == TransactionResult(succeeded=True, revision=before + 1)
    assert [entry.mod_revision for entry in store.range("").entries] == [before + 1, before + 1]


@pytest.mark.parametrize(
    "deletes",
    [[], [DeleteKey(key="absent")], [DeletePrefix(prefix="absent/")]],
    ids=["none", "key", "prefix"],
)
def test_a_transaction_that_changes_nothing_takes_no_revision(store: Store, deletes: list[Delete]) -> None:
    before = put(store, "a")
    assert store.transact(deletes=deletes) == TransactionResult(succeeded=True, revision=before)


def test_a_put_takes_a_revision_even_if_the_value_stays_the_same(store: Store) -> None:
    assert put(store, "a", b"1") < put(store, "a", b"1")


def test_a_snapshot_has_the_revision_of_the_store_not_of_its_entries(store: Store) -> None:
    first = put(store, "mine/a")
    last = put(store, "yours/b")
    snapshot = store.range("mine/")
    assert (snapshot.revision, snapshot.entries[0].mod_revision) == (last, first)


# --- prefixes ---


def test_a_prefix_means_exactly_the_keys_that_start_with_it(store: Store) -> None:
    for key in ["a", "a.", "a/", "a/1", "a/2/x", "a0", "b/1"]:
        put(store, key)
    assert keys(store, "a/") == ["a/", "a/1", "a/2/x"]
    assert keys(store, "a") == ["a", "a.", "a/", "a/1", "a/2/x", "a0"]
    assert keys(store, "c") == []


def test_keys_are_ordered_by_their_bytes_whatever_the_script(store: Store) -> None:
    names = ["z", "é", "Ωmega", "￿", "\U0010ffff", "a", "A", "a\x00b"]
    for key in names:
        put(store, key)
    assert keys(store) == sorted(names, key=str.encode)
    assert keys(store, "\U0010ffff") == ["\U0010ffff"]
    assert keys(store, "￿") == ["￿"]


def test_percent_and_underscore_are_plain_characters_of_a_prefix(store: Store) -> None:
    for key in ["a_b", "axb", "a%b"]:
        put(store, key)
    assert (keys(store, "a_"), keys(store, "a%")) == (["a_b"], ["a%b"])


def test_deletes_take_single_keys_and_whole_prefixes(store: Store) -> None:
    for key in ["a/1", "a/2", "b/1", "b/2", "c"]:
        put(store, key)
    store.transact(deletes=[DeletePrefix(prefix="a/"), DeleteKey(key="b/2"), DeleteKey(key="nothing")])
    assert keys(store) == ["b/1", "c"]


def test_overlapping_deletes_delete_once(store: Store) -> None:
    put(store, "a/1")
    revision = put(store, "a/2")
    store.transact(deletes=[DeletePrefix(prefix="a/"), DeleteKey(key="a/1"), DeletePrefix(prefix="")])
    assert store.watch("", revision).poll() == [
        DeleteEvent(key="a/1", revision=revision + 1),
        DeleteEvent(key="a/2", revision=revision + 1),
    ]


def test_the_empty_prefix_deletes_everything(store: Store) -> None:
    put(store, "a")
    put(store, "\U0010ffff")
    store.transact(deletes=[DeletePrefix(prefix="")])
    assert keys(store) == []


# --- compares ---


def make_compares(created: int, changed: int, lease: LeaseId) -> dict[bool, list[Compare]]:
    """Compares on `plain` (created, then changed), `leased` and `absent`, by their outcome."""
    return {
        True: [
            ModRevisionIs(key="plain", revision=changed),
            ModRevisionIs(key="absent", revision=0),
            CreateRevisionIs(key="plain", revision=created),
            CreateRevisionIs(key="absent", revision=0),
            ValueIs(key="plain", value=b"new"),
            LeaseIs(key="leased", lease=lease),
            LeaseIs(key="plain", lease=None),
            Exists(key="plain"),
            Exists(key="leased"),
            Absent(key="absent"),
        ],
        False: [
            ModRevisionIs(key="plain", revision=created),
            ModRevisionIs(key="plain", revision=0),
            ModRevisionIs(key="absent", revision=changed),
            CreateRevisionIs(key="plain", revision=changed),
            CreateRevisionIs(key="plain", revision=0),
            ValueIs(key="plain", value=b"old"),
            ValueIs(key="absent", value=b""),
            LeaseIs(key="leased", lease=None),
            LeaseIs(key="plain", lease=lease),
            LeaseIs(key="absent", lease=None),
            Exists(key="absent"),
            Absent(key="plain"),
        ],
    }


@pytest.mark.parametrize("outcome", [True, False])
def test_each_compare_holds_exactly_when_it_says_so(store: Store, outcome: bool) -> None:
    created = put(store, "plain", b"old")
    changed = put(store, "plain", b"new")
    lease = store.grant(10)
    put(store, "leased", b"", lease)
    compares = make_compares(created, changed, lease)[outcome]
    results = [store.transact([compare]).succeeded for compare in compares]
    assert results == [outcome] * len(compares)


def test_one_compare_that_fails_stops_the_whole_transaction(store: Store) -> None:
    revision = put(store, "a", b"1")
    result = store.transact(
        compares=[Exists(key="a"), Absent(key="a")],
        puts=[Put(key="b", value=b"")],
        deletes=[DeleteKey(key="a")],
    )
    assert result == TransactionResult(succeeded=False, revision=revision)
    assert keys(store) == ["a"]
    assert store.watch("", revision).poll() == []


def test_of_two_that_compare_and_swap_from_the_same_view_only_one_wins(store: Store, other: Store) -> None:
    seen = ModRevisionIs(key="leader", revision=0)
    first = store.transact([seen], [Put(key="leader", value=b"store")])
    second = other.transact([seen], [Put(key="leader", value=b"other")])
    assert (first.succeeded, second.succeeded) == (True, False)
    entry = other.get("leader")
    assert entry is not None
    assert entry.value == b"store"


# --- requests that no store takes ---


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"puts": [Put(key="", value=b"")]}, "a store key is empty"),
        ({"compares": [Exists(key="")]}, "a store key is empty"),
        ({"deletes": [DeleteKey(key="")]}, "a store key is empty"),
        ({"puts": [Put(key="\ud800", value=b"")]}, "no valid text"),
        ({"deletes": [DeletePrefix(prefix="\ud800")]}, "no valid text"),
        ({"puts": [Put(key="a", value=b"1"), Put(key="a", value=b"2")]}, r"puts \['a'\] more than once"),
        (
            {"puts": [Put(key="a", value=b"")], "deletes": [DeleteKey(key="a")]},
            r"both puts and deletes \['a'\]",
        ),
        (
            {"puts": [Put(key="a/1", value=b"")], "deletes": [DeletePrefix(prefix="a/")]},
            r"both puts and deletes \['a/1'\]",
        ),
        ({"compares": [Exists(key="a")] * (MAX_OPERATIONS + 1)}, "has 129 compares and 0 writes"),
        ({"deletes": [DeleteKey(key="a")] * (MAX_OPERATIONS + 1)}, "has 0 compares and 129 writes"),
        ({"puts": [Put(key="a", value=bytes(MAX_TRANSACTION_BYTES))]}, "writes 1048577 bytes"),
    ],
)
def test_a_malformed_transaction_is_refused_and_changes_nothing(
    store: Store, request_: dict[str, list[object]], message: str
) -> None:
    with pytest.raises(StoreRequestError, match=message):
        store.transact(**request_)  # type: ignore[arg-type]
    assert keys(store) == []


def test_a_transaction_may_be_as_large_as_the_limits(store: Store) -> None:
    value = bytes(MAX_TRANSACTION_BYTES // MAX_OPERATIONS - len("key/000"))
    puts = [Put(key=f"key/{number:03}", value=value) for number in range(MAX_OPERATIONS)]
    assert store.transact(puts=puts).succeeded
    assert len(store.range("key/").entries) == MAX_OPERATIONS


@pytest.mark.parametrize("ttl_s", [0, -1, float("inf"), float("nan")])
def test_a_lease_without_a_finite_time_is_refused(store: Store, ttl_s: float) -> None:
    with pytest.raises(StoreRequestError, match="a lease cannot live for"):
        store.grant(ttl_s)


def test_keys_and_prefixes_are_checked_when_reading_too(store: Store) -> None:
    for read in (lambda: store.get(""), lambda: store.range("\ud800"), lambda: store.watch("\ud800", 0)):
        with pytest.raises(StoreRequestError):
            read()
