"""How a job's end is written while others write too."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from faulty_store import FaultyStore, Outage

from elastane.core.view import encode
from elastane.jobs.ending import write_end
from elastane.model.errors import StoreBusyError, StoreUnreachableError
from elastane.model.ids import JobId, WorkerId
from elastane.model.records import JobKeys, JobPhase, JobStatus
from elastane.store.base import Put, Store
from elastane.store.open import open_store

JOB = JobId("j")
KEY = JobKeys(JOB).status
TRAINING = JobStatus(phase=JobPhase.TRAINING, earlier_generations=3)
FAILED = JobStatus(phase=JobPhase.FAILED, message="broken")


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store(f"memory://{uuid.uuid4()}") as opened:
        put(opened, TRAINING)
        yield opened


def put(store: Store, status: JobStatus) -> None:
    store.transact(puts=[Put(key=KEY, value=encode(status))])


def found(store: Store) -> JobStatus:
    entry = store.get(KEY)
    assert entry is not None
    return msgspec.json.decode(entry.value, type=JobStatus)


class RacedStore:
    """A store in which somebody else writes just before each of the first `times` transactions."""

    def __init__(self, store: Store, write: Callable[[Store], None], times: int) -> None:
        self._store = store
        self._write = write
        self._left = times

    def transact(self, *arguments: Any, **keywords: Any) -> Any:
        if self._left:
            self._left -= 1
            self._write(self._store)
        return self._store.transact(*arguments, **keywords)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_the_first_verdict_stands(store: Store) -> None:
    assert write_end(store, JOB, FAILED)
    assert not write_end(store, JOB, JobStatus(phase=JobPhase.FINISHED))
    assert found(store) == JobStatus(phase=JobPhase.FAILED, message="broken", earlier_generations=3)


@pytest.mark.parametrize(("own", "kept"), [(0, 3), (7, 7)])
def test_the_count_of_generations_never_falls(store: Store, own: int, kept: int) -> None:
    assert write_end(store, JOB, JobStatus(phase=JobPhase.FAILED, earlier_generations=own))
    assert found(store).earlier_generations == kept


def test_a_leader_that_writes_the_status_at_the_same_moment_swallows_no_end(store: Store) -> None:
    raced = RacedStore(store, lambda s: put(s, TRAINING), times=2)
    assert write_end(raced, JOB, FAILED)
    assert found(store).phase is JobPhase.FAILED


@pytest.mark.parametrize("seen", [None, JobStatus(phase=JobPhase.TRAINING)])
def test_an_end_that_was_written_and_not_answered_is_ones_own_when_written_again(
    store: Store, seen: JobStatus | None
) -> None:
    outage = Outage()
    outage.lost_answers = 1
    status = JobStatus(phase=JobPhase.STOPPED, worker=WorkerId("w1"), saved="/x", step=7)
    with pytest.raises(StoreUnreachableError):
        write_end(FaultyStore(store, outage), JOB, status, seen=seen)
    assert write_end(store, JOB, status, seen=seen)
    assert not write_end(store, JOB, msgspec.structs.replace(status, worker=WorkerId("w2")))
    assert found(store) == msgspec.structs.replace(status, earlier_generations=3)


def test_an_end_of_a_version_that_knew_less_of_it_can_be_read(store: Store) -> None:
    store.transact(puts=[Put(key=KEY, value=b'{"phase":"stopped","message":"m","worker":"w1"}')])
    assert found(store) == JobStatus(phase=JobPhase.STOPPED, message="m", worker=WorkerId("w1"))


def test_a_verdict_on_a_job_that_has_moved_on_is_void(store: Store) -> None:
    assert not write_end(store, JOB, FAILED, seen=JobStatus(phase=JobPhase.STARTING))
    assert found(store) == TRAINING
    assert write_end(store, JOB, FAILED, seen=JobStatus(phase=JobPhase.TRAINING))


def test_a_job_that_is_gone_is_not_ended(store: Store) -> None:
    assert not write_end(store, JobId("k"), FAILED)
    assert store.get(JobKeys(JobId("k")).status) is None


def test_whoever_never_gets_a_word_in_is_told(store: Store) -> None:
    raced = RacedStore(store, lambda s: put(s, TRAINING), times=1000)
    with pytest.raises(StoreBusyError, match="others change its status all the time"):
        write_end(raced, JOB, FAILED)
