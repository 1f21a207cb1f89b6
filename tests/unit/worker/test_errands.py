"""The control loop's errands at a real store."""

import pytest

from elastane.core.duty import (
    Outcome,
    ReadRecord,
    RenewLease,
    TakeLead,
    WriteAck,
    WriteDecision,
    WriteRecord,
)
from elastane.core.gate import ProposalId
from elastane.core.leader import Decision
from elastane.core.view import encode
from elastane.model.errors import LeaseLostError
from elastane.model.ids import DeviceId, JobId, NodeId, WorkerId
from elastane.model.records import Connected, JobKeys, MemberRecord, WorkerPhase
from elastane.store.base import Put
from elastane.store.clock import ManualClock
from elastane.store.memory import MemoryStore, MemoryWorld
from elastane.worker.errands import Errands

JOB, ME = JobId("j"), WorkerId("w1")
KEYS = JobKeys(JOB)
RECORD = MemberRecord(worker=ME, node=NodeId("n"), device=DeviceId("cpu:0"), pid=1, phase=WorkerPhase.READY)


class Bench:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(MemoryWorld(self.clock))
        self.errands = Errands(JOB, ME, self.store.grant(3.0))

    def run(self, errand: object) -> Outcome:
        return self.errands.run(self.store, errand)  # type: ignore[arg-type]

    def value(self, key: str) -> bytes | None:
        entry = self.store.get(key)
        return entry.value if entry is not None else None


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_renewed_lease_lives_on_and_a_dead_one_cannot_be_renewed(bench: Bench) -> None:
    bench.clock.advance(2.0)
    assert bench.run(RenewLease()) == Outcome(succeeded=True)
    bench.clock.advance(3.1)
    with pytest.raises(LeaseLostError):
        bench.run(RenewLease())


def test_a_record_is_written_under_the_lease_and_over_what_was_there_only(bench: Bench) -> None:
    first = bench.run(WriteRecord(RECORD, 0))
    assert bench.run(WriteRecord(RECORD, 0)).succeeded is False
    assert bench.run(ReadRecord()) == first
    assert bench.run(WriteRecord(RECORD, first.revision)).succeeded
    bench.clock.advance(3.1)
    assert bench.value(KEYS.member(ME)) is None
    assert bench.run(ReadRecord()) == Outcome(succeeded=False)


def test_a_record_that_hangs_on_another_lease_is_not_the_own_one(bench: Bench) -> None:
    other = Errands(JOB, ME, bench.store.grant(9.0))
    other.run(bench.store, WriteRecord(RECORD, 0))
    assert not bench.run(ReadRecord()).succeeded


def test_an_answer_stands_where_the_leader_looks_for_it(bench: Bench) -> None:
    assert bench.run(WriteAck(ProposalId(2, 9), Connected())).succeeded
    assert bench.value(KEYS.ack(2, 9, ME)) == encode(Connected())


def test_only_one_can_take_the_lead(bench: Bench) -> None:
    assert bench.run(TakeLead()).succeeded
    assert bench.value(KEYS.leader) == b"w1"
    assert not bench.run(TakeLead()).succeeded


def test_a_decision_is_written_as_a_whole_or_not_at_all(bench: Bench) -> None:
    bench.run(TakeLead())
    bench.store.transact(puts=[Put(key=KEYS.ack(1, 1, ME), value=b"{}")])
    decision = Decision(puts={KEYS.proposal: b"next"}, deletes=(KEYS.acks, KEYS.current))
    guards = {KEYS.leader: b"w1", KEYS.proposal: None}
    assert bench.run(WriteDecision(decision, guards)).succeeded
    assert bench.value(KEYS.proposal) == b"next"
    assert bench.value(KEYS.ack(1, 1, ME)) is None
    assert not bench.run(WriteDecision(Decision(puts={KEYS.current: b"x"}), guards)).succeeded
    assert bench.value(KEYS.current) is None
