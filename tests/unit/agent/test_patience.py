"""How an agent that starts bears with a store that is out of reach."""

import logging
import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from faulty_store import FaultyStore, Outage

from elastane.agent import agent as agent_module
from elastane.agent import patience as patience_module
from elastane.agent import serve as serve_module
from elastane.agent.agent import Agent
from elastane.agent.launcher import Notice
from elastane.agent.patience import insist
from elastane.agent.serve import Order, serve
from elastane.agent.settings import AgentPlace, AgentSettings
from elastane.core.view import encode
from elastane.jobs.registry import NewJob, create_job
from elastane.model.errors import (
    LeaseLostError,
    StoreAccessError,
    StoreAddressError,
    StoreBusyError,
    StoreError,
    StoreFullError,
    StoreUnreachableError,
)
from elastane.model.ids import DeviceId, JobId, NodeId, WorkerId
from elastane.model.records import JobKeys, JobPhase, JobStatus, Spec
from elastane.observe.events import read_events
from elastane.store.base import Put, Store
from elastane.store.open import open_store
from elastane.worker.context import WorkerContext

NODE = NodeId("n")


def failing(*errors: StoreError) -> Callable[[], str]:
    """Return what fails with one error after the other and then succeeds."""
    left = list(errors)

    def work() -> str:
        if left:
            raise left.pop(0)
        return "done"

    return work


def never(_: float) -> bool:
    return False


@pytest.mark.parametrize("kind", [StoreUnreachableError, StoreBusyError, StoreFullError, LeaseLostError])
def test_what_may_pass_is_waited_for_and_told_once(
    kind: type[StoreError], caplog: pytest.LogCaptureFixture
) -> None:
    told: list[StoreError] = []
    errors = [kind("first"), kind("second")]
    with caplog.at_level(logging.WARNING):
        assert insist(failing(*errors), 60.0, never, told.append) == "done"
    assert told == errors[:1]
    assert caplog.messages == ["the agent waits for the store, for up to 60 s: first"]


@pytest.mark.parametrize("kind", [StoreAddressError, StoreAccessError])
def test_what_does_not_pass_is_told_at_once(kind: type[StoreError]) -> None:
    with pytest.raises(kind):
        insist(failing(kind("no")), 60.0, never)


def test_nobody_waits_beyond_his_patience_or_after_he_was_told_to_stop() -> None:
    for patience_s, stopped in ((0.0, False), (60.0, True)):
        with pytest.raises(StoreUnreachableError):
            insist(failing(StoreUnreachableError("no")), patience_s, lambda _, stopped=stopped: stopped)


def test_who_is_told_of_no_way_to_pause_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience_module, "RETRY_S", 0.0)
    assert insist(failing(StoreUnreachableError("no")), 60.0) == "done"


@dataclass
class IdleLauncher:
    """A launcher that is asked for nothing: the job has ended."""

    closed: int = 0
    pipe: tuple[int, int] = field(default_factory=os.pipe)

    def start(self, context: WorkerContext) -> None:
        raise AssertionError(f"{context.worker} started in a job that has ended")

    def adopt(self, worker: WorkerId, pid: int) -> None:
        raise AssertionError(f"{worker} ({pid}) adopted in a job that has ended")

    def signal(self, worker: WorkerId, signal_number: int) -> None:
        raise AssertionError(f"{worker} was sent {signal_number}")

    def kill(self, worker: WorkerId) -> None:
        raise AssertionError(f"{worker} was killed")

    def fileno(self) -> int:
        return self.pipe[0]

    def poll(self) -> list[Notice]:
        return []

    def find_stopped(self) -> tuple[WorkerId, ...]:
        return ()

    def close(self) -> None:
        self.closed += 1
        for descriptor in self.pipe:
            os.close(descriptor)


