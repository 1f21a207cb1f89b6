"""What people are shown of a job: one value computed from its records, its metrics and its events.

`compute_snapshot` is pure. The command line, the live view and the dashboard all show what it returns,
so they cannot disagree; how it looks is theirs. The fields are documented in `docs/cli.md` and stay.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from elastane.core.view import JobView
from elastane.model.ids import JobId, WorkerId
from elastane.model.records import (
    Connected,
    Failed,
    JobInfo,
    JobPhase,
    Leave,
    MemberRecord,
    Promised,
    Refused,
)
from elastane.model.topology import Topology
from elastane.observe.events import Event, summarise
from elastane.observe.metrics import MetricsRecord

RATE_WINDOW_S = 10.0
"""Training time over which throughput is averaged: steady to read, and fresh within a few looks."""
SUMMARY_EVENTS = 20
"""Events in the summary of a job; the whole log is a command of its own."""
SETTLED = ("switched", "finished", "stopped")
"""Events after which nobody waits any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSnapshot:
    """Show one worker of a job."""

    worker: WorkerId
    phase: str
    """preparing, ready, training, leaving, finished; lost = in the topology, but its record is gone."""
    vranks: tuple[int, int] | None = None
    """First virtual worker it runs and the one after its last; None if it runs none."""
    leader: bool = False
    node: str = ""
    device: str = ""
    pid: int = 0
    generation: int = 0
    committed_step: int = 0
    step_time_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """Show how long a worker took from the request for it until it took part in a step."""

    worker: WorkerId
    latency_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Show one change of topology that was made."""

    generation: int
    at_s: float
    """Wall clock, seconds since the epoch."""
    mode: str = ""
    reason: str = ""
    step: int | None = None
    """The step before which it took effect."""
    workers: int | None = None
    stop_s: float | None = None
    """Longest time that a worker made no progress because of it; None until somebody has said it, and for
    a start, which stops nobody."""
    moved_bytes: int = 0
    joined: tuple[Join, ...] = ()
    left: tuple[WorkerId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Show how fast a job trains, averaged over its last steps of one generation."""

    steps_per_s: float
    samples_per_s: float | None
    """None if the samples of a step are not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSnapshot:
    """Show one job as a whole."""

    job: JobId
    name: str
    script: str
    arguments: tuple[str, ...]
    directory: str
    created_at_s: float
    phase: JobPhase
    message: str
    saved: str | None = None
    """Folder of the state that was saved when the job was stopped; None if none was."""
    digest: str | None = None
    """sha256 of the final state; None unless the job has finished."""
    wanted: int
    minimum: int
    stopping: bool
    virtual_workers: int
    """N; 0 while no worker has said it. Under a batch policy: as many as train."""
    batch: str = ""
    """The batch policy in words; "" if N is fixed."""
    generation: int
    training: int
    """Workers that take part in the present generation and live."""
    step: int
    """Steps committed so far."""
    epoch: int | None
    values: dict[str, float]
    """The values logged last, by name."""
    rates: Rates | None
    shards: tuple[int, int, int] | None = None
    """The epoch's shards that are todo, doing and done; None if none are handed out."""
    workers: tuple[WorkerSnapshot, ...]
    activity: tuple[str, ...]
    """What is changing or waited for now, and why; empty when all is as wanted."""
    changes: tuple[Change, ...] = field(default=())
    events: tuple[Event, ...] = field(default=())


