"""What each join of a worker cost and on what, read from the events of its job. Pure.

A worker measures the phases of its own start by the monotonic clock of its machine, on which its agent has
asked for it, so no clocks of two machines are compared. The phases follow each other without a gap: their sum
is the join latency.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from statistics import median
from typing import Any

from elastane.model.ids import WorkerId
from elastane.observe.events import Event


class JoinPhase(StrEnum):
    """Name the phases of a join, in their order."""

    SPAWN = "spawn"
    """From the agent's wish for a worker until its process runs code of ours."""
    IMPORT = "import"
    """Until the script makes its `elastane.Job`: imports, and whatever else stands before that."""
    DEVICE = "device"
    """Until the device can be used."""
    BUILD = "build"
    """Until the script comes to its loop: model, optimizer, data."""
    WARM_UP = "warm_up"
    """Until the worker says ready: signatures compared, steps rehearsed, or a checkpoint loaded."""
    CONNECT = "connect"
    """Until the link stands in which it joins: the proposal, and the connection with all peers."""
    AGREE = "agree"
    """Until the switch: promises, and the steps that the others train up to it."""
    TRANSFER = "transfer"
    """Until it has the job's state and a seat."""


class JoinOutcome(StrEnum):
    """Say what became of a join."""

    JOINED = "joined"
    UNDER_WAY = "under way"
    GONE = "gone"
    """The worker ended before it took part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinReport:
    """Tell what one join cost.

    Attributes:
        worker: who joined.
        device: on which device of which node, as far as is known: "NODE/DEVICE".
        start: "warm" (forked from a prepared process), "cold" or "" while that is not known.
        outcome: what became of it.
        asked_at_s: wall clock at which its agent began to start it.
        phases: seconds of each phase that has ended, in order, as the worker measured them.
        latency_s: from then until it had a seat; None if it never had one.
        generation: which it joined.
        moved_bytes: state that was moved for all that joined with it.
    """

    worker: WorkerId
    device: str = ""
    start: str = ""
    outcome: JoinOutcome = JoinOutcome.UNDER_WAY
    asked_at_s: float
    phases: dict[JoinPhase, float] = field(default_factory=dict)
    latency_s: float | None = None
    generation: int | None = None
    moved_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinSummary:
    """Hold the medians over all joins that came to their end.

    Attributes:
        joined: how many.
        warm, cold: how they were started.
        latency_s: median; None if there was none.
        phases: median of each phase that any of them measured, in order.
    """

    joined: int
    warm: int
    cold: int
    latency_s: float | None
    phases: dict[JoinPhase, float]

    @property
    def costliest(self) -> JoinPhase | None:
        """Return the phase with the largest median; None if nothing was measured."""
        return max(self.phases, key=lambda phase: self.phases[phase], default=None)


def compute_joins(events: Iterable[Event]) -> tuple[JoinReport, ...]:
    """Return what each worker's join cost, in the order in which the workers were asked for.

    Events of a version that told no phases give reports without them. Worker ids are never used again, so
    those of all runs of a job go together.
    """
    reports: dict[WorkerId, JoinReport] = {}
    moved: dict[int, int] = {}  # of each generation: they are numbered on over all runs of a job
    for event in events:
        fields = event.fields
        if event.kind == "switched":
            moved[int(fields.get("generation") or 0)] = int(fields.get("moved_bytes") or 0)
        elif event.kind in _STAGES and fields.get("worker"):
            worker = WorkerId(fields["worker"])
            before = reports.get(worker, JoinReport(worker=worker, asked_at_s=event.at_s))
            reports[worker] = _STAGES[event.kind](before, event)
    return tuple(
        report if report.generation is None else replace(report, moved_bytes=moved.get(report.generation, 0))
        for report in reports.values()
    )


def summarise_joins(reports: Sequence[JoinReport]) -> JoinSummary:
    """Return the medians over the joins that came to their end."""
    done = [report for report in reports if report.outcome is JoinOutcome.JOINED]
    latencies_s = [report.latency_s for report in done if report.latency_s is not None]
    measured = {phase: [r.phases[phase] for r in done if phase in r.phases] for phase in JoinPhase}
    return JoinSummary(
        joined=len(done),
        warm=sum(report.start == "warm" for report in done),
        cold=sum(report.start == "cold" for report in done),
        latency_s=median(latencies_s) if latencies_s else None,
        phases={phase: median(seconds) for phase, seconds in measured.items() if seconds},
    )


def _starting(report: JoinReport, event: Event) -> JoinReport:
    node = event.source.removeprefix("agent ") if event.source.startswith("agent ") else ""
    device = str(event.fields.get("device", ""))
    return replace(report, asked_at_s=event.at_s, device=f"{node}/{device}" if node and device else device)


def _started(report: JoinReport, event: Event) -> JoinReport:
    return replace(report, start=str(event.fields.get("start", "")))


def _ready(report: JoinReport, event: Event) -> JoinReport:
    return replace(report, phases=_read_phases(event.fields) or report.phases)


def _joined(report: JoinReport, event: Event) -> JoinReport:
    latency_s = event.fields.get("latency_s")
    return replace(
        report,
        outcome=JoinOutcome.JOINED,
        phases=_read_phases(event.fields) or report.phases,
        latency_s=latency_s,
        generation=event.fields.get("generation"),
        # The event of the start is written a moment after the clock was read.
        asked_at_s=event.at_s - latency_s if latency_s is not None else report.asked_at_s,
    )


def _gone(report: JoinReport, event: Event) -> JoinReport:
    del event
    joined = report.outcome is JoinOutcome.JOINED
    return report if joined else replace(report, outcome=JoinOutcome.GONE)


def _read_phases(fields: dict[str, Any]) -> dict[JoinPhase, float]:
    told = fields.get("phases")
    if not isinstance(told, dict):
        return {}
    return {phase: float(told[phase.value]) for phase in JoinPhase if phase.value in told}


_STAGES = {
    "worker_starting": _starting,
    "worker_started": _started,
    "worker_ready": _ready,
    "joined": _joined,
    "worker_start_failed": _gone,
    "worker_exited": _gone,
}
"""What each kind of event says of a join."""
