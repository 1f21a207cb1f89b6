"""Short ways to write down the records of a job for the tests of the protocol."""

from typing import Any

from elastane.core.leader import Sight
from elastane.core.placement import plan_even
from elastane.core.view import JobView
from elastane.model.ids import DeviceId, JobId, NodeId, WorkerId
from elastane.model.records import (
    Dismissal,
    ExitRecord,
    JobKeys,
    JobPhase,
    JobStatus,
    MemberRecord,
    ModelSignature,
    Spec,
    WorkerPhase,
)
from elastane.model.topology import Member, Mode, Topology

JOB = JobId("j")
KEYS = JobKeys(JOB)
N = 4
TRAINING, READY, PREPARING, FINISHED = (
    WorkerPhase.TRAINING,
    WorkerPhase.READY,
    WorkerPhase.PREPARING,
    WorkerPhase.FINISHED,
)


def record(
    name: str, phase: WorkerPhase = TRAINING, generation: int | None = None, **more: Any
) -> MemberRecord:
    """Return a member record; who trains or has finished has entered generation 1 unless told otherwise."""
    entered = phase in (TRAINING, FINISHED)
    return MemberRecord(
        worker=WorkerId(name),
        node=NodeId("n"),
        device=DeviceId("cpu:0"),
        pid=1,
        phase=phase,
        virtual_workers=N,
        generation=(1 if entered else 0) if generation is None else generation,
        **more,
    )


def topology(*names: str, generation: int = 1, mode: Mode = Mode.PLANNED, **more: Any) -> Topology:
    """Return a topology of these members with even ranges."""
    ranges = plan_even(N, len(names)) if names else ()
    members = tuple(Member(worker=WorkerId(w), vranks=r) for w, r in zip(names, ranges, strict=True))
    return Topology(generation=generation, mode=mode, members=members, **more)


def view(*records: MemberRecord, wanted: int = 2, **more: Any) -> JobView:
    """Return a picture of a job; parts of the spec may be given by name."""
    spec = Spec(
        wanted=wanted,
        **{k: more.pop(k) for k in ("leaving", "stop", "minimum", "recovery", "speeds") if k in more},
    )
    settings: dict[str, Any] = {
        "revision": 10,
        "signature": ModelSignature(virtual_workers=N, entries=()),
        "status": JobStatus(phase=JobPhase.TRAINING),
        "leader": WorkerId("a"),
    }
    return JobView(spec=spec, members={r.worker: r for r in records}, **{**settings, **more})


def exited(name: str, code: int = -9) -> dict[WorkerId, ExitRecord]:
    """Return the exit record of one worker."""
    return {WorkerId(name): ExitRecord(worker=WorkerId(name), code=code)}


def dismissed(name: str, reason: str = "slow") -> dict[WorkerId, Dismissal]:
    """Return the dismissal of one worker."""
    return {WorkerId(name): Dismissal(reason=reason)}


def sight(now_s: float = 100.0, **more: Any) -> Sight:
    """Return what a leader sees beside the store."""
    return Sight(now_s=now_s, **more)
