"""What an agent writes to the store."""

import uuid
from collections.abc import Iterator

import pytest

from elastane.agent.bulletin import Bulletin
from elastane.core.view import encode
from elastane.model.errors import JobNotFoundError, LeaseLostError
from elastane.model.ids import DeviceId, JobId, NodeId, WorkerId
from elastane.model.records import (
    Dismissal,
    ExitRecord,
    JobKeys,
    JobPhase,
    JobStatus,
    MemberRecord,
    Post,
    Roster,
    Spec,
    WorkerPhase,
)
from elastane.model.topology import Member, Mode, Topology, VrankRange
from elastane.store.base import Put, Store
from elastane.store.open import open_store

JOB = JobId("j")
KEYS = JobKeys(JOB)
W1 = WorkerId("w1")


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store(f"memory://{uuid.uuid4()}") as opened:
        put(opened, KEYS.spec, Spec(wanted=1, targets=(DeviceId("n/cpu:1"), DeviceId("m/cpu:1"))))
        put(opened, KEYS.status, JobStatus(phase=JobPhase.TRAINING, earlier_generations=3))
        yield opened


@pytest.fixture
def bulletin(store: Store) -> Bulletin:
    return Bulletin(store, JOB, NodeId("n"))


def put(store: Store, key: str, record: object, lease: int | None = None) -> None:
    store.transact(puts=[Put(key=key, value=encode(record), lease=lease)])


def test_worker_ids_count_up_over_all_agents_of_a_job(store: Store, bulletin: Bulletin) -> None:
    other = Bulletin(store, JOB, NodeId("m"))
    posts = {W1: Post(device=DeviceId("cpu:0")), WorkerId("w2"): Post(device=DeviceId("cpu:1"))}
    roster = Roster(node=NodeId("n"), posts=posts)
    seen = bulletin.read()
    assert bulletin.claim(seen, 2, roster)
    assert not other.claim(seen, 1, Roster(node=NodeId("m")))  # it would fill a vacancy that is gone
    seen = other.read()
    assert (seen.claimed, seen.view.rosters) == (2, {NodeId("n"): roster})
    assert other.claim(seen, 1, Roster(node=NodeId("m")))
    assert other.read().claimed == 3


def test_a_roster_is_told_and_withdrawn(bulletin: Bulletin) -> None:
    roster = Roster(node=NodeId("n"), resting=(DeviceId("cpu:0"),))
    bulletin.post_roster(roster)
    assert bulletin.read().view.rosters == {NodeId("n"): roster}
    bulletin.withdraw_roster()
    assert bulletin.read().view.rosters == {}


def test_an_exit_is_told_and_all_that_hung_on_the_workers_lease_is_gone(
    store: Store, bulletin: Bulletin
) -> None:
    lease = store.grant(60.0)
    record = MemberRecord(
        worker=W1, node=NodeId("n"), device=DeviceId("cpu:0"), pid=1, phase=WorkerPhase.TRAINING
    )
    put(store, KEYS.member(W1), record, lease)
    store.transact(puts=[Put(key=KEYS.leader, value=b"w1", lease=lease)])
    put(store, KEYS.dismissal(W1), Dismissal(reason="slow"))
    vranks = VrankRange(0, 1)
    put(
        store,
        KEYS.current,
        Topology(generation=1, mode=Mode.START, members=(Member(worker=W1, vranks=vranks),)),
    )
    bulletin.post_exit(bulletin.read().view, W1, -9)
    view = bulletin.read().view
    assert (view.members, view.leader, view.dismissed) == ({}, None, {})
    assert view.exits == {W1: ExitRecord(worker=W1, code=-9)}
    with pytest.raises(LeaseLostError):
        store.renew(lease)


def test_telling_an_exit_twice_is_telling_it_once(bulletin: Bulletin) -> None:
    for _ in range(2):
        bulletin.post_exit(bulletin.read().view, W1, 0)
    assert bulletin.read().view.exits == {W1: ExitRecord(worker=W1, code=0)}


def test_old_exits_that_nobody_refers_to_are_cleaned_up(store: Store, bulletin: Bulletin) -> None:
    vranks = VrankRange(0, 1)
    put(
        store,
        KEYS.current,
        Topology(generation=1, mode=Mode.START, members=(Member(worker=W1, vranks=vranks),)),
    )
    for number in range(1, 101):
        bulletin.post_exit(bulletin.read().view, WorkerId(f"w{number}"), 0)
    exits = sorted(bulletin.read().view.exits, key=lambda w: int(w[1:]))
    assert exits == ["w1", *(f"w{number}" for number in range(84, 101))]


def test_served_wishes_are_taken_out_of_the_spec(bulletin: Bulletin) -> None:
    bulletin.drop_targets(("n/cpu:1", "cpu:1"))
    bulletin.drop_targets(("n/cpu:1",))
    assert bulletin.read().view.spec == Spec(wanted=1, targets=(DeviceId("m/cpu:1"),))


def test_the_first_word_on_the_jobs_end_stands(bulletin: Bulletin) -> None:
    failed = JobStatus(phase=JobPhase.FAILED, message="broken")
    assert bulletin.post_status(failed)
    assert not bulletin.post_status(JobStatus(phase=JobPhase.FINISHED))
    assert bulletin.read().view.status == JobStatus(
        phase=JobPhase.FAILED, message="broken", earlier_generations=3
    )


def test_a_job_that_is_gone_is_reported_and_nothing_is_written_for_it(store: Store) -> None:
    nowhere = Bulletin(store, JobId("k"), NodeId("n"))
    with pytest.raises(JobNotFoundError):
        nowhere.read()
    assert nowhere.read_info() is None
    assert not nowhere.post_status(JobStatus(phase=JobPhase.FAILED))
    nowhere.drop_targets(("cpu:0",))
    assert store.range(JobKeys(JobId("k")).prefix).entries == ()
