"""What the store says about one job at one revision, decoded. The leader and the workers decide on it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec

from elastane.model.ids import JobId, NodeId, WorkerId
from elastane.model.records import (
    Ack,
    AgentRecord,
    Dismissal,
    ExitRecord,
    JobKeys,
    JobPhase,
    JobStatus,
    MemberRecord,
    ModelSignature,
    Roster,
    Slowdown,
    Spec,
)
from elastane.model.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """Show all records of one job at `revision`."""

    revision: int
    spec: Spec
    status: JobStatus = JobStatus(phase=JobPhase.STARTING)  # noqa: RUF009 - frozen
    signature: ModelSignature | None = None
    leader: WorkerId | None = None
    members: Mapping[WorkerId, MemberRecord] = field(default_factory=dict)
    current: Topology | None = None
    proposal: Topology | None = None
    acks: Mapping[WorkerId, Ack] = field(default_factory=dict)
    """Acknowledgements of the present proposal only."""
    exits: Mapping[WorkerId, ExitRecord] = field(default_factory=dict)
    dismissed: Mapping[WorkerId, Dismissal] = field(default_factory=dict)
    agents: Mapping[NodeId, AgentRecord] = field(default_factory=dict)
    """The nodes on which an agent serves the job."""
    rosters: Mapping[NodeId, Roster] = field(default_factory=dict)
    """What the agents say of their workers; also of agents that are gone."""
    slowdowns: Mapping[WorkerId, Slowdown] = field(default_factory=dict)
    """Workers that a drill makes slow."""

    def alive(self, worker: WorkerId) -> bool:
        """Tell whether a worker holds its lease and neither ended nor was dismissed."""
        return worker in self.members and worker not in self.exits and worker not in self.dismissed

    def has_entered(self, worker: WorkerId) -> bool:
        """Tell whether the record of a worker says that it has entered the current generation."""
        record = self.members.get(worker)
        return (
            record is not None and self.current is not None and record.generation >= self.current.generation
        )

    @property
    def is_lost(self) -> bool:
        """Tell whether the job has trained and nobody is left that could hold its state."""
        return self.current is not None and not any(self.alive(w) for w in self.current.peers)

    def has_restored(self, worker: WorkerId) -> bool:
        """Tell whether a worker has loaded the newest checkpoint since the present generation was lost."""
        record = self.members.get(worker)
        return (
            record is not None
            and self.current is not None
            and record.restored_after == self.current.generation
        )

    @property
    def settled(self) -> bool:
        """Tell whether all living members of the current generation (in a stop: leavers) have entered it.

        A generation of which nobody lives is not settled, and never will be.
        """
        if self.current is None:
            return True
        living = [w for w in self.current.awaited if self.alive(w)]
        return bool(living) and all(self.has_entered(w) for w in living)

    @property
    def virtual_workers(self) -> int:
        """Return N of the job; 0 while no worker has said it.

        Under a batch policy N is the number of workers: then this is the largest that it can be.
        """
        if self.signature is not None:
            return self.signature.virtual_workers
        return max((member.virtual_workers for member in self.members.values()), default=0)

    @property
    def batch(self) -> str:
        """Return the job's batch policy in words; "" if its number of virtual workers is fixed."""
        return self.signature.batch if self.signature else ""

    def count_virtual_workers(self, workers: int) -> int:
        """Return N of a generation with so many workers."""
        return workers if self.batch else self.virtual_workers


_MANY: Mapping[str, Any] = {
    "members": MemberRecord,
    "exits": ExitRecord,
    "dismissed": Dismissal,
    "agents": AgentRecord,
    "rosters": Roster,
    "slowdowns": Slowdown,
}
"""Records of which there is one for each worker or node, by the field of the view that has them."""
_RECORDS_KEPT = 4096
"""Decoded records that are kept: of a view that changed in one record all others are known already. As many
as a job with 1,000 workers has, a few megabytes."""


def compute_needed(view: JobView) -> int:
    """Return how many workers the job should have: as many as wanted, at most one per virtual worker."""
    wanted = max(1, view.spec.wanted)
    return min(wanted, view.virtual_workers) if view.virtual_workers else wanted


def build_view(job: JobId, revision: int, entries: Iterable[tuple[str, bytes]]) -> JobView | None:
    """Decode the (key, value) pairs of a job; None if the job has no spec (it was never created)."""
    prefix_length = len(JobKeys(job).prefix)
    raw: dict[str, bytes] = {}
    many: dict[str, dict[Any, Any]] = {kind: {} for kind in _MANY}
    for key, value in entries:
        kind, _, name = key[prefix_length:].partition("/")
        if kind in many:
            many[kind][name] = _decode(value, _MANY[kind])
        else:
            raw[key[prefix_length:]] = value
    if "spec" not in raw:
        return None
    proposal = _one(raw, "topology/next", Topology)
    return JobView(
        revision=revision,
        spec=_decode(raw["spec"], Spec),
        status=_one(raw, "status", JobStatus) or JobStatus(phase=JobPhase.STARTING),
        signature=_one(raw, "signature", ModelSignature),
        leader=WorkerId(raw["leader"].decode()) if "leader" in raw else None,
        current=_one(raw, "topology/current", Topology),
        proposal=proposal,
        acks=_acks_of(raw, proposal) if proposal else {},
        **many,
    )


def encode(record: Any) -> bytes:
    """Encode a record for the store (JSON, so that people can read a store with any tool)."""
    return msgspec.json.encode(record)


def _one(raw: Mapping[str, bytes], key: str, kind: Any) -> Any:
    return _decode(raw[key], kind) if key in raw else None


def _acks_of(raw: Mapping[str, bytes], proposal: Topology) -> dict[WorkerId, Ack]:
    prefix = f"acks/{proposal.generation}.{proposal.attempt}/"
    return {
        WorkerId(key[len(prefix) :]): _decode(value, Ack)
        for key, value in raw.items()
        if key.startswith(prefix)
    }


@lru_cache(maxsize=_RECORDS_KEPT)
def _decode(value: bytes, kind: Any) -> Any:
    return msgspec.json.decode(value, type=kind)
