"""An agent with real workers: it keeps the job staffed, ends with it, and leaves nothing behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from agent_world import World, is_gone, nothing_left_behind, wait_for, worker_environment

from elastane.agent.settings import AgentSettings, WorkerSettings
from elastane.core.staffing import StaffingSettings
from elastane.jobs.registry import NewJob, create_job, list_jobs, name_key
from elastane.jobs.requests import (
    request_leave,
    request_migrate,
    request_scale,
    request_stop,
)
from elastane.model.errors import JobNotFoundError, JobStateError
from elastane.model.ids import DeviceId, WorkerId
from elastane.model.records import CheckpointPlan, JobKeys, JobPhase, JobStatus, Spec
from elastane.observe.events import read_events
from elastane.store.base import DeletePrefix
from elastane.store.open import open_store

pytestmark = pytest.mark.process

TRAIN = "from agent_entry import life\nlife.train()\n"
DEAF = """
import time
from agent_entry import life, WorkerPhase
life.become(WorkerPhase.TRAINING)
time.sleep(600)
"""
IMPATIENT = StaffingSettings(
    first_back_off_s=0.01,
    lost_grace_s=0.2,
    dismissed_grace_s=0.2,
    ended_grace_s=0.2,
    failed_grace_s=0.2,
    kill_grace_s=0.2,
)
Begin = Callable[..., World]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Return a function that runs a job with an agent; in the end nothing may be left of it."""
    worlds: list[World] = []

    def make(source: str = TRAIN, *, spec: Spec | None = None, **changes: object) -> World:
        settings = AgentSettings(
            staffing=IMPATIENT,
            lease_ttl_s=1.0,
            stop_grace_s=changes.pop("stop_grace_s", 30.0),
            workers=changes.pop("workers", WorkerSettings()),
        )
        worlds.append(World.begin(tmp_path, source, spec or Spec(wanted=1), settings, **changes))
        return worlds[-1]

    with nothing_left_behind():
        yield make
        for world in worlds:
            if not world.result:
                world.agent.request_stop()
                world.agent.request_stop()
                world.end()


def trained_on(world: World) -> list[str]:
    return [e.fields["device"] for e in world.events("training")]


def test_a_job_runs_from_start_to_a_graceful_stop(begin: Begin) -> None:
    world = begin(spec=Spec(wanted=2))
    world.wait_event("training", count=2)
    assert [a.devices for a in world.picture().agents.values()] == [("cpu:0", "cpu:1", "cpu:2", "cpu:3")]
    world.agent.request_stop()
    status = world.end()
    assert status == JobStatus(phase=JobPhase.STOPPED, worker=status.worker)
    starting = [e.fields for e in world.events("worker_starting")]
    assert starting == [
        {"worker": "w1", "device": "cpu:0", "reason": "the job wants 2 workers"},
        {"worker": "w2", "device": "cpu:1", "reason": "the job wants 2 workers"},
    ]
    exits = sorted((e.fields for e in world.events("worker_exited")), key=lambda fields: fields["worker"])
    assert exits == [
        {
            "worker": worker,
            "device": device,
            "code": 0,
            "signal": "",
            "meaning": "ended by itself",
            "failure": False,
            "fault": "",
        }
        for worker, device in (("w1", "cpu:0"), ("w2", "cpu:1"))
    ]
    assert world.events("agent_ended")[0].fields == {"phase": "stopped", "message": ""}
    world.agent.request_stop()  # too late, and harmless


def test_the_agents_records_go_with_it_and_free_the_jobs_name(begin: Begin) -> None:
    world = begin()
    world.wait_event("training")
    with open_store(f"sqlite://{world.home}/store.db") as store:
        with pytest.raises(JobStateError, match="a living job is called 'job'"):
            create_job(store, world.home, NewJob(name="job", script=world.info.script, spec=Spec(wanted=1)))
        request_stop(store, world.info.job)
        world.end()
        left = {entry.key for entry in store.range("").entries}
        keys = JobKeys(world.info.job)
        assert left == {
            keys.info,
            keys.launch,
            keys.spec,
            keys.status,
            keys.exit(WorkerId("w1")),
            keys.prefix + "workers_so_far",
        }
        create_job(store, world.home, NewJob(name="job", script=world.info.script, spec=Spec(wanted=1)))
        assert store.get(name_key("job")) is not None


