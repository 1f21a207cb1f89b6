"""What every watch of a coordination store tells, and what history it may forget."""

import pytest
from store_backends import Backend, put

from elastane.model.errors import CompactedError
from elastane.store.base import (
    DeleteEvent,
    DeleteKey,
    Entry,
    Put,
    PutEvent,
    Store,
)

# --- watches ---


def test_a_watch_tells_the_changes_of_its_own_and_of_other_handles_once(store: Store, other: Store) -> None:
    watch = store.watch("job/", store.range("job/").revision)
    first = put(store, "job/a", b"1")
    second = put(other, "job/b", b"2")
    assert watch.poll() == [
        PutEvent(entry=Entry(key="job/a", value=b"1", create_revision=first, mod_revision=first)),
        PutEvent(entry=Entry(key="job/b", value=b"2", create_revision=second, mod_revision=second)),
    ]
    assert watch.poll() == []


def test_a_watch_tells_nothing_of_other_prefixes(store: Store) -> None:
    watch = store.watch("job/1/", 0)
    for key in ["job/1", "job/10", "job/2/a", "zzz"]:
        put(store, key)
    assert watch.poll() == []


def test_a_watch_tells_each_value_as_it_was_then(store: Store) -> None:
    lease = store.grant(10)
    created = put(store, "a", b"1", lease)
    changed = put(store, "a", b"2")
    deleted = store.transact(deletes=[DeleteKey(key="a")]).revision
    events = store.watch("a", created - 1).poll()
    assert events == [
        PutEvent(
            entry=Entry(key="a", value=b"1", create_revision=created, mod_revision=created, lease=lease)
        ),
        PutEvent(entry=Entry(key="a", value=b"2", create_revision=created, mod_revision=changed)),
        DeleteEvent(key="a", revision=deleted),
    ]
    assert [(event.key, event.revision) for event in events] == [
        ("a", created),
        ("a", changed),
        ("a", deleted),
    ]


def test_a_watch_tells_a_transaction_as_a_whole_ordered_by_key(store: Store) -> None:
    before = put(store, "m")
    revision = store.transact(
        puts=[Put(key="z", value=b""), Put(key="a", value=b"")], deletes=[DeleteKey(key="m")]
    ).revision
    events = store.watch("", before).poll()
    assert [(event.key, event.revision) for event in events] == [
        ("a", revision),
        ("m", revision),
        ("z", revision),
    ]


def test_a_watch_from_a_snapshot_misses_nothing_and_repeats_nothing(store: Store, other: Store) -> None:
    put(store, "a")
    snapshot = store.range("")
    put(other, "b")
    watch = store.watch("", snapshot.revision)
    put(other, "c")
    seen = [entry.key for entry in snapshot.entries] + [event.key for event in watch.poll()]
    assert seen == ["a", "b", "c"]


def test_a_watch_from_a_later_revision_starts_there(store: Store) -> None:
    watch = store.watch("", put(store, "a") + 1)
    put(store, "b")
    assert watch.poll() == []
    put(store, "c")
    assert [event.key for event in watch.poll()] == ["c"]


def test_two_watches_of_one_handle_each_tell_everything(store: Store) -> None:
    watches = [store.watch("", 0), store.watch("a", 0)]
    put(store, "a")
    assert [[event.key for event in watch.poll()] for watch in watches] == [["a"], ["a"]]


def test_waiting_returns_at_once_if_something_happened_before(backend: Backend, store: Store) -> None:
    watch = store.watch("", 0)
    put(store, "a")
    assert [event.key for event in watch.wait(10)] == ["a"]
    assert backend.clock.sleeps == 0


def test_waiting_ends_with_nothing_when_the_time_is_over(backend: Backend, store: Store) -> None:
    watch = store.watch("", 0)
    start_s = backend.clock.now_s()
    assert watch.wait(1.5) == []
    assert backend.clock.now_s() - start_s == pytest.approx(1.5)


