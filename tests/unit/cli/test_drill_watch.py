"""What drills read from a job's log: whose clock a time is of, and whether the log is written here at all."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_world import A, B, World

from elastane.cli import drill_watch
from elastane.cli.drill_watch import DrillWatch, find_main
from elastane.core.view import encode
from elastane.jobs.requests import read_picture
from elastane.model.ids import DeviceId, NodeId, WorkerId
from elastane.model.records import AgentRecord, JobInfo, JobKeys, MemberRecord, WorkerPhase
from elastane.model.topology import Member, Mode, Topology, VrankRange
from elastane.observe.events import EVENTS_FILE, Event
from elastane.observe.metrics import METRICS_FILE, MetricsRecord, encode_record
from elastane.store.base import Store

N0, N1 = NodeId("n0"), NodeId("n1")
HERE_S = 5000.0
"""Wall clock of this machine; that of the other one is set wrongly."""


class FakeMark:
    """The process of a worker that was found on this machine."""

    def __init__(self, worker: WorkerId) -> None:
        self.worker = worker
        self.released = 0

    def release(self) -> None:
        self.released += 1


class Machine:
    """This machine: which workers run on it, and what its clock says."""

    def __init__(self) -> None:
        self.workers: set[WorkerId] = {A, B}
        self.marks: list[FakeMark] = []
        self.clock_s = HERE_S

    def find(self, folder: Path, worker: WorkerId, pid: int) -> FakeMark | None:
        del folder, pid
        if worker not in self.workers:
            return None
        self.marks.append(FakeMark(worker))
        return self.marks[-1]

    def now_s(self) -> float:
        return self.clock_s


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(drill_watch, "find_worker_process", made.find)
    return made


@pytest.fixture
def info(world: World) -> JobInfo:
    return world.train()


@pytest.fixture
def store(world: World, info: JobInfo) -> Iterator[Store]:
    del info
    with world.store() as opened:
        yield opened


def move(world: World, info: JobInfo, worker: WorkerId, directory: str = "") -> None:
    """Let a worker run on another node, whose agent keeps its files in `directory`."""
    keys = JobKeys(info.job)
    agent = AgentRecord(node=N1, pid=1, devices=(), directory=directory)
    record = MemberRecord(
        worker=worker,
        node=N1,
        device=DeviceId("cpu:0"),
        pid=100,
        phase=WorkerPhase.TRAINING,
        virtual_workers=4,
        generation=2,
        committed_step=41,
    )
    world.put((keys.member(worker), record), (keys.agent(N1), agent))


def write_step(info: JobInfo, step: int, at_s: float, generation: int = 2) -> None:
    record = MetricsRecord(
        step=step,
        epoch=1,
        at_s=at_s,
        generation=generation,
        workers=2,
        step_time_s=0.02,
        samples=64,
        values={},
    )
    with (Path(info.directory) / METRICS_FILE).open("ab") as file:
        file.write(encode_record(record))


def write_event(info: JobInfo, source: str, at_s: float) -> None:
    event = Event(at_s=at_s, kind="switched", source=source)
    with (Path(info.directory) / EVENTS_FILE).open("ab") as file:
        file.write(encode(event) + b"\n")


def follow(store: Store, info: JobInfo, machine: Machine) -> DrillWatch:
    return DrillWatch(store, info, machine.now_s)


def test_the_times_of_a_job_on_one_machine_stay_as_they_are(
    store: Store, info: JobInfo, machine: Machine
) -> None:
    log = follow(store, info, machine)
    log.look()
    write_step(info, 41, 1001.5)
    write_event(info, "agent n0", 1002.0)
    write_event(info, "unknown", 1003.0)
    log.look()
    assert {record.at_s for record in log.metrics} == {1000.0, 1001.5}
    assert [event.at_s for event in log.events] == [1000.0, 1000.5, 1002.0, 1003.0]
    assert log.read_curve() == log.metrics


def test_what_another_host_has_written_happened_when_it_was_seen(
    world: World, store: Store, info: JobInfo, machine: Machine
) -> None:
    machine.workers = {B}
    move(world, info, A)  # the main worker, which writes down the steps
    log = follow(store, info, machine)
    log.look()
    for number, source in enumerate((A, B, "agent n0", "agent n1", "elastane run", "chaos")):
        write_event(info, source, 7.0 + number)
    write_step(info, 41, 9.0)
    machine.clock_s = HERE_S + 1
    log.look()
    machine.clock_s = HERE_S + 2
    assert [event.at_s for event in log.events[-6:]] == [
        HERE_S + 1,  # of the other host
        8.0,
        9.0,
        HERE_S + 1,  # of the other host
        HERE_S + 1,  # of nobody knows which
        12.0,
    ]
    assert (log.metrics[0].at_s, log.metrics[-1].at_s) == (HERE_S, HERE_S + 1)
    assert log.read_curve() == log.metrics


def test_the_steps_of_a_generation_have_the_clock_of_its_main_worker(
    world: World, store: Store, info: JobInfo, machine: Machine
) -> None:
    machine.workers = {A}
    move(world, info, B)
    log = follow(store, info, machine)
    log.look()
    members = (Member(worker=B, vranks=VrankRange(0, 4)),)
    world.put((JobKeys(info.job).current, Topology(generation=3, mode=Mode.PLANNED, members=members)))
    write_step(info, 41, 1001.0)
    write_step(info, 42, 9.0, generation=3)
    write_step(info, 43, 9.0, generation=4)  # the view has not seen it yet
    log.look()
    assert [record.at_s for record in log.metrics[-3:]] == [1001.0, HERE_S, HERE_S]


def test_a_curve_that_is_written_out_of_sight_is_known_by_its_node(
    world: World, store: Store, info: JobInfo, machine: Machine
) -> None:
    log = follow(store, info, machine)
    view = log.look()
    assert (find_main(view), log.find_curve_elsewhere(view), log.has_other_folders(view)) == (A, "", False)
    machine.workers = {B}
    move(world, info, A, directory=info.directory)  # a shared file system
    log = follow(store, info, machine)
    view = log.look()
    assert (log.find_curve_elsewhere(view), log.has_other_folders(view)) == ("", False)
    move(world, info, A, directory="/other")
    view = log.look()
    assert (log.find_curve_elsewhere(view), log.has_other_folders(view)) == (N1, True)


def test_marks_are_of_the_living_and_of_this_machine(
    world: World, store: Store, info: JobInfo, machine: Machine
) -> None:
    machine.workers = {B}
    log = follow(store, info, machine)
    assert [mark.released for mark in machine.marks] == [1]
    marks = log.find_marks(read_picture(store, info.job).view)
    assert list(marks) == [B]
    assert [mark.released for mark in machine.marks] == [1, 0]