def test_more_workers_are_started_when_more_are_wanted(begin: Begin) -> None:
    world = begin()
    world.wait_event("training")
    request_scale(world.store, world.info.job, 3)
    world.wait_event("training", count=3)
    assert sorted(trained_on(world)) == ["cpu:0", "cpu:1", "cpu:2"]


def test_workers_that_do_not_train_yet_are_ended_when_fewer_are_wanted(begin: Begin) -> None:
    prepare = (
        "from agent_entry import life\nimport time\n"
        "if life.context.worker == 'w1':\n    life.train()\ntime.sleep(600)\n"
    )
    world = begin(prepare, spec=Spec(wanted=3))
    for kind, count in (("worker_started", 3), ("preparing", 3), ("training", 1)):
        world.wait_event(kind, count=count)
    request_scale(world.store, world.info.job, 1)
    for worker in ("w2", "w3"):
        assert world.wait_event("worker_exited", worker=worker).fields["signal"] == "SIGTERM"
    assert [e.fields["failure"] for e in world.events("worker_exited")] == [False, False]


def test_a_killed_worker_is_told_of_and_replaced_as_a_new_life(begin: Begin) -> None:
    world = begin()
    world.wait_event("training")
    os.kill(world.pid("w1"), signal.SIGKILL)
    exited = world.wait_event("worker_exited", worker="w1")
    assert (exited.fields["code"], exited.fields["failure"]) == (-9, True)
    world.wait_event("training", worker="w2")
    view = world.picture().view
    assert set(view.members) == {"w2"}
    assert view.exits[WorkerId("w1")].code == -9
    assert is_gone(world.pid("w1"))


def test_a_frozen_worker_is_killed_when_its_lease_must_be_lost_and_replaced(begin: Begin) -> None:
    world = begin(workers=WorkerSettings(lease_ttl_s=0.3))
    world.wait_event("training")
    os.kill(world.pid("w1"), signal.SIGSTOP)
    world.wait_event("training", worker="w2")
    assert world.wait_event("worker_exited", worker="w1").fields["signal"] == "SIGKILL"


def test_a_worker_frozen_with_the_stores_lock_in_its_hand_stops_nobody_for_long(begin: Begin) -> None:
    freeze = (
        "import os, pathlib, signal, sqlite3, time\nfrom agent_entry import life, WorkerPhase\n"
        "life.become(WorkerPhase.TRAINING)\n"
        "if life.context.worker == 'w1':\n"
        "    while not (pathlib.Path(life.context.directory) / 'freeze').exists():\n"
        "        time.sleep(0.01)\n"
        "    path = life.context.store_url.removeprefix('sqlite://')\n"
        "    lock = sqlite3.connect(path, isolation_level=None)\n"
        "    lock.execute('BEGIN IMMEDIATE')\n"
        "    life.log.append('locked')\n"
        "    os.kill(os.getpid(), signal.SIGSTOP)\n"
        "life.train()\n"
    )
    world = begin(freeze, spec=Spec(wanted=2), workers=WorkerSettings(lease_ttl_s=0.3))
    world.wait_event("training", count=2)
    Path(world.info.directory, "freeze").touch()
    world.wait_event("locked")
    # The agent has something to write, so it waits for the lock too: it must not wait as long as the others.
    os.kill(world.pid("w2"), signal.SIGKILL)
    with open_store(f"sqlite://{world.home}/store.db", create=False, patience_s=5.0) as store:
        request_scale(store, world.info.job, 3)
    world.wait_event("worker_exited", worker="w1", signal="SIGKILL")
    world.wait_event("training", count=5)


