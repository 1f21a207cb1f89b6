"""What people may ask of a job, and what they are told when they may not."""

import uuid
from collections.abc import Iterator

import pytest

from elastane.core.view import encode
from elastane.jobs.requests import (
    Change,
    find_free_devices,
    read_picture,
    request_balance,
    request_evict,
    request_leave,
    request_migrate,
    request_scale,
    request_stop,
)
from elastane.model.errors import ConfigError, ElastaneError, JobNotFoundError, JobStateError
from elastane.model.ids import DeviceId, JobId, NodeId, WorkerId
from elastane.model.records import (
    AgentRecord,
    ExitRecord,
    JobKeys,
    JobPhase,
    JobStatus,
    Leave,
    MemberRecord,
    ModelSignature,
    Spec,
    WorkerPhase,
)
from elastane.store.base import DeletePrefix, Put, Snapshot, Store
from elastane.store.open import open_store

JOB = JobId("j")
KEYS = JobKeys(JOB)
W1, W2, W3 = WorkerId("w1"), WorkerId("w2"), WorkerId("w3")


@pytest.fixture
def store() -> Iterator[Store]:
    """A job with N = 4, two workers and an agent with three devices."""
    with open_store(f"memory://{uuid.uuid4()}") as opened:
        put(opened, KEYS.spec, Spec(wanted=2, minimum=2))
        put(opened, KEYS.signature, ModelSignature(virtual_workers=4, entries=()))
        for index, worker in enumerate((W1, W2)):
            put(opened, KEYS.member(worker), member(worker, f"cpu:{index}"))
        devices = tuple(DeviceId(f"cpu:{i}") for i in range(3))
        put(opened, JobKeys(JOB).agent(NodeId("n")), AgentRecord(node=NodeId("n"), pid=1, devices=devices))
        yield opened


def put(store: Store, key: str, record: object) -> None:
    store.transact(puts=[Put(key=key, value=encode(record))])


def member(worker: WorkerId, device: str) -> MemberRecord:
    return MemberRecord(
        worker=worker, node=NodeId("n"), device=DeviceId(device), pid=1, phase=WorkerPhase.TRAINING
    )


def spec(store: Store) -> Spec:
    return read_picture(store, JOB).view.spec


def message(error: pytest.ExceptionInfo[ElastaneError]) -> str:
    return str(error.value)


def test_scaling_writes_what_is_wanted_and_tells_what_was(store: Store) -> None:
    change = request_scale(store, JOB, 3)
    assert change == Change(
        before=Spec(wanted=2, minimum=2), after=Spec(wanted=3, minimum=2), revision=change.revision
    )
    assert spec(store) == Spec(wanted=3, minimum=2)


def test_scaling_below_the_minimum_lowers_it_too(store: Store) -> None:
    request_scale(store, JOB, 1)
    assert spec(store) == Spec(wanted=1, minimum=1)


@pytest.mark.parametrize(("amount", "wanted"), [(2, 4), (-1, 1)])
def test_scaling_by_a_difference_counts_from_what_is_wanted(store: Store, amount: int, wanted: int) -> None:
    request_scale(store, JOB, amount, relative=True)
    assert spec(store).wanted == wanted


@pytest.mark.parametrize("amount", [0, -1, 5, 10**6])
def test_an_illegal_number_of_workers_is_refused_with_the_legal_range(store: Store, amount: int) -> None:
    with pytest.raises(ConfigError) as error:
        request_scale(store, JOB, amount)
    assert message(error).startswith(f"{amount} workers asked for; a number in 1..4 is possible")
    assert spec(store) == Spec(wanted=2, minimum=2)


def test_under_a_batch_policy_the_range_is_told_with_the_policy(store: Store) -> None:
    put(store, KEYS.signature, ModelSignature(virtual_workers=64, batch="FixedGlobal(64)", entries=()))
    with pytest.raises(ConfigError, match=r"in 1\.\.64 is possible \(FixedGlobal\(64\): at least one sample"):
        request_scale(store, JOB, 65)
    request_scale(store, JOB, 64)
    assert spec(store).wanted == 64


def test_while_n_is_unknown_the_range_is_that_of_the_largest_job() -> None:
    with open_store(f"memory://{uuid.uuid4()}") as store:
        put(store, KEYS.spec, Spec(wanted=1))
        with pytest.raises(ConfigError, match=r"1\.\.10000 is possible \(N is not known yet\)"):
            request_scale(store, JOB, 10**6)
        request_scale(store, JOB, 9)
        assert spec(store).wanted == 9


def test_a_request_that_changes_nothing_writes_nothing(store: Store) -> None:
    revision = read_picture(store, JOB).view.revision
    request_scale(store, JOB, 2)
    assert read_picture(store, JOB).view.revision == revision


def test_an_evicted_worker_goes_without_a_successor(store: Store) -> None:
    request_evict(store, JOB, W1)
    request_evict(store, JOB, W1)
    assert spec(store) == Spec(wanted=1, minimum=1, leaving={W1: Leave.NOW})


def test_the_only_worker_is_not_evicted(store: Store) -> None:
    request_scale(store, JOB, 1)
    with pytest.raises(ConfigError) as error:
        request_evict(store, JOB, W1)
    assert message(error) == (
        "w1 is the only worker of the job; move it with `elastane migrate`, or end the job "
        "with `elastane stop`"
    )


def test_a_worker_migrates_to_any_other_device(store: Store) -> None:
    request_migrate(store, JOB, W1)
    assert spec(store) == Spec(wanted=2, minimum=2, leaving={W1: Leave.SWAP})