@dataclass
class Bench:
    """A job that has ended, in a store that can be taken away."""

    folder: Path
    job: JobId
    url: str
    script: Path
    outage: Outage = field(default_factory=Outage)
    launcher: IdleLauncher = field(default_factory=IdleLauncher)

    def open(self, *_: object, **__: object) -> Store:
        self.outage.check()
        return FaultyStore(open_store(self.url), self.outage)

    def make(self, lifeline: int | None = None, store_patience_s: float = 60.0) -> Agent:
        place = AgentPlace(job=self.job, node=NODE, devices=(DeviceId("cpu:0"),), store_url=self.url)
        return Agent(place, self.launcher, AgentSettings(store_patience_s=store_patience_s), lifeline)

    def kinds(self) -> list[str]:
        return [event.kind for event in read_events(self.folder)]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    url = f"memory://{uuid.uuid4()}"
    script = tmp_path / "train.py"
    script.touch()
    with open_store(url) as store:
        info = create_job(store, tmp_path, NewJob(name="j", script=str(script), spec=Spec(wanted=1)))
        ended = JobStatus(phase=JobPhase.STOPPED, message="over")
        store.transact(puts=[Put(key=JobKeys(info.job).status, value=encode(ended))])
        made = Bench(Path(info.directory), info.job, url, script)
        for module in (agent_module, serve_module):
            monkeypatch.setattr(module, "open_store", made.open)
        monkeypatch.setattr(patience_module, "RETRY_S", 0.0)
        monkeypatch.setattr(agent_module, "RETRY_S", 0.0)
        yield made


@pytest.mark.parametrize("failing_calls", [1, 2, 3, 4, 5, 6, 7, 20])
def test_an_agent_starts_when_the_store_is_back_whatever_failed_meanwhile(
    bench: Bench, failing_calls: int
) -> None:
    bench.outage.failing_calls = failing_calls
    assert bench.make().run() == JobStatus(phase=JobPhase.STOPPED, message="over")
    assert bench.outage.failing_calls == 0
    assert [kind for kind in bench.kinds() if kind != "store_trouble"] == ["agent_started", "agent_ended"]


@pytest.mark.parametrize("seen_before", range(1, 5))
def test_an_agent_starts_though_the_store_goes_away_in_the_middle(bench: Bench, seen_before: int) -> None:
    calls = 0

    class Flaky(Outage):
        def check(self) -> None:
            nonlocal calls
            calls += 1
            if seen_before < calls <= seen_before + 2:
                raise StoreUnreachableError("gone")

    bench.outage = Flaky()
    assert bench.make().run().phase is JobPhase.STOPPED
    assert bench.kinds()[-1] == "agent_ended"


def test_an_agent_whose_registration_was_not_answered_starts_all_the_same(bench: Bench) -> None:
    bench.outage.lost_answers = 1
    assert bench.make().run().phase is JobPhase.STOPPED
    assert bench.kinds() == ["store_trouble", "agent_started", "agent_ended"]


def test_an_agent_that_waited_in_vain_says_why(bench: Bench) -> None:
    bench.outage.away = True
    with pytest.raises(StoreUnreachableError, match="does not answer"):
        bench.make(store_patience_s=0.0).run()
    assert bench.launcher.closed == 1


def test_an_agent_that_nobody_wants_any_more_does_not_wait_on(bench: Bench) -> None:
    bench.outage.away = True
    reader, writer = os.pipe()
    os.write(writer, b"s")
    try:
        with pytest.raises(StoreUnreachableError):
            bench.make(lifeline=reader).run()
    finally:
        os.close(reader)
        os.close(writer)


def test_the_process_that_serves_a_job_waits_for_the_store_before_it_knows_the_job(bench: Bench) -> None:
    order = Order(store_url=bench.url, job=bench.job, home=str(bench.folder), node=NODE, devices="1")
    bench.script.unlink()  # so that it ends as soon as it has read the job
    reader, writer = os.pipe()
    try:
        bench.outage.failing_calls = 3
        with pytest.raises(serve_module.ElastaneError, match="not on this machine"):
            serve(order, reader)
        assert bench.outage.failing_calls == 0
        bench.outage.away = True
        os.write(writer, b"s")
        with pytest.raises(StoreUnreachableError):
            serve(order, reader)
        assert os.read(reader, 9) == b"s"  # it is the agent's to take
    finally:
        os.close(reader)
        os.close(writer)
