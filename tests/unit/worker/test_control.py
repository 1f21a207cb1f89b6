"""What the training thread asks of the control thread, over a real store, without a topology."""

import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from elastane.core.gate import ProposalId
from elastane.core.member import Candidate, LinkPhase, OfferPromise, Quit
from elastane.core.view import encode
from elastane.jobs.registry import NewJob, create_job
from elastane.jobs.requests import read_picture
from elastane.model.errors import LeaseLostError
from elastane.model.ids import DeviceId, NodeId, WorkerId
from elastane.model.records import AgentRecord, JobKeys, Spec
from elastane.model.topology import Member, Mode, Topology, VrankRange
from elastane.observe.events import EventLog
from elastane.store.base import DeleteKey, Put, Store
from elastane.store.open import open_store
from elastane.worker import standing as standing_module
from elastane.worker.context import WorkerContext
from elastane.worker.control import Control

PATIENCE_S = 20.0


@pytest.fixture
def control(tmp_path: Path) -> Iterator[Control]:
    """Return the control of a worker that has registered and waits for nothing."""
    url = f"sqlite://{tmp_path / 'store.db'}"
    script = tmp_path / "train.py"
    script.touch()
    with open_store(url) as store:
        info = create_job(store, tmp_path, NewJob(name="j", script=str(script), spec=Spec(wanted=1)))
    context = WorkerContext(
        job=info.job,
        worker=WorkerId("w1"),
        node=NodeId("n"),
        device=DeviceId("cpu:0"),
        store_url=url,
        directory=info.directory,
        script=str(script),
    )
    events = EventLog(Path(info.directory), "w1")
    started = Control(context, events)
    started.start()
    yield started
    started.leave()
    events.close()


def fail(_: Store) -> None:
    raise ZeroDivisionError("out of luck")


def generation(number: int) -> Topology:
    member = Member(worker=WorkerId("w1"), vranks=VrankRange(0, 1))
    return Topology(generation=number, attempt=7, mode=Mode.RECOVERY, members=(member,), switch_step=0)


def test_whatever_a_call_raises_is_raised_in_the_calling_thread_and_the_next_one_is_answered(
    control: Control,
) -> None:
    with pytest.raises(ZeroDivisionError, match="out of luck"):
        control.call(fail)
    assert control.call(lambda store: type(store).__name__) == "SqliteStore"


def test_a_posted_request_that_fails_is_told_in_the_log(
    control: Control, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="elastane.worker.calls"):
        control.post(fail)
        control.call(lambda store: None)  # answered in order
    assert caplog.messages == ["a request of this worker was not carried out: out of luck"]


def test_a_call_after_the_end_is_refused(control: Control) -> None:
    control.leave()
    with pytest.raises(LeaseLostError, match="has given up its place"):
        control.call(lambda store: None)


def test_a_promise_for_a_later_step_frees_the_thread_that_waits_for_the_one_before(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing_module, "LOOK_AGAIN_S", 3600.0)
    standing, name = control.standing, ProposalId(2, 7)
    waits = threading.Event()

    class Noticed(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            waits.set()
            return super().wait(timeout)

    standing.changed = Noticed()
    standing.gate.generation, standing.gate.seated = 1, True
    standing.gate.offer_promise(name, 5)
    answers: list[object] = []
    thread = threading.Thread(target=lambda: answers.append(standing.await_turn(5)), daemon=True)
    thread.start()
    assert waits.wait(PATIENCE_S)
    with standing.changed:
        standing.stance.carry_out(OfferPromise(name, 8), now_s=time.monotonic())
    thread.join(PATIENCE_S)
    assert answers == [None]


def test_a_worker_that_has_entered_keeps_the_link_that_is_built_for_the_next_generation(
    control: Control,
) -> None:
    standing, newer = control.standing, Candidate(proposal=ProposalId(3, 9), phase=LinkPhase.CONNECTING)
    with standing.changed:
        standing.stance.set_candidate(newer)
    standing.entered(generation(2))
    assert standing.local.candidate == newer


def test_a_worker_that_has_entered_is_through_with_its_candidate(control: Control) -> None:
    standing = control.standing
    with standing.changed:
        standing.stance.set_candidate(Candidate(proposal=ProposalId(2, 7), phase=LinkPhase.CONNECTED))
    standing.entered(generation(2))
    assert standing.local.candidate is None


def test_an_order_to_quit_is_news_once(control: Control) -> None:
    stance = control.standing.stance
    with control.standing.changed:
        assert stance.tell_to_quit(Quit("enough"), now_s=time.monotonic())
        assert not stance.tell_to_quit(Quit("once more"), now_s=time.monotonic())


def test_a_job_is_stopped_only_when_no_node_has_an_agent_any_more(control: Control) -> None:
    keys = JobKeys(control.context.job)
    other = AgentRecord(node=NodeId("m"), pid=1, devices=())

    def is_stopped_after_long_absence(*, of_all: bool) -> bool:
        """Let the worker's last agent have been seen long ago; return whether the job is to stop then."""
        put = Put(key=keys.agent(other.node), value=encode(other))
        control.call(lambda store: store.transact(deletes=[DeleteKey(key=put.key)] if of_all else []))
        control.call(lambda store: store.transact(puts=[] if of_all else [put]))
        deadline_s = time.monotonic() + PATIENCE_S
        while bool(control.view.agents) is of_all and time.monotonic() < deadline_s:
            control.call(lambda store: None)
        control.call(lambda store: setattr(control, "_agent_seen_s", float("-inf")))
        control.call(lambda store: None)  # answered in the next turn
        return control.call(lambda store: read_picture(store, control.context.job).view.spec.stop)

    assert not is_stopped_after_long_absence(of_all=False)
    assert is_stopped_after_long_absence(of_all=True)
