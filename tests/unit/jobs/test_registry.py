"""Creating, reopening and finding jobs."""

import hashlib
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from elastane.core.view import JobView, encode
from elastane.jobs.registry import (
    NewJob,
    check_name,
    create_job,
    find_job,
    list_jobs,
    list_namesakes,
    log_path,
    name_key,
    read_launch,
    reopen_job,
)
from elastane.jobs.requests import read_picture
from elastane.model.errors import ConfigError, JobNotFoundError, JobStateError
from elastane.model.ids import JobId, NodeId, WorkerId
from elastane.model.records import ExitRecord, JobInfo, JobKeys, JobPhase, JobStatus, Launch, Spec
from elastane.model.topology import Mode, Topology
from elastane.store.base import DeleteKey, Put, Store
from elastane.store.open import open_store


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store(f"memory://{uuid.uuid4()}") as opened:
        yield opened


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text("")
    return str(path)


def new(name: str, script: str, **changes: object) -> NewJob:
    return NewJob(name=name, script=script, **{"spec": Spec(wanted=2), **changes})


def end(store: Store, info: JobInfo, phase: JobPhase) -> None:
    status = encode(JobStatus(phase=phase))
    store.transact(
        puts=[Put(key=JobKeys(info.job).status, value=status)], deletes=[DeleteKey(key=name_key(info.name))]
    )


