"""What an autoscaler measured, decided and would expect elsewhere: read from a job's events.

Pure. Measured is what the newest measurement of each size says, over all searches. Predicted is a model of
the job's scaling that was fitted to it (`perf/scaling.py`); the autoscaler itself goes by measurements
alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elastane.core.autoscaler import AutoscaleSettings
from elastane.observe.events import Event
from elastane.perf.scaling import fit_scaling


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRow:
    """Show the job with so many workers.

    Attributes:
        workers: how many.
        measured: samples per second; None if this size was not tried.
        predicted: the same by the fitted model.
        efficiency: what each worker more than at the next smaller size adds, as a share of what one of those
            does (Or et al., section 4.2); None for the smallest. Measured sizes are compared with measured
            ones, as the autoscaler does; others with their neighbours, by prediction.
        ends_in_s: from the newest decision until the last sample; None if the samples are not known.
        worker_s: worker time until then.
        worth: what it is worth to end then; None without a utility.
        cost: of the workers until then; None without a price.
        chosen: it is the size that the autoscaler keeps.
    """

    workers: int
    measured: float | None
    predicted: float
    efficiency: float | None = None
    ends_in_s: float | None = None
    worker_s: float | None = None
    worth: float | None = None
    cost: float | None = None
    chosen: bool = False

    @property
    def throughput(self) -> float:
        """Return the measured throughput, or else the predicted one."""
        return self.measured if self.measured is not None else self.predicted


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeChoice:
    """Hold one decision: when (wall clock, and since the job was made), with how many workers, for how many,
    and why."""

    at_s: float
    elapsed_s: float | None
    step: int | None
    workers: int
    wanted: int
    settled: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscaleStory:
    """Hold what came of the autoscaler of one job so far.

    Attributes:
        rows: one for each size on the search's grid and each that was measured, the smallest first.
        choices: all decisions, the oldest first.
        settled: the size that is kept; None while it searches.
    """

    rows: tuple[SizeRow, ...]
    choices: tuple[SizeChoice, ...]
    settled: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moment:
    """Hold what the worth of a size depends on beside its throughput."""

    elapsed_s: float
    remaining_samples: float
    initial_s: float


def tell_autoscale(
    events: Sequence[Event], settings: AutoscaleSettings, virtual_workers: int = 0
) -> AutoscaleStory:
    """Return what the events say.

    Args:
        events: of the job, in order.
        settings: of the autoscaler.
        virtual_workers: N; 0 under a batch policy or if it is not known.
    """
    decided = [event for event in events if event.kind == "autoscale"]
    choices = tuple(_read_choice(event) for event in decided)
    measured: dict[int, float] = {}
    for event in decided:
        measured |= _read_measured(event)
    settled = choices[-1].wanted if choices and choices[-1].settled else None
    if not measured:
        return AutoscaleStory(rows=(), choices=choices, settled=settled)
    model = fit_scaling(measured, virtual_workers)
    top = min(settings.maximum, virtual_workers or settings.maximum)
    sizes = sorted({*range(settings.minimum, top + 1, settings.step), *measured})
    bare = [
        SizeRow(workers=size, measured=measured.get(size), predicted=model.predict_throughput(size))
        for size in sizes
    ]
    moment = _read_moment(decided)
    rows = [
        _complete(row, _find_smaller(row, bare), settings, moment, chosen=row.workers == settled)
        for row in bare
    ]
    return AutoscaleStory(rows=tuple(rows), choices=choices, settled=settled)


def _read_choice(event: Event) -> SizeChoice:
    fields = event.fields
    return SizeChoice(
        at_s=event.at_s,
        elapsed_s=fields.get("elapsed_s"),
        step=fields.get("step"),
        workers=int(fields["workers"]),
        wanted=int(fields["wanted"]),
        settled=bool(fields["settled"]),
        reason=str(fields["reason"]),
    )


def _read_measured(event: Event) -> Mapping[int, float]:
    rates = event.fields.get("samples_per_s") or {}
    return {int(size): float(rate) for size, rate in rates.items() if rate > 0}


def _read_moment(decided: Sequence[Event]) -> _Moment | None:
    """Return the newest decision's moment; None if an older version wrote the events, without it."""
    first, last = decided[0].fields, decided[-1].fields
    if "remaining_samples" not in first or "remaining_samples" not in last:
        return None
    rate = float(first["samples_per_s"][str(first["workers"])])
    return _Moment(
        elapsed_s=float(last["elapsed_s"]),
        remaining_samples=float(last["remaining_samples"]),
        initial_s=float(first["elapsed_s"]) + float(first["remaining_samples"]) / rate,
    )


def _find_smaller(row: SizeRow, rows: Sequence[SizeRow]) -> SizeRow | None:
    """Return what a row is compared with: a measured one with a measured one, if there is one."""
    smaller = [other for other in rows if other.workers < row.workers]
    measured = [other for other in smaller if other.measured is not None and row.measured is not None]
    near = measured or smaller
    return near[-1] if near else None


def _complete(
    row: SizeRow,
    before: SizeRow | None,
    settings: AutoscaleSettings,
    moment: _Moment | None,
    *,
    chosen: bool,
) -> SizeRow:
    """Return the row with all that follows from its throughput."""
    efficiency = _compute_efficiency(before, row) if before is not None else None
    ends_in_s = worker_s = worth = cost = None
    if moment is not None:
        ends_in_s = moment.remaining_samples / row.throughput
        worker_s = row.workers * ends_in_s
        if settings.worth is not None:
            worth = settings.worth.utility.value(moment.elapsed_s + ends_in_s, moment.initial_s)
            cost = settings.worth.price * worker_s
    return SizeRow(
        workers=row.workers,
        measured=row.measured,
        predicted=row.predicted,
        efficiency=efficiency,
        ends_in_s=ends_in_s,
        worker_s=worker_s,
        worth=worth,
        cost=cost,
        chosen=chosen,
    )


def _compute_efficiency(fewer: SizeRow, more: SizeRow) -> float:
    both = fewer.measured is not None and more.measured is not None
    low, high = (fewer.throughput, more.throughput) if both else (fewer.predicted, more.predicted)
    return (high - low) / (more.workers - fewer.workers) / (low / fewer.workers)
