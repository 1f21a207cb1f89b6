"""A control thread whose store is taken away: it bears with that, and fences its worker in time."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from faulty_store import FaultyStore, Outage

from elastane.core import stance as stance_module
from elastane.jobs.registry import NewJob, create_job
from elastane.model.errors import LinkBrokenError, StoreUnreachableError
from elastane.model.ids import DeviceId, JobId, NodeId, WorkerId
from elastane.model.records import JobKeys, Spec
from elastane.observe.events import EventLog, read_events
from elastane.store.base import LeaseId, Put, Store
from elastane.store.open import open_store
from elastane.worker import control as control_module
from elastane.worker.context import WorkerContext
from elastane.worker.control import Control
from elastane.worker.following import JobFollower
from elastane.worker.rendezvous import Rendezvous
from elastane.worker.standing import EXIT_FENCED, Left

PATIENCE_S = 60.0


@dataclass
class Bench:
    """A job in a store that can be taken away."""

    folder: Path
    job: JobId
    url: str
    outage: Outage

    def open(self, *_: object, **__: object) -> Store:
        return FaultyStore(open_store(self.url), self.outage)

    def start(self, lease_ttl_s: float) -> Control:
        context = WorkerContext(
            job=self.job,
            worker=WorkerId("w1"),
            node=NodeId("n"),
            device=DeviceId("cpu:0"),
            store_url=self.url,
            directory=str(self.folder),
            script="train.py",
            lease_ttl_s=lease_ttl_s,
        )
        control = Control(context, EventLog(self.folder, "w1"))
        control.start()
        return control

    def await_event(self, kind: str) -> dict[str, Any]:
        found: list[dict[str, Any]] = []

        def look() -> bool:
            found[:] = [dict(e.fields) for e in read_events(self.folder) if e.kind == kind]
            return bool(found)

        await_truth(look)
        return found[0]


def await_truth(look: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not look():
        assert time.monotonic() < deadline_s, "waited in vain"
        time.sleep(0.005)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    url = f"sqlite://{tmp_path / 'store.db'}"
    script = tmp_path / "train.py"
    script.touch()
    with open_store(url) as store:
        info = create_job(store, tmp_path, NewJob(name="j", script=str(script), spec=Spec(wanted=1)))
    made = Bench(Path(info.directory), info.job, url, Outage())
    monkeypatch.setattr(control_module, "open_store", made.open)
    monkeypatch.setattr(stance_module, "EXIT_GRACE_S", 3600.0)  # a busy machine ends no test process
    yield made
    made.outage.away = False


def test_a_store_that_comes_back_within_the_lease_was_hardly_missed(bench: Bench) -> None:
    control = bench.start(lease_ttl_s=120.0)
    bench.outage.away = True
    assert bench.await_event("store_trouble")["reason"] == "the store does not answer"
    answers: list[str] = []
    asking = threading.Thread(target=lambda: answers.append(control.call(lambda s: type(s).__name__)))
    asking.start()
    control.check_lease()
    control.standing.announce_ready(4, 0)
    bench.outage.away = False
    assert bench.await_event("store_back")["away_s"] > 0
    asking.join(PATIENCE_S)
    assert answers == ["FaultyStore"]
    await_truth(lambda: control.view.members[WorkerId("w1")].virtual_workers == 4)
    control.leave()
    assert not [e for e in read_events(bench.folder) if e.kind in ("fenced", "told_to_quit")]


def test_a_worker_whose_lease_runs_out_meanwhile_fences_itself_and_says_why(bench: Bench) -> None:
    control = bench.start(lease_ttl_s=0.6)
    bench.outage.away = True
    reason = bench.await_event("fenced")["reason"]
    assert "the lease of 0.6 s has run out" in reason
    assert "the store does not answer" in reason
    bench.await_event("told_to_quit")
    for ask in (
        control.standing.begin_commit,
        lambda: control.standing.await_turn(0),
        lambda: control.call(lambda _: None),
    ):
        with pytest.raises(Left) as left:
            ask()
        assert left.value.code == EXIT_FENCED
    control.leave()


def test_a_worker_that_starts_while_the_store_is_away_registers_when_it_is_back(bench: Bench) -> None:
    bench.outage.away = True
    started: list[Control] = []
    starting = threading.Thread(target=lambda: started.append(bench.start(lease_ttl_s=120.0)))
    starting.start()
    bench.outage.away = False
    starting.join(PATIENCE_S)
    assert set(started[0].view.members) == {"w1"}
    started[0].leave()


def test_a_worker_whose_record_was_written_and_not_answered_registers_under_the_same_lease(
    bench: Bench,
) -> None:
    bench.outage.lost_answers = 1
    control = bench.start(lease_ttl_s=120.0)
    with open_store(bench.url) as store:
        entry = store.get(JobKeys(bench.job).member(WorkerId("w1")))
    assert entry is not None
    assert control.call(lambda s: s.renew(entry.lease)) is None  # type: ignore[arg-type]
    control.leave()
    with open_store(bench.url) as store:
        assert store.get(JobKeys(bench.job).member(WorkerId("w1"))) is None


def test_a_worker_whose_lease_runs_out_while_it_registers_takes_another(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[LeaseId] = []

    class Hasty(FaultyStore):
        """A store in which the first lease is gone at once."""

        def grant(self, ttl_s: float) -> LeaseId:
            lease = super().grant(ttl_s)
            if not given:
                self.revoke(lease)
            given.append(lease)
            return lease

    monkeypatch.setattr(
        control_module, "open_store", lambda *_, **__: Hasty(open_store(bench.url), bench.outage)
    )
    control = bench.start(lease_ttl_s=120.0)
    assert (len(given), set(control.view.members)) == (2, {"w1"})
    control.leave()


def test_a_worker_that_can_never_register_does_not_start(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_module, "START_PATIENCE_S", 0.0)
    bench.outage.away = True
    with pytest.raises(StoreUnreachableError):
        bench.start(lease_ttl_s=3.0)


def test_a_follower_reads_everything_anew_after_an_outage(bench: Bench) -> None:
    keys = JobKeys(bench.job)
    with bench.open() as store, JobFollower(store, bench.job) as follower:
        assert follower.view() is not None
        bench.outage.away = True
        with pytest.raises(StoreUnreachableError):
            follower.view()
        bench.outage.away = False
        store.transact(puts=[Put(key=keys.leader, value=b"w9")])
        view = follower.view()
        assert view is not None
        assert view.leader == "w9"


def test_a_rendezvous_bears_with_an_outage_until_its_time_is_up(bench: Bench) -> None:
    with bench.open() as store:
        rendezvous = Rendezvous(store, "link/", timeout_s=0.05)
        bench.outage.away = True
        with pytest.raises(LinkBrokenError, match="out of reach while the members connected"):
            rendezvous.set("0", b"here")
        bench.outage.away = False
        patient = Rendezvous(store, "link/", timeout_s=PATIENCE_S)
        bench.outage.away = True
        back = threading.Timer(0.05, lambda: setattr(bench.outage, "away", False))
        back.start()
        patient.set("0", b"here")
        assert patient.get("0") == b"here"
        patient.close()