def test_a_new_job_has_private_folders_and_its_first_records(
    store: Store, script: str, tmp_path: Path
) -> None:
    info = create_job(store, tmp_path, new("digits", script, arguments=("--lr", "1"), node=NodeId("n0")))
    assert info == JobInfo(
        job=info.job,
        name="digits",
        script=script,
        arguments=("--lr", "1"),
        directory=str(tmp_path / "jobs" / info.job),
        created_at_s=info.created_at_s,
        node=NodeId("n0"),
        script_sha256=hashlib.sha256(Path(script).read_bytes()).hexdigest(),
    )
    for folder in (Path(info.directory), Path(info.directory) / "logs"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    view = read_picture(store, info.job).view
    assert view == JobView(revision=view.revision, spec=Spec(wanted=2))
    assert log_path(Path(info.directory), "w1") == Path(info.directory) / "logs" / "w1.log"


@pytest.mark.parametrize("name", ["a", "digits-2_B", "v1.2", "9", "x" * 64])
def test_names_of_letters_digits_and_a_few_marks_are_taken(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../a", "a..b", ".a", "a.", "-a", "a b", "ä", "x" * 65, "a\n"]
)
def test_names_that_could_play_tricks_are_refused(
    name: str, store: Store, script: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="cannot be used; take 1 to 64 letters"):
        create_job(store, tmp_path, new(name, script))
    assert store.range("").entries == ()


def test_a_living_jobs_name_is_taken_and_an_ended_ones_is_free(
    store: Store, script: str, tmp_path: Path
) -> None:
    first = create_job(store, tmp_path, new("digits", script))
    with pytest.raises(JobStateError, match=f"a living job is called 'digits' already: {first.job}"):
        create_job(store, tmp_path, new("digits", script))
    end(store, first, JobPhase.FINISHED)
    second = create_job(store, tmp_path, new("digits", script))
    assert [info.job for info in list_jobs(store)] == [first.job, second.job]
    assert find_job(store, "digits") == second


def test_a_missing_script_is_named_with_the_place_looked_at(store: Store, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the script 'nowhere.py' is no file \(looked at /"):
        create_job(store, tmp_path, new("digits", "nowhere.py"))


def test_more_workers_than_virtual_workers_are_refused(store: Store, script: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"5 workers asked for; a number in 1\.\.4"):
        create_job(
            store, tmp_path, new("digits", script, spec=Spec(wanted=5), launch=Launch(virtual_workers=4))
        )


def test_a_home_that_is_a_file_is_reported_by_the_system(store: Store, script: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.write_text("")
    with pytest.raises(OSError, match="Not a directory"):
        create_job(store, home, new("digits", script))


def test_a_stopped_job_is_reopened_without_its_old_generations(
    store: Store, script: str, tmp_path: Path
) -> None:
    info = create_job(store, tmp_path, new("digits", script))
    keys = JobKeys(info.job)
    current = Topology(generation=7, mode=Mode.STOP, members=())
    exit_record = ExitRecord(worker=WorkerId("w1"), code=0)
    store.transact(
        puts=[
            Put(key=keys.current, value=encode(current)),
            Put(key=keys.exit(WorkerId("w1")), value=encode(exit_record)),
            Put(key=keys.leader, value=b"w1"),
        ]
    )
    end(store, info, JobPhase.STOPPED)
    assert reopen_job(store, info.job, Spec(wanted=3)) == info
    view = read_picture(store, info.job).view
    assert view == JobView(
        revision=view.revision,
        spec=Spec(wanted=3),
        status=JobStatus(phase=JobPhase.STARTING, earlier_generations=7),
    )


@pytest.mark.parametrize("phase", [JobPhase.STARTING, JobPhase.TRAINING, JobPhase.FINISHED])
def test_only_stopped_and_failed_jobs_are_reopened(
    store: Store, script: str, tmp_path: Path, phase: JobPhase
) -> None:
    info = create_job(store, tmp_path, new("digits", script))
    end(store, info, phase)
    with pytest.raises(JobStateError, match=f"is {phase.value}; only stopped or failed jobs"):
        reopen_job(store, info.job, Spec(wanted=1))


def test_a_job_is_not_reopened_while_another_has_its_name(store: Store, script: str, tmp_path: Path) -> None:
    first = create_job(store, tmp_path, new("digits", script))
    end(store, first, JobPhase.STOPPED)
    create_job(store, tmp_path, new("digits", script))
    with pytest.raises(JobStateError, match="a living job is called 'digits'"):
        reopen_job(store, first.job, Spec(wanted=1))


def test_an_unknown_job_is_not_reopened(store: Store) -> None:
    with pytest.raises(JobNotFoundError):
        reopen_job(store, JobId("k"), Spec(wanted=1))


def put_info(store: Store, job: str, name: str, created_at_s: float) -> JobInfo:
    info = JobInfo(job=JobId(job), name=name, script="s", directory="d", created_at_s=created_at_s)
    store.transact(puts=[Put(key=JobKeys(info.job).info, value=msgspec.json.encode(info))])
    return info


def test_jobs_are_found_by_id_by_name_and_by_a_unique_beginning(store: Store) -> None:
    older = put_info(store, "ab12", "digits", 1.0)
    newer = put_info(store, "ab34", "digits", 2.0)
    other = put_info(store, "cd56", "ab12x", 3.0)
    assert find_job(store, "ab12") == older
    assert find_job(store, "digits") == newer
    assert find_job(store, "ab3") == newer
    assert find_job(store, "c") == other
    with pytest.raises(JobNotFoundError) as error:
        find_job(store, "ab")
    assert str(error.value) == "'ab' fits 2 jobs: ab12 (digits), ab34 (digits); write more of the id"
    with pytest.raises(JobNotFoundError) as error:
        find_job(store, "x")
    assert str(error.value) == (
        "no job has the id or name 'x'; newest jobs: ab12 (digits), ab34 (digits), cd56 (ab12x)"
    )


def test_of_several_jobs_with_one_name_the_living_one_is_meant(
    store: Store, script: str, tmp_path: Path
) -> None:
    resumed = create_job(store, tmp_path, new("digits", script))
    end(store, resumed, JobPhase.STOPPED)
    failed = create_job(store, tmp_path, new("digits", script))
    end(store, failed, JobPhase.FAILED)
    assert find_job(store, "digits") == failed
    reopen_job(store, resumed.job, Spec(wanted=1))
    assert find_job(store, "digits") == resumed
    assert list_namesakes(store, resumed) == (failed,)


def test_nothing_is_found_by_nothing(store: Store) -> None:
    put_info(store, "ab12", "digits", 1.0)
    with pytest.raises(JobNotFoundError):
        find_job(store, "")


def test_a_resumed_job_is_run_as_before_unless_told_otherwise(
    store: Store, script: str, tmp_path: Path
) -> None:
    launch = Launch(threads=2, cold=True)
    info = create_job(store, tmp_path, new("digits", script, launch=launch))
    end(store, info, JobPhase.STOPPED)
    reopen_job(store, info.job, Spec(wanted=1))
    assert read_launch(store, info.job) == launch
    end(store, info, JobPhase.STOPPED)
    again = Launch(threads=2, cold=True)
    reopen_job(store, info.job, Spec(wanted=1), again)
    assert read_launch(store, info.job) == again
    assert read_launch(store, JobId("older")) == Launch()
