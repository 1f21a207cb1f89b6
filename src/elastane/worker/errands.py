"""Run the control loop's errands at the store. What errands there are, and why, is in `core.duty`."""

from dataclasses import dataclass

from elastane.core.duty import (
    Errand,
    Outcome,
    ReadRecord,
    RenewLease,
    TakeLead,
    WriteAck,
    WriteDecision,
    WriteRecord,
)
from elastane.core.view import encode
from elastane.model.ids import JobId, WorkerId
from elastane.model.records import JobKeys
from elastane.store.base import (
    Absent,
    Compare,
    Delete,
    DeleteKey,
    DeletePrefix,
    LeaseId,
    ModRevisionIs,
    Put,
    Store,
    ValueIs,
)


@dataclass(frozen=True, slots=True)
class Errands:
    """Run the errands of one worker, whose records hang on `lease`."""

    job: JobId
    worker: WorkerId
    lease: LeaseId

    def run(self, store: Store, errand: Errand) -> Outcome:
        """Run one errand.

        Raises:
            LeaseLostError: the lease has expired or was revoked.
            StoreError: the store cannot be reached, or refuses.
        """
        keys = JobKeys(self.job)
        member = keys.member(self.worker)
        match errand:
            case RenewLease():
                store.renew(self.lease)
                return Outcome(succeeded=True)
            case WriteRecord(record, over):
                put = Put(key=member, value=encode(record), lease=self.lease)
                return _transact(store, [ModRevisionIs(key=member, revision=over)], [put])
            case ReadRecord():
                entry = store.get(member)
                own = entry is not None and entry.lease == self.lease
                return Outcome(succeeded=own, revision=entry.mod_revision if entry is not None else 0)
            case WriteAck(proposal, ack):
                key = keys.ack(proposal.generation, proposal.attempt, self.worker)
                return _transact(store, [], [Put(key=key, value=encode(ack), lease=self.lease)])
            case TakeLead():
                put = Put(key=keys.leader, value=self.worker.encode(), lease=self.lease)
                return _transact(store, [Absent(key=keys.leader)], [put])
            case WriteDecision():
                return _write_decision(store, errand)


def _write_decision(store: Store, errand: WriteDecision) -> Outcome:
    decision = errand.decision
    guards: list[Compare] = [
        ValueIs(key=key, value=value) if value is not None else Absent(key=key)
        for key, value in errand.guards.items()
    ]
    puts = [Put(key=key, value=value) for key, value in decision.puts.items()]
    deletes: list[Delete] = [
        DeletePrefix(prefix=key) if key.endswith("/") else DeleteKey(key=key) for key in decision.deletes
    ]
    return _transact(store, guards, puts, deletes)


def _transact(
    store: Store, guards: list[Compare], puts: list[Put], deletes: list[Delete] | None = None
) -> Outcome:
    result = store.transact(guards, puts, deletes or ())
    return Outcome(succeeded=result.succeeded, revision=result.revision)