def test_a_migrated_worker_is_replaced_on_the_wished_device(begin: Begin) -> None:
    world = begin()
    world.wait_event("training")
    request_migrate(world.store, world.info.job, WorkerId("w1"), "n:cpu:3")
    started = world.wait_event("worker_starting", worker="w2")
    assert started.fields["device"] == "cpu:3"
    assert started.fields["reason"] == "to take the place of w1"
    world.wait_event("training", worker="w2")
    wait_for("the wish to be served", lambda: world.picture().view.spec.targets == ())


def test_a_migrated_worker_is_replaced_elsewhere(begin: Begin) -> None:
    world = begin()
    world.wait_event("training")
    request_migrate(world.store, world.info.job, WorkerId("w1"))
    world.wait_event("training", worker="w2")
    assert trained_on(world) == ["cpu:0", "cpu:1"]


def test_a_worker_that_leaves_is_not_replaced(begin: Begin) -> None:
    world = begin(spec=Spec(wanted=2))
    world.wait_event("training", count=2)
    request_leave(world.store, world.info.job, WorkerId("w2"))
    exited = world.wait_event("worker_exited", worker="w2")
    assert (exited.fields["code"], exited.fields["failure"]) == (0, False)
    world.agent.request_stop()
    world.end()
    assert len(world.events("worker_starting")) == 2


def test_a_job_that_fails_again_and_again_ends_and_shows_the_first_traceback(begin: Begin) -> None:
    world = begin("import sys\nraise RuntimeError(f'attempt of {len(sys.argv)}')\n")
    status = world.end()
    assert isinstance(status, JobStatus)
    assert status.phase is JobPhase.FAILED
    start = "the script failed 3 times in a row on cpu:"
    assert status.message.startswith(start)
    assert "w1 ended with an error (exit code 1), see " in status.message
    assert status.message.endswith("RuntimeError: attempt of 1")
    assert world.events("failed")[0].fields == {"reason": status.message}


def test_a_script_that_ends_without_training_fails_too(begin: Begin) -> None:
    status = begin("print('nothing to do')\n").end()
    assert isinstance(status, JobStatus)
    assert status.phase is JobPhase.FAILED
    assert status.message.endswith("w1.log\nnothing to do")


def test_a_job_whose_workers_reach_the_end_of_the_script_finishes(begin: Begin) -> None:
    source = "from agent_entry import life, WorkerPhase\nlife.train(3)\nlife.become(WorkerPhase.FINISHED)\n"
    world = begin(source)
    assert world.end() == JobStatus(
        phase=JobPhase.FINISHED, message="all workers came to the end of the script"
    )


def test_workers_that_do_not_notice_the_jobs_end_are_ended(begin: Begin) -> None:
    stubborn = (
        "import signal, time\nfrom agent_entry import life, JobPhase\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "life.train(1)\nlife.end_job(JobPhase.FINISHED)\ntime.sleep(600)\n"
    )
    world = begin(stubborn)
    assert world.end() == JobStatus(phase=JobPhase.FINISHED, worker=WorkerId("w1"))
    assert world.events("worker_exited")[0].fields["signal"] == "SIGKILL"


def test_asking_twice_ends_all_at_once(begin: Begin) -> None:
    world = begin(DEAF, spec=Spec(wanted=2))
    world.wait_event("training", count=2)
    world.agent.request_stop()
    world.wait_event("stop_requested")
    world.agent.request_stop()
    assert world.end() == JobStatus(
        phase=JobPhase.STOPPED, message="stopped at once, as asked twice; what was not saved is lost"
    )


def test_a_graceful_stop_that_takes_too_long_is_ended(begin: Begin) -> None:
    world = begin(DEAF, stop_grace_s=0.3)
    world.wait_event("training")
    world.agent.request_stop()
    assert world.end() == JobStatus(
        phase=JobPhase.STOPPED,
        message="a graceful stop took more than 0.3 s; what was not saved is lost",
    )