def compute_snapshot(
    info: JobInfo, view: JobView, metrics: Sequence[MetricsRecord], events: Sequence[Event]
) -> JobSnapshot:
    """Put together what is shown of a job.

    Args:
        info: the job's fixed record.
        view: its other records.
        metrics: its last steps, in order; a few hundred are enough.
        events: its events, in order; all of them, if every change is to be shown.
    """
    ended = view.status.phase.ended
    committed = [member.committed_step for member in view.members.values()]
    last = metrics[-1] if metrics else None
    return JobSnapshot(
        job=info.job,
        name=info.name,
        script=info.script,
        arguments=info.arguments,
        directory=info.directory,
        created_at_s=info.created_at_s,
        phase=view.status.phase,
        message=view.status.message,
        saved=view.status.saved,
        digest=view.status.digest,
        wanted=view.spec.wanted,
        minimum=view.spec.minimum,
        stopping=view.spec.stop and not ended,
        virtual_workers=view.count_virtual_workers(len(view.current.members) if view.current else 0),
        batch=view.batch,
        generation=view.current.generation if view.current else 0,
        training=0 if ended or not view.current else _count_alive(view, view.current),
        # Who looks from a node that keeps none of the job's files knows it from the records alone.
        step=max([*committed, view.status.step, last.step + 1 if last else 0]),
        epoch=last.epoch if last else None,
        values=dict(last.values) if last else {},
        rates=None if ended else compute_rates(metrics),
        shards=(last.shards or None) if last else None,
        workers=() if ended else _compute_workers(view),
        activity=()
        if ended
        else (*_describe_activity(view), *_describe_waiting(events, last.at_s if last else 0.0)),
        changes=compute_changes(events),
        events=tuple(events),
    )


def summarise_snapshot(snapshot: JobSnapshot, *, brief: bool = False) -> dict[str, Any]:
    """Return the snapshot as plain data, as `--json` prints it.

    The last events are as flat as `elastane events --json` has them; brief: no changes and no events.
    """
    data: dict[str, Any] = msgspec.to_builtins(replace(snapshot, events=()))
    if brief:
        del data["changes"], data["events"]
    else:
        data["events"] = [dict(summarise(event)) for event in snapshot.events[-SUMMARY_EVENTS:]]
    return data


def compute_rates(metrics: Sequence[MetricsRecord]) -> Rates | None:
    """Return the throughput over the last `RATE_WINDOW_S` of one generation's training.

    The first step of a generation holds the stop time of the change and is not counted, unless the log
    has no other. Only measured durations are added up: a wall clock that is set does not matter.
    """
    if not metrics:
        return None
    of_generation = [record for record in metrics if record.generation == metrics[-1].generation]
    window: list[MetricsRecord] = []
    spent_s = 0.0
    for record in reversed(of_generation[1:] or of_generation):
        if spent_s >= RATE_WINDOW_S:
            break
        window.append(record)
        spent_s += record.step_time_s
    if spent_s <= 0:
        return None
    samples = sum(record.samples for record in window)
    return Rates(
        steps_per_s=len(window) / spent_s,
        samples_per_s=samples / spent_s if all(record.samples for record in window) else None,
    )


def compute_changes(events: Iterable[Event]) -> tuple[Change, ...]:
    """Gather the changes of topology that were made from the events that tell their parts."""
    # A job that is resumed counts its generations anew: runs are told apart by their agent's start.
    changes: dict[tuple[int, int], dict[str, Any]] = {}
    run = 0
    for event in events:
        if event.kind == "agent_started":
            run += 1
        elif event.kind in _PARTS and isinstance(event.fields.get("generation"), int):
            generation = event.fields["generation"]
            parts = changes.setdefault(
                (run, generation), {"generation": generation, "at_s": event.at_s, "joined": (), "left": ()}
            )
            _PARTS[event.kind](parts, event)
    return tuple(Change(**parts) for parts in changes.values())


def _add_committed(parts: dict[str, Any], event: Event) -> None:
    fields = event.fields
    parts["reason"] = str(fields.get("reason", ""))
    parts.setdefault("mode", str(fields.get("mode", "")))
    parts.setdefault("step", fields.get("switch_step"))
    if isinstance(fields.get("members"), dict | list):
        parts.setdefault("workers", len(fields["members"]))


def _add_switched(parts: dict[str, Any], event: Event) -> None:
    fields = event.fields
    parts["at_s"] = event.at_s
    parts["step"] = fields.get("step", parts.get("step"))
    parts["mode"] = str(fields.get("mode", parts.get("mode", "")))
    workers = fields.get("workers")
    parts["workers"] = len(workers) if isinstance(workers, dict | list) else workers
    parts["stop_s"] = max(parts.get("stop_s") or 0.0, fields.get("stop_s") or 0.0)
    parts["moved_bytes"] = max(parts.get("moved_bytes", 0), fields.get("moved_bytes") or 0)


