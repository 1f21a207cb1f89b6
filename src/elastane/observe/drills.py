"""What a drill did to a job: read from its metrics and its events, as anybody could read them afterwards.

Pure. A drill is harmless if the job committed its next step, repeated at most the step in flight, lost no
other worker and has a loss curve without a gap.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from elastane.core.drills import Harm, Target
from elastane.observe.events import Event
from elastane.observe.metrics import MetricsRecord

REPEATED_AT_MOST = 1
"""Steps that a death may cost: one that the dead worker alone had committed and logged comes once more, with
the same result (docs/protocol.md, "What is not guaranteed")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """Hold one act of harm: what, to whom, when (wall clock)."""

    number: int
    harm: Harm
    at_s: float
    target: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillResult:
    """Hold what came of one drill.

    Attributes:
        drill: what was done.
        step: the first step that had not been committed then; None if none ever was.
        part_of_step: how much of a step's time had passed since the last commit; None if not known.
        next_commit_s: until the next step was committed by those who were left; None: none was.
        steps_repeated: steps that had been committed and were trained again.
        workers_back_s: until as many workers trained as are wanted; None: not by the end.
        also_lost: workers beside the victim whose processes failed before the next drill.
        trouble: what went wrong, in words; empty if nothing did.
    """

    drill: Drill
    step: int | None
    part_of_step: float | None
    next_commit_s: float | None
    steps_repeated: int
    workers_back_s: float | None
    also_lost: tuple[str, ...]
    trouble: tuple[str, ...]

    @property
    def harmless(self) -> bool:
        """Tell whether the job trains on as if nothing had been."""
        return not self.trouble


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillReport:
    """Hold what came of all drills.

    Attributes:
        results: one for each drill.
        first_step: first step that the job committed during the drills; None if there was none.
        last_step: the last one.
        missing_steps: steps between them that the loss curve lacks.
        trouble: what went wrong beside the single drills.
    """

    results: tuple[DrillResult, ...]
    first_step: int | None
    last_step: int | None
    missing_steps: int
    trouble: tuple[str, ...]

    @property
    def harmless(self) -> bool:
        """Tell whether the job trains on as if nothing had been."""
        return not self.trouble and all(result.harmless for result in self.results)


def judge_drills(
    drills: Sequence[Drill], metrics: Sequence[MetricsRecord], events: Sequence[Event]
) -> DrillReport:
    """Say what came of the drills.

    Args:
        drills: in their order.
        metrics: the job's steps from a little before the first drill on, each once and in order.
        events: the job's events, in order.
    """
    ends_s = [drill.at_s for drill in drills[1:]] + [float("inf")] * bool(drills)
    struck = {str(drill.target.worker) for drill in drills}
    results = tuple(
        _judge(drill, metrics, [e for e in events if drill.at_s <= e.at_s], end_s, struck)
        for drill, end_s in zip(drills, ends_s, strict=True)
    )
    missing = sum(later.step - earlier.step - 1 for earlier, later in pairwise(metrics))
    begun_s = drills[0].at_s if drills else float("inf")
    failed = [e for e in events if e.kind == "failed" and e.at_s >= begun_s]
    trouble = [f"the job failed: {event.fields.get('reason', 'no reason given')}" for event in failed]
    if missing:
        trouble.append(f"the loss curve lacks {missing} steps")
    return DrillReport(
        results=results,
        first_step=metrics[0].step if metrics else None,
        last_step=metrics[-1].step if metrics else None,
        missing_steps=missing,
        trouble=tuple(trouble),
    )


def find_next_commit(drill: Drill, metrics: Sequence[MetricsRecord]) -> MetricsRecord | None:
    """Return the first step committed after a drill; None if there is none yet.

    The others cannot commit without a member before they have formed a generation without it. What they
    commit in the old one had been under way.
    """
    older = drill.target.generation if drill.target.seated else -1
    return next((r for r in metrics if r.at_s >= drill.at_s and r.generation > older), None)


def find_workers_back(drill: Drill, events: Sequence[Event]) -> float | None:
    """Return the wall clock at which all that are wanted trained again; None if they do not yet.

    Args:
        drill: what was done.
        events: the job's events after it, in order.
    """
    for event in events:
        members = event.fields.get("members")
        if event.kind != "committed" or not isinstance(members, dict):
            continue
        if len(members) < drill.target.wanted or drill.target.worker in members:
            continue
        generation = event.fields["generation"]
        entries = [e.at_s for e in events if _enters(e, generation)]
        return max(entries) if entries else None
    return None


def _enters(event: Event, generation: int) -> bool:
    return event.kind in ("joined", "switched") and event.fields.get("generation") == generation


def _judge(
    drill: Drill,
    metrics: Sequence[MetricsRecord],
    events: Sequence[Event],
    end_s: float,
    struck: set[str],
) -> DrillResult:
    before = [record for record in metrics if record.at_s < drill.at_s]
    next_commit = find_next_commit(drill, metrics)
    repeated = _count_repeated(drill, metrics, events)
    also_lost = tuple(
        str(event.fields.get("worker"))
        for event in events
        if event.kind == "worker_exited"
        and event.at_s < end_s
        and event.fields.get("failure")
        and event.fields.get("worker") not in struck
    )
    trouble = []
    finished = any(event.kind == "finished" for event in events)
    if next_commit is None and not finished:
        trouble.append("no step was committed afterwards")
    if repeated > REPEATED_AT_MOST:
        trouble.append(f"{repeated} committed steps were trained again")
    if also_lost:
        trouble.append(f"{', '.join(also_lost)} ended as well")
    back_s = find_workers_back(drill, events)
    return DrillResult(
        drill=drill,
        step=before[-1].step + 1 if before else None,
        part_of_step=_compute_part(drill, before),
        next_commit_s=None if next_commit is None else next_commit.at_s - drill.at_s,
        steps_repeated=repeated,
        workers_back_s=None if back_s is None else back_s - drill.at_s,
        also_lost=also_lost,
        trouble=tuple(trouble),
    )


def _count_repeated(drill: Drill, metrics: Sequence[MetricsRecord], events: Sequence[Event]) -> int:
    """Count the steps that were trained again: logged in an older generation than the one that went on."""
    restored = next((e for e in events if e.kind == "restored"), None)
    if restored is not None:  # the log was cut back to the checkpoint
        return int(restored.fields.get("repeated") or 0)
    recovery = next((e for e in events if e.kind == "committed" and e.fields.get("mode") != "planned"), None)
    if recovery is None or recovery.fields.get("switch_step") is None or not drill.target.seated:
        return 0
    generation, step = recovery.fields["generation"], recovery.fields["switch_step"]
    return sum(1 for r in metrics if r.generation < generation and r.step >= step)


def _compute_part(drill: Drill, before: Sequence[MetricsRecord]) -> float | None:
    if not before or before[-1].step_time_s <= 0:
        return None
    return (drill.at_s - before[-1].at_s) / before[-1].step_time_s
