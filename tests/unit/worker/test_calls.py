"""Work that other threads hand to the control thread, while the store is there and while it is away."""

import logging

import pytest

from elastane.model.errors import LeaseLostError, StoreUnreachableError
from elastane.store.clock import ManualClock
from elastane.store.memory import MemoryStore, MemoryWorld
from elastane.worker.calls import Calls


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(MemoryWorld(ManualClock()))


def test_work_is_done_in_order_and_its_results_are_handed_back(store: MemoryStore) -> None:
    calls, seen = Calls(), []
    futures = [calls.submit(lambda _, n=n: seen.append(n) or n * n) for n in (1, 2, 3)]
    calls.answer(store)
    assert (seen, [f.result() for f in futures]) == ([1, 2, 3], [1, 4, 9])


def test_an_error_is_raised_where_the_result_is_awaited_and_the_next_is_done(store: MemoryStore) -> None:
    calls = Calls()
    bad, good = calls.submit(lambda _: 1 / 0), calls.submit(lambda _: "done")
    calls.answer(store)
    assert (type(bad.exception()), good.result()) == (ZeroDivisionError, "done")


def test_work_that_finds_the_store_away_stays_first_in_line(store: MemoryStore) -> None:
    calls, tries = Calls(), []

    def work(_: object) -> str:
        tries.append(len(tries))
        if len(tries) == 1:
            raise StoreUnreachableError("no route")
        return "done"

    first, second = calls.submit(work), calls.submit(lambda _: list(tries))
    with pytest.raises(StoreUnreachableError):
        calls.answer(store)
    assert not first.done()
    calls.answer(store)
    assert (first.result(), second.result()) == ("done", [0, 1])


def test_all_that_waits_is_refused_when_the_worker_is_no_part_of_the_job_any_more(store: MemoryStore) -> None:
    calls = Calls()
    future = calls.submit(lambda _: "done")
    calls.refuse()
    with pytest.raises(LeaseLostError, match="has given up its place"):
        future.result()


def test_posted_work_that_fails_is_logged(store: MemoryStore, caplog: pytest.LogCaptureFixture) -> None:
    calls = Calls()
    calls.post(lambda _: 1 / 0)
    with caplog.at_level(logging.WARNING):
        calls.answer(store)
    assert caplog.messages == ["a request of this worker was not carried out: division by zero"]