def test_an_unknown_worker_is_refused_with_those_present(store: Store) -> None:
    for request in (request_evict, request_leave):
        with pytest.raises(ConfigError) as error:
            request(store, JOB, W3)
        assert message(error) == "the job has no worker 'w3'; present: w1, w2"


@pytest.mark.parametrize("text", ["cpu:2", "n:cpu:2", "n/cpu:2"])
def test_a_worker_migrates_to_a_device_named_in_any_way(store: Store, text: str) -> None:
    request_migrate(store, JOB, W1, text)
    expected = Spec(wanted=2, minimum=2, leaving={W1: Leave.SWAP}, targets=(DeviceId("n/cpu:2"),))
    assert spec(store) == expected
    request_migrate(store, JOB, W1, text)
    assert spec(store) == expected


def test_a_migration_to_a_device_in_use_or_unknown_names_those_that_exist(store: Store) -> None:
    with pytest.raises(ConfigError) as error:
        request_migrate(store, JOB, W1, "cpu:1")
    assert message(error) == "device 'cpu:1' is in use by worker w2; free: n/cpu:2"
    with pytest.raises(ConfigError) as error:
        request_migrate(store, JOB, W1, "cuda:0")
    assert message(error) == "the job has no device 'cuda:0'; present: n/cpu:0, n/cpu:1, n/cpu:2"


def test_a_leaving_worker_is_not_replaced(store: Store) -> None:
    request_leave(store, JOB, W1)
    request_leave(store, JOB, W1)
    assert spec(store) == Spec(wanted=1, minimum=1, leaving={W1: Leave.NOW})


def test_a_worker_about_to_be_swapped_that_must_leave_now_still_has_its_successor(store: Store) -> None:
    request_migrate(store, JOB, W1)
    request_leave(store, JOB, W1)
    assert spec(store) == Spec(wanted=2, minimum=2, leaving={W1: Leave.NOW})


def test_the_last_worker_that_leaves_stops_the_job(store: Store) -> None:
    request_leave(store, JOB, W1)
    request_leave(store, JOB, W2)
    assert spec(store) == Spec(wanted=1, minimum=1, leaving={W1: Leave.NOW}, stop=True)


def test_leavers_that_are_gone_are_forgotten(store: Store) -> None:
    request_migrate(store, JOB, W1)
    put(store, KEYS.exit(W1), ExitRecord(worker=W1, code=0))
    request_migrate(store, JOB, W2)
    assert spec(store).leaving == {W2: Leave.SWAP}


def test_stopping_twice_is_stopping_once(store: Store) -> None:
    request_stop(store, JOB)
    request_stop(store, JOB)
    assert spec(store) == Spec(wanted=2, minimum=2, stop=True)


def test_a_job_that_nobody_runs_any_more_has_stopped_as_soon_as_it_is_asked_to(store: Store) -> None:
    prefixes = (KEYS.prefix + "members/", KEYS.prefix + "agents/")
    store.transact(deletes=[DeletePrefix(prefix=prefix) for prefix in prefixes])
    request_stop(store, JOB)
    view = read_picture(store, JOB).view
    assert view.status == JobStatus(
        phase=JobPhase.STOPPED, message="stopped while nobody ran it; what was not saved is lost"
    )
    with pytest.raises(JobStateError, match="has ended: stopped"):
        request_stop(store, JOB)


def test_an_ended_job_takes_no_requests(store: Store) -> None:
    put(store, KEYS.status, JobStatus(phase=JobPhase.FINISHED, message="all done"))
    with pytest.raises(JobStateError) as error:
        request_scale(store, JOB, 1)
    assert message(error) == "job j has ended: finished (all done); it can no longer be scaled"


def test_an_unknown_job_is_named(store: Store) -> None:
    with pytest.raises(JobNotFoundError, match="no job 'k' in this store"):
        request_stop(store, JobId("k"))


class _Interrupted:
    """A store in which somebody else writes the spec right after each of the first reads."""

    def __init__(self, store: Store, times: int) -> None:
        self._store = store
        self._times = times

    def range(self, prefix: str) -> Snapshot:
        snapshot = self._store.range(prefix)
        if self._times > 0:
            self._times -= 1
            request_scale(self._store, JOB, 1 if spec(self._store).wanted != 1 else 4)
        return snapshot

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


def test_a_lost_race_is_run_again_and_nothing_of_the_others_is_lost(store: Store) -> None:
    request_stop(_Interrupted(store, 3), JOB)
    assert spec(store) == Spec(wanted=1, minimum=1, stop=True)


def test_a_request_that_loses_all_races_says_so(store: Store) -> None:
    with pytest.raises(JobStateError, match="changed by others all the time"):
        request_stop(_Interrupted(store, 1000), JOB)


def test_speeds_are_kept_of_those_that_live(store: Store) -> None:
    change = request_balance(store, JOB, {W1: 10.0, W2: 4.0, W3: 9.0})
    assert change.after == Spec(wanted=2, minimum=2, speeds={W1: 10.0, W2: 4.0})


def test_free_devices_are_those_of_the_agents_without_a_worker(store: Store) -> None:
    assert find_free_devices(read_picture(store, JOB)) == ("n/cpu:2",)
    put(store, KEYS.exit(W1), ExitRecord(worker=W1, code=0))
    assert find_free_devices(read_picture(store, JOB)) == ("n/cpu:0", "n/cpu:2")