def test_a_job_stopped_while_its_workers_start_ends_at_once(begin: Begin) -> None:
    world = begin("import time\ntime.sleep(600)\n")
    world.wait_event("preparing")
    world.agent.request_stop()
    assert world.end() == JobStatus(phase=JobPhase.STOPPED, message="stopped before the first step")


def test_the_death_of_the_preloaded_parent_stops_nobody(begin: Begin) -> None:
    world = begin()
    world.wait_event("training")
    parents = [c for c in psutil.Process().children() if "elastane.agent.zygote" in c.cmdline()]
    min(parents, key=lambda child: child.create_time()).kill()
    world.wait_event("preloaded_parent_died")
    request_scale(world.store, world.info.job, 2)
    world.wait_event("training", worker="w2")
    assert world.events("worker_exited") == []


def test_a_deleted_job_ends_its_agent_and_its_workers(begin: Begin) -> None:
    world = begin()
    world.wait_event("training")
    pid = world.pid("w1")
    world.store.transact(deletes=[DeletePrefix(prefix=JobKeys(world.info.job).prefix)])
    assert isinstance(world.end(), JobNotFoundError)
    assert is_gone(pid)


def test_cold_workers_are_served_as_well(begin: Begin) -> None:
    world = begin(warm=False)
    world.wait_event("training")
    assert world.events("worker_started")[0].fields["start"] == "cold"


def test_what_the_command_line_says_reaches_the_workers(begin: Begin) -> None:
    source = (
        "from agent_entry import life\nimport os\nc = life.context\n"
        "print(c.virtual_workers, c.checkpoints.keep, c.intra_op_threads, c.lease_ttl_s)\n"
        "print(os.environ['COLOUR'])\n"
        "life.train()\n"
    )
    workers = WorkerSettings(
        virtual_workers=4,
        checkpoints=CheckpointPlan(keep=5),
        intra_op_threads=2,
        lease_ttl_s=9.0,
        environment={"COLOUR": "red"},
    )
    world = begin(source, workers=workers)
    world.wait_event("training")
    assert world.log("w1") == "4 5 2 9.0\nred\n"


RUN_AGENT = """
import sys
from pathlib import Path
from agent_world import World
from elastane.agent.settings import AgentSettings
from elastane.model.records import Spec
world = World.begin(Path(sys.argv[1]), sys.argv[2], Spec(wanted=1), AgentSettings(), start=False)
print(world.info.directory, flush=True)
print(world.agent.run().phase.value, flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_to_the_agents_process_is_a_graceful_stop(tmp_path: Path, number: int) -> None:
    with (
        nothing_left_behind(),
        subprocess.Popen(
            [sys.executable, "-c", RUN_AGENT, str(tmp_path), TRAIN],
            env=worker_environment(),
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        wait_for("training", lambda: any(e.kind == "training" for e in read_events(folder)))
        process.send_signal(number)
        assert process.stdout.read() == "stopped\n"
        assert process.wait() == 0


def test_workers_outlive_a_killed_agent_and_the_next_one_starts_no_more_than_needed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", RUN_AGENT, str(tmp_path), TRAIN],
        env=worker_environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        for kind in ("training", "worker_started"):
            wait_for(kind, lambda kind=kind: any(e.kind == kind for e in read_events(folder)))
        process.kill()
    with open_store(f"sqlite://{tmp_path}/store.db") as store:
        (info,) = list_jobs(store)
    world = World.attach(tmp_path, info, AgentSettings())
    world.thread.start()
    wait_for("the second agent", lambda: len(world.events("agent_started")) == 2)
    request_scale(world.store, world.info.job, 2)
    world.wait_event("training", worker="w2")
    assert world.events("worker_starting")[-1].fields["device"] == DeviceId("cpu:1")
    first = world.pid("w1")
    world.agent.request_stop()
    world.end()
    wait_for("the first worker's end", lambda: is_gone(first))