def test_waiting_for_no_time_is_a_poll(backend: Backend, store: Store) -> None:
    watch = store.watch("", 0)
    assert watch.wait(0) == []
    put(store, "a")
    assert [event.key for event in watch.wait(0)] == ["a"]
    assert backend.clock.sleeps == 0


def test_waiting_ends_soon_after_another_handle_writes(backend: Backend, store: Store, other: Store) -> None:
    watch = store.watch("", 0)
    backend.clock.while_asleep[3] = lambda: put(other, "a")
    assert [event.key for event in watch.wait(10)] == ["a"]
    assert backend.clock.sleeps == 3


def test_waiting_ends_soon_after_a_lease_expires_without_anybody_writing(
    backend: Backend, store: Store
) -> None:
    revision = put(store, "a", b"", store.grant(3))
    watch = store.watch("", revision)
    start_s = backend.clock.now_s()
    assert watch.wait(10) == [DeleteEvent(key="a", revision=revision + 1)]
    assert 3 <= backend.clock.now_s() - start_s < 3.05


def test_waiting_goes_on_when_leases_are_renewed_or_other_prefixes_change(
    backend: Backend, store: Store, other: Store
) -> None:
    lease = other.grant(0.5)
    watch = store.watch("mine/", put(other, "mine/a", b"", lease))
    backend.clock.while_asleep[2] = lambda: put(other, "yours/b")
    backend.clock.while_asleep[10] = lambda: other.renew(lease)
    start_s = backend.clock.now_s()
    assert [event.key for event in watch.wait(10)] == ["mine/a"]
    assert backend.clock.now_s() - start_s > 0.5


# --- bounded history ---


def test_an_open_watch_that_looks_too_late_is_told_that_history_is_gone(forgetful_local: Backend) -> None:
    store = forgetful_local.open()
    watch = store.watch("a", put(store, "a", b"0"))
    for number in range(20):
        put(store, "b", bytes([number]))
    with pytest.raises(CompactedError, match="under 'a'"):
        watch.poll()


def test_a_watch_that_begins_too_early_is_told_that_history_is_gone(forgetful: Backend) -> None:
    store = forgetful.open()
    revision = put(store, "a", b"0")
    for number in range(20):
        put(store, "b", bytes([number]))
    watch = store.watch("a", revision)
    message = f"under 'a' after revision {revision} were asked for"
    for _ in range(2):
        with pytest.raises(CompactedError, match=message):
            watch.poll()
    with pytest.raises(CompactedError, match=message):
        watch.wait(1)


def test_after_that_a_range_and_a_new_watch_go_on(forgetful: Backend) -> None:
    store = forgetful.open()
    for number in range(20):
        put(store, "a", bytes([number]))
    snapshot = store.range("a")
    watch = store.watch("a", snapshot.revision)
    put(store, "a", b"next")
    assert [entry.value for entry in snapshot.entries] == [bytes([19])]
    assert [event.revision for event in watch.poll()] == [snapshot.revision + 1]


def test_a_watch_of_a_quiet_prefix_that_looks_often_never_falls_behind(forgetful: Backend) -> None:
    store, other = forgetful.open(), forgetful.open()
    watch = store.watch("quiet", store.range("").revision)
    for number in range(20):
        put(other, "busy", bytes([number]))
        assert watch.poll() == []
    put(other, "quiet")
    assert [event.key for event in watch.poll()] == ["quiet"]


def test_history_always_keeps_the_newest_transaction_whole(forgetful: Backend) -> None:
    store = forgetful.open()
    watch = store.watch("", store.range("").revision)
    many = [Put(key=f"{number:02}", value=bytes(100)) for number in range(40)]
    store.transact(puts=many)
    assert [event.key for event in watch.poll()] == [item.key for item in many]


def test_history_is_bounded_by_its_bytes_too(forgetful: Backend) -> None:
    store = forgetful.open()
    revision = store.range("").revision
    for _ in range(3):
        put(store, "a", bytes(600))
    with pytest.raises(CompactedError):
        store.watch("", revision).poll()
