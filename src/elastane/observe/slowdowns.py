"""What became of workers that a drill made slow: read from the job's metrics and events.

Pure. Four spells of a drill are told apart: *before*; *slow*, until the job has answered; *answered*, from
the last change of workers during the drill on; *afterwards*, when nobody is slow any more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

from elastane.core.stragglers import DetectorSettings
from elastane.observe.events import Event
from elastane.observe.metrics import MetricsRecord

WINDOW_STEPS = 50
"""Steps at most whose median is a throughput: one disturbed step among them is not seen."""
SETTLING_STEPS = 3
"""Steps after a change that are left out, as the detector leaves them out."""
SURELY_FOUND_STEPS = 50
"""On a noisy machine a worker at 75 % of the speed is found after 20 to 50 steps (docs/stragglers.md)."""
UNEQUAL = 1.05
"""Measured speeds that differ by less count as equal (`core.stragglers.level_speeds`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowDrill:
    """Hold what was done, and when by the wall clock.

    Attributes:
        drill: its name in the workers' events.
        factors: how many times as long each of these workers computes.
        processes: busy processes beside the job.
        begun_s, ended_s: from when until when.
        unseen: of them, those whose events are written where nobody sees them: they are taken to be slow from
            the beginning on.
        findable: somebody looks after slow workers, and there is one of full speed to compare them with.
    """

    drill: str
    factors: Mapping[str, float]
    processes: int = 0
    begun_s: float
    ended_s: float
    unseen: frozenset[str] = frozenset()
    findable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowed:
    """Hold what became of one slow worker.

    Attributes:
        worker: its id.
        factor: how many times as long it computed.
        steps: committed while it was slow.
        found_after: steps until it was found; None if it was not.
        found_by: the detector; `speeds` if a placement by measured speeds came first.
        answer: what was done: rebalance, replace, evict, bear, or "" for nothing.
        answered_after: steps until the workers changed; None if they did not.
        reason: in the words of the decision.
    """

    worker: str
    factor: float
    steps: int
    found_after: int | None = None
    found_by: str = ""
    answer: str = ""
    answered_after: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Hold the throughput of each spell: samples (or steps, if samples are not known) per second; None if
    it was too short."""

    before: float | None = None
    slow: float | None = None
    answered: float | None = None
    afterwards: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowReport:
    """Hold what came of the drill.

    Attributes:
        slowed: one for each slow worker.
        accused: workers called slow that the drill did not touch.
        pace: the job's throughput.
        steps: committed during the drill.
        missing_steps: steps that the loss curve lacks.
        trouble: what went wrong, in words.
    """

    slowed: tuple[Slowed, ...]
    accused: tuple[str, ...]
    pace: Pace
    steps: int
    missing_steps: int = 0
    trouble: tuple[str, ...] = field(default=())

    @property
    def passed(self) -> bool:
        """Tell whether the job trained on and its settings did what they are for."""
        return not self.trouble


def judge_slow_drill(
    drill: SlowDrill, metrics: Sequence[MetricsRecord], events: Sequence[Event]
) -> SlowReport:
    """Say what came of the drill.

    Args:
        drill: what was done.
        metrics: the job's steps from a little before it on, each once and in order.
        events: the job's events, in order.
    """
    during = [event for event in events if drill.begun_s <= event.at_s <= drill.ended_s]
    slowed = tuple(_judge_worker(worker, drill, metrics, during) for worker in drill.factors)
    told = {str(w) for event in during if event.kind == "straggler" for w in _suspects(event)}
    missing = sum(later.step - earlier.step - 1 for earlier, later in pairwise(metrics))
    return SlowReport(
        slowed=slowed,
        accused=tuple(sorted(told - set(drill.factors))),
        pace=_measure_pace(drill, metrics, during),
        steps=_count(metrics, drill.begun_s, drill.ended_s),
        missing_steps=missing,
        trouble=(*_find_trouble(drill, slowed, during), *_find_losses(missing, drill, events)),
    )


def _judge_worker(
    worker: str, drill: SlowDrill, metrics: Sequence[MetricsRecord], during: Sequence[Event]
) -> Slowed:
    factor = drill.factors[worker]
    begun_s = _find_begin(worker, drill, during)
    if begun_s is None:
        return Slowed(worker=worker, factor=factor, steps=0)
    ended_s = next(
        (e.at_s for e in during if e.at_s >= begun_s and _ends(e, worker, drill.drill)), drill.ended_s
    )
    told = [e for e in during if e.kind == "straggler" and e.at_s >= begun_s and _names(e, worker)]
    deeds = [e for e in told if e.fields.get("action") != "bear"]
    steps = _count(metrics, begun_s, ended_s)
    if not told:
        return Slowed(worker=worker, factor=factor, steps=steps)
    deed = deeds[0] if deeds else told[0]
    switch = next((e for e in during if deeds and e.kind == "switched" and e.at_s >= deed.at_s), None)
    return Slowed(
        worker=worker,
        factor=factor,
        steps=steps,
        found_after=_count(metrics, begun_s, told[0].at_s),
        found_by=str(told[0].fields.get("found_by", "")),
        answer=str(deed.fields.get("action", "")),
        answered_after=None if switch is None else _count(metrics, begun_s, switch.at_s),
        reason=str(deed.fields.get("reason", "")),
    )


def _find_begin(worker: str, drill: SlowDrill, during: Sequence[Event]) -> float | None:
    """Return when the worker began to obey; None if it never did."""
    if worker in drill.unseen:
        return drill.begun_s
    return next(
        (
            e.at_s
            for e in during
            if e.kind == "slowed"
            and e.fields.get("worker") == worker
            and e.fields.get("drill") == drill.drill
        ),
        None,
    )


def _ends(event: Event, worker: str, drill: str) -> bool:
    """Tell whether a worker is slow no more: since the drill ended, not another one before, or it left."""
    if event.fields.get("worker") != worker:
        return False
    return event.kind == "left" or (event.kind == "slowed_no_more" and event.fields.get("drill") == drill)


def _suspects(event: Event) -> Sequence[Any]:
    named = event.fields.get("suspects")
    return named if isinstance(named, list) else ()


def _names(event: Event, worker: str) -> bool:
    """Tell whether a decision is about a worker: as a suspect, or as one that was measured to be slow."""
    if worker in _suspects(event) or worker in (event.fields.get("workers") or ()):
        return True
    slowness = event.fields.get("slowness")
    measured = slowness.get(worker, 1.0) if isinstance(slowness, dict) else 1.0
    return event.fields.get("action") == "rebalance" and float(measured) > UNEQUAL


def _count(metrics: Sequence[MetricsRecord], after_s: float, until_s: float) -> int:
    return sum(1 for record in metrics if after_s < record.at_s <= until_s)


def _measure_pace(drill: SlowDrill, metrics: Sequence[MetricsRecord], during: Sequence[Event]) -> Pace:
    begins = [_find_begin(worker, drill, during) for worker in drill.factors]
    begun_s = min((begin for begin in begins if begin is not None), default=drill.begun_s)
    switches = [e for e in during if e.kind == "switched" and e.at_s >= begun_s]
    first_s, last_s = (switches[0].at_s, switches[-1].at_s) if switches else (drill.ended_s, None)
    return Pace(
        before=_throughput([r for r in metrics if r.at_s <= begun_s][-WINDOW_STEPS:]),
        # The step in flight when it began was slow in part only.
        slow=_throughput([r for r in metrics if begun_s < r.at_s <= first_s][1:]),
        answered=None
        if last_s is None
        else _throughput([r for r in metrics if last_s < r.at_s <= drill.ended_s][SETTLING_STEPS:]),
        afterwards=_throughput([r for r in metrics if r.at_s > drill.ended_s][SETTLING_STEPS:]),
    )


def _throughput(records: Sequence[MetricsRecord]) -> float | None:
    usable = [r for r in records if r.step_time_s > 0]
    if not usable:
        return None
    return median((r.samples or 1) / r.step_time_s for r in usable)


def _find_trouble(drill: SlowDrill, slowed: Sequence[Slowed], during: Sequence[Event]) -> list[str]:
    obeyed = {w for w in drill.factors if _find_begin(w, drill, during) is not None}
    trouble = [f"{w} was never slow: it has not seen the order" for w in drill.factors if w not in obeyed]
    limit = DetectorSettings().streak_limit
    for one in slowed:
        overlooked = one.found_after is None and one.steps >= SURELY_FOUND_STEPS
        if drill.findable and overlooked and one.factor > limit:
            trouble.append(
                f"{one.worker} was {one.factor:g} times as slow for {one.steps} steps, and not found"
            )
    return trouble


def _find_losses(missing: int, drill: SlowDrill, events: Sequence[Event]) -> list[str]:
    trouble = [f"the loss curve lacks {missing} steps"] if missing else []
    for event in events:
        if event.at_s < drill.begun_s:
            continue
        if event.kind == "failed":
            trouble.append(f"the job failed: {event.fields.get('reason', 'no reason given')}")
        if event.kind == "worker_exited" and event.fields.get("failure"):
            trouble.append(f"{event.fields.get('worker')} was lost")
    return trouble
