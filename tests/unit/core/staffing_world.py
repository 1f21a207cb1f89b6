"""A node and a job: workers w1, w2, ... on devices cpu:0, cpu:1, ..."""

from dataclasses import replace

from elastane.core.staffing import (
    NodeState,
    StaffingPlan,
    StaffingSettings,
    WorkerProcess,
    plan_staffing,
)
from elastane.core.view import JobView
from elastane.model.ids import DeviceId, NodeId, WorkerId
from elastane.model.records import (
    MemberRecord,
    Spec,
    WorkerPhase,
)
from elastane.model.topology import Member, Mode, Topology, VrankRange

SETTINGS = StaffingSettings()
NODE = NodeId("n")
PREPARING, READY, TRAINING, FINISHED = WorkerPhase


def member(name: str, phase: WorkerPhase = TRAINING, *, node: str = "n", device: str = "") -> MemberRecord:
    return MemberRecord(
        worker=WorkerId(name),
        node=NodeId(node),
        device=DeviceId(device or f"cpu:{int(name[1:]) - 1}"),
        pid=1,
        phase=phase,
    )


def view(*members: MemberRecord, wanted: int = 2, **changes: object) -> JobView:
    spec_changes = {k: changes.pop(k) for k in ("leaving", "targets", "stop") if k in changes}
    spec = Spec(wanted=wanted, **spec_changes)
    return JobView(revision=1, spec=spec, members={m.worker: m for m in members}, **changes)


def process(name: str, phase: WorkerPhase | None = TRAINING, **changes: object) -> WorkerProcess:
    device = DeviceId(f"cpu:{int(name[1:]) - 1}")
    made = WorkerProcess(worker=WorkerId(name), device=device, started_at_s=float(name[1:]), last_phase=phase)
    return replace(made, **changes)


def node(*processes: WorkerProcess, devices: int = 4, **changes: object) -> NodeState:
    return NodeState(
        node=NODE,
        devices=tuple(DeviceId(f"cpu:{i}") for i in range(devices)),
        processes={p.worker: p for p in processes},
        **changes,
    )


def topology(*names: str, mode: Mode = Mode.PLANNED) -> Topology:
    members = tuple(Member(worker=WorkerId(w), vranks=VrankRange(i, i + 1)) for i, w in enumerate(names))
    return Topology(generation=1, mode=mode, members=members)


def plan(seen: JobView, here: NodeState, now_s: float = 100.0) -> StaffingPlan:
    return plan_staffing(seen, here, now_s, SETTINGS)


def started_on(made: StaffingPlan) -> list[str]:
    return [start.device for start in made.starts]
