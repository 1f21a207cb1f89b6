"""Who builds links beside the running one: each attempt has one outcome, and an old one is thrown away."""

import threading
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from elastane.core.gate import ProposalId
from elastane.model.errors import LinkBrokenError, StoreAddressError
from elastane.model.ids import DeviceId, JobId, NodeId, WorkerId
from elastane.model.topology import Member, Mode, Topology, VrankRange
from elastane.store.open import open_store
from elastane.worker import connector as connector_module
from elastane.worker.connector import Connector
from elastane.worker.context import WorkerContext

PATIENCE_S = 30.0
ME, OTHER = WorkerId("w1"), WorkerId("w2")


class Outcomes:
    """Take what becomes of attempts."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self.told: list[tuple[ProposalId, Any, str]] = []

    def __call__(self, proposal: ProposalId, courier: Any, why: str) -> None:
        with self._condition:
            self.told.append((proposal, courier, why))
            self._condition.notify_all()

    def wait_for(self, count: int) -> list[tuple[ProposalId, Any, str]]:
        with self._condition:
            assert self._condition.wait_for(lambda: len(self.told) >= count, PATIENCE_S)
            return list(self.told)


@pytest.fixture
def outcomes() -> Outcomes:
    return Outcomes()


@pytest.fixture
def connector(outcomes: Outcomes) -> Connector:
    url = f"memory://{uuid.uuid4()}"
    open_store(url).close()
    context = WorkerContext(
        job=JobId("j"),
        worker=ME,
        node=NodeId("n"),
        device=DeviceId("cpu:0"),
        address="10.0.0.1",
        store_url=url,
        directory="/nowhere",
        script="train.py",
    )
    return Connector(context, outcomes)


def generation(number: int, *workers: WorkerId) -> Topology:
    members = tuple(Member(worker=w, vranks=VrankRange(i, i + 1)) for i, w in enumerate(workers))
    return Topology(generation=number, attempt=9, mode=Mode.PLANNED, members=members)


def connecting(monkeypatch: pytest.MonkeyPatch, connect: Callable[..., object]) -> None:
    monkeypatch.setattr(connector_module, "connect_link", connect)


def test_a_lone_peer_and_a_stop_need_no_link(connector: Connector, outcomes: Outcomes) -> None:
    connector.connect(generation(2, ME))
    outcomes.wait_for(1)
    stop = Topology(generation=3, attempt=9, mode=Mode.STOP, members=(), leaving=(ME, OTHER))
    connector.connect(stop)
    assert outcomes.wait_for(2) == [(ProposalId(2, 9), None, ""), (ProposalId(3, 9), None, "")]


def test_a_link_is_built_at_the_place_that_the_proposal_gives_this_worker(
    connector: Connector, outcomes: Outcomes, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[object, ...]] = []

    def connect(store: object, *arguments: object) -> str:
        del store
        asked.append(arguments[:4])
        return "a courier"

    connecting(monkeypatch, connect)
    connector.connect(generation(2, OTHER, ME))
    assert outcomes.wait_for(1) == [(ProposalId(2, 9), "a courier", "")]
    assert asked == [("jobs/j/rendezvous/2.9/", (1, 2), "cpu:0", "10.0.0.1")]


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (LinkBrokenError("w2 did not come"), "w2 did not come"),
        (StoreAddressError("no such store"), "no such store"),
        (RuntimeError("gloo: connection refused"), "gloo: connection refused"),
        (MemoryError(), "MemoryError()"),
        (ValueError("a damaged address"), "a damaged address"),
    ],
)
def test_whatever_keeps_a_link_from_being_built_is_told(
    connector: Connector, outcomes: Outcomes, monkeypatch: pytest.MonkeyPatch, error: Exception, why: str
) -> None:
    def connect(*_: object) -> None:
        raise error

    connecting(monkeypatch, connect)
    connector.connect(generation(2, ME, OTHER))
    assert outcomes.wait_for(1) == [(ProposalId(2, 9), None, why)]


def test_a_thread_that_cannot_be_started_fails_the_attempt_and_not_the_worker(
    connector: Connector, outcomes: Outcomes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    connector.connect(generation(2, ME, OTHER))
    assert outcomes.told == [(ProposalId(2, 9), None, "can't start new thread")]


def test_an_attempt_that_was_given_up_says_nothing_when_it_fails_at_last(
    connector: Connector, outcomes: Outcomes, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, ended = threading.Event(), threading.Event()

    def connect(*arguments: Any) -> str:
        cancelled: threading.Event = arguments[-1]
        if first.is_set():
            return "the second"
        first.set()
        assert cancelled.wait(PATIENCE_S)
        ended.set()
        raise LinkBrokenError("the proposal was dropped")

    connecting(monkeypatch, connect)
    connector.connect(generation(2, ME, OTHER))
    assert first.wait(PATIENCE_S)
    connector.connect(generation(3, ME, OTHER))
    assert ended.wait(PATIENCE_S)
    assert outcomes.wait_for(1) == [(ProposalId(3, 9), "the second", "")]
    connector.cancel()