def _add_joined(parts: dict[str, Any], event: Event) -> None:
    join = Join(worker=WorkerId(event.fields["worker"]), latency_s=float(event.fields["latency_s"]))
    parts["joined"] = (*parts["joined"], join)


def _add_left(parts: dict[str, Any], event: Event) -> None:
    parts["left"] = (*parts["left"], WorkerId(event.fields["worker"]))


_PARTS = {"committed": _add_committed, "switched": _add_switched, "joined": _add_joined, "left": _add_left}


def _count_alive(view: JobView, topology: Topology) -> int:
    return sum(view.alive(member.worker) for member in topology.members)


def _compute_workers(view: JobView) -> tuple[WorkerSnapshot, ...]:
    placed = {member.worker: member.vranks for member in view.current.members} if view.current else {}
    others = sorted(worker for worker in view.members if worker not in placed and view.alive(worker))
    return tuple(
        _compute_worker(
            view, worker, (placed[worker].start, placed[worker].stop) if worker in placed else None
        )
        for worker in (*placed, *others)
    )


def _compute_worker(view: JobView, worker: WorkerId, vranks: tuple[int, int] | None) -> WorkerSnapshot:
    if not view.alive(worker):
        return WorkerSnapshot(worker=worker, phase="lost", vranks=vranks)
    member = view.members[worker]
    return WorkerSnapshot(
        worker=worker,
        phase="leaving" if worker in view.spec.leaving else member.phase.value,
        vranks=vranks,
        leader=worker == view.leader,
        node=member.node,
        device=member.device,
        pid=member.pid,
        generation=member.generation,
        committed_step=member.committed_step,
        step_time_s=member.step_time_s,
    )


def _describe_activity(view: JobView) -> Iterator[str]:
    current = {member.worker for member in view.current.members} if view.current else set()
    if not view.agents:
        yield "no agent runs this job: its workers stop and save before long, and nobody replaces them"
    if view.spec.stop:
        yield "stopping: all workers leave at the next boundary and the state is saved"
    if view.proposal:
        yield _describe_proposal(view, view.proposal)
    leaving = view.spec.leaving
    for worker, leave in sorted(leaving.items()):
        if worker in current and view.alive(worker):
            when = "as soon as possible" if leave is Leave.NOW else "when its replacement is ready"
            yield f"{worker} leaves {when}"
    for member in view.members.values():
        if member.worker not in current and view.alive(member.worker):
            yield _describe_newcomer(member)
    there = sum(view.alive(worker) and leaving.get(worker) is not Leave.NOW for worker in view.members)
    if there < view.spec.wanted and not view.spec.stop:
        yield f"{view.spec.wanted} workers are wanted, {there} are there"


def _describe_newcomer(member: MemberRecord) -> str:
    return f"{member.worker} is {member.phase.value} on {member.device}"


def _describe_proposal(view: JobView, proposal: Topology) -> str:
    old = {member.worker for member in view.current.members} if view.current else set()
    new = {member.worker for member in proposal.members}
    who = " ".join([*(f"+{worker}" for worker in sorted(new - old)), *(f"-{w}" for w in sorted(old - new))])
    where = "" if proposal.switch_step is None else f", switch before step {proposal.switch_step}"
    counts = {
        "connected": sum(isinstance(ack, Connected | Promised | Refused) for ack in view.acks.values()),
        "promised": sum(isinstance(ack, Promised) for ack in view.acks.values()),
        "failed": sum(isinstance(ack, Failed) for ack in view.acks.values()),
    }
    said = ", ".join(f"{count} of {len(proposal.peers)} {name}" for name, count in counts.items() if count)
    return (
        f"generation {proposal.generation}: {who or 'virtual workers move'}{where}"
        f"{f' ({said})' if said else ''}{f': {proposal.reason}' if proposal.reason else ''}"
    )


def _describe_waiting(events: Sequence[Event], committed_at_s: float) -> Iterator[str]:
    """Say what the last `waiting` event said, unless a step has been committed since."""
    for event in reversed(events):
        if event.kind in SETTLED or event.at_s < committed_at_s:
            return
        if event.kind == "waiting":
            who = event.fields.get("worker", event.source)
            yield f"{who} waits: {event.fields.get('reason', 'no reason given')}"
            return
