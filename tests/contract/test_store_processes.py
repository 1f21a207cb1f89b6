"""Several real processes on one SQLite store: no update and no event is lost, and a kill breaks nothing."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import store_processes

from elastane.store.base import DeleteEvent, Event, Put, PutEvent, Watch
from elastane.store.open import open_store

pytestmark = pytest.mark.process

DEADLINE_S = 30.0  # far above the second that these tests take; only a hang reaches it

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite://{tmp_path}/store.db"


@pytest.fixture
def start(url: str) -> Iterator[Start]:
    """Start a process of `store_processes`; those that still run at the end are killed by their pid."""
    started: list[subprocess.Popen[bytes]] = []

    def start_one(role: str, *arguments: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, store_processes.__file__, role, url, *arguments]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE))
        return started[-1]

    yield start_one
    for process in started:
        process.kill()
        process.communicate()


def collect(watch: Watch, is_enough: Callable[[list[Event]], bool]) -> list[Event]:
    """Return all events up to the first moment when they are enough."""
    events: list[Event] = []
    until_s = time.monotonic() + DEADLINE_S
    while not is_enough(events):
        assert time.monotonic() < until_s, f"not enough after {DEADLINE_S} s: {events[-5:]}"
        events += watch.wait(0.5)
    return events


def test_writers_that_compare_and_swap_lose_no_update_and_a_watch_sees_each_once(
    url: str, start: Start
) -> None:
    writers, increments = 4, 50
    with open_store(url) as store, store.watch("counter", store.range("").revision) as watch:
        processes = [start("count", str(increments)) for _ in range(writers)]
        events = collect(watch, lambda events: len(events) >= writers * increments)
        exit_codes = [process.wait(DEADLINE_S) for process in processes]
        events += watch.poll()
    values = [int(event.entry.value) for event in events if isinstance(event, PutEvent)]
    revisions = [event.revision for event in events]
    assert exit_codes == [0] * writers
    assert values == list(range(1, writers * increments + 1))
    assert revisions == list(range(revisions[0], revisions[0] + len(revisions)))


def test_a_writer_killed_amid_its_writes_leaves_a_store_that_all_can_use(url: str, start: Start) -> None:
    with open_store(url) as store, store.watch("pair/", store.range("").revision) as watch:
        process = start("write_pairs")
        before = collect(watch, lambda events: len(events) >= 200)
        process.send_signal(signal.SIGKILL)
        process.wait(DEADLINE_S)
        alive = store.transact(puts=[Put(key="other", value=b"1")])
        after = collect(watch, lambda events: len(events) >= 2 and isinstance(events[-1], DeleteEvent))
        with open_store(url) as fresh:
            remaining = [entry.key for entry in fresh.range("").entries]
    events = before + after
    pairs = [events[start : start + 2] for start in range(0, len(events), 2)]
    puts = [pair for pair in pairs[:-1] if all(isinstance(event, PutEvent) for event in pair)]
    assert alive.succeeded
    assert puts == pairs[:-1], "only the last pair of events is a deletion: the lease expired once"
    values = [[event.entry.value for event in pair if isinstance(event, PutEvent)] for pair in puts]
    assert values == [[b"%d" % number] * 2 for number in range(len(puts))]
    assert [event.key for event in pairs[-1]] == ["pair/a", "pair/b"]
    assert remaining == ["other"]


def test_many_processes_may_create_the_same_store_at_once(url: str, start: Start) -> None:
    processes = [start("count", "1") for _ in range(4)]
    exit_codes = [process.wait(DEADLINE_S) for process in processes]
    with open_store(url, create=False) as store:
        entry = store.get("counter")
    assert exit_codes == [0] * 4
    assert entry is not None
    assert entry.value == b"4"


def test_a_writer_killed_within_a_transaction_holds_no_lock_and_leaves_no_trace(
    url: str, start: Start
) -> None:
    with open_store(url) as store:
        before = store.transact(puts=[Put(key="a", value=b"1")])
        process = start("hold_lock")
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        assert [entry.key for entry in store.range("").entries] == ["a"]
        process.send_signal(signal.SIGKILL)
        process.wait(DEADLINE_S)
        assert store.transact(puts=[Put(key="b", value=b"2")]).revision == before.revision + 1
        assert [entry.key for entry in store.range("").entries] == ["a", "b"]
