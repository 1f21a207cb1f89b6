"""Who may use a handle on a coordination store, and until when."""

import os
import threading
from collections.abc import Callable

import pytest
from store_backends import Backend, keys, put

from elastane.model.errors import StoreHandleError
from elastane.store.base import (
    Store,
)


def test_a_closed_handle_and_its_watches_refuse_to_work(store: Store) -> None:
    watch = store.watch("", 0)
    store.close()
    store.close()
    for call in (lambda: store.get("a"), store.transact, lambda: store.grant(1), watch.poll):
        with pytest.raises(StoreHandleError, match="is closed; open another"):
            call()


def test_a_closed_watch_refuses_to_work_and_leaves_the_handle_open(store: Store) -> None:
    with store.watch("job/", 0) as watch:
        pass
    watch.close()
    with pytest.raises(StoreHandleError, match="the watch on 'job/' is closed"):
        watch.poll()
    assert store.get("a") is None


def test_a_handle_closes_with_its_block(backend: Backend) -> None:
    with backend.open() as store:
        put(store, "a")
    with pytest.raises(StoreHandleError):
        store.get("a")


def test_keys_and_leases_outlive_the_handle_that_made_them(backend: Backend, other: Store) -> None:
    with backend.open() as store:
        lease = store.grant(3)
        put(store, "a", b"", lease)
    assert keys(other) == ["a"]
    other.renew(lease)


def test_another_thread_may_neither_use_nor_close_a_handle(store: Store) -> None:
    raised: list[str] = []

    calls: list[Callable[[], object]] = [lambda: store.get("a"), store.close]

    def misuse() -> None:
        for call in calls:
            with pytest.raises(StoreHandleError) as caught:
                call()
            raised.append(str(caught.value))

    thread = threading.Thread(target=misuse, name="misuser")
    thread.start()
    thread.join()
    assert [("belongs to thread" in text, "(misuser); open one per thread" in text) for text in raised] == [
        (True, True),
        (True, True),
    ]
    assert store.get("a") is None


def test_a_forked_child_may_not_use_a_handle_but_may_drop_it(store: Store) -> None:
    put(store, "a", b"parent")
    child = os.fork()
    if child == 0:
        exit_code = 1
        try:
            with pytest.raises(StoreHandleError, match="through a fork; open another"):
                store.get("a")
            store.close()
            exit_code = 0
        finally:
            os._exit(exit_code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert keys(store) == ["a"]
    put(store, "b")
