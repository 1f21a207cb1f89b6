"""What a job's events and metrics say about its speed and memory with each number of workers. Pure.

The main worker tells which steps count (`allocation_measured`), each member what it held (`memory_measured`),
the metrics how long each step took.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from elastane.core.profiling import MeasuredSteps
from elastane.model.profile import AllocationPoint
from elastane.observe.events import Event
from elastane.observe.metrics import MetricsRecord
from elastane.perf.measured import compare_points, compute_point


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPeak:
    """Hold the most memory that one worker held while steps were counted."""

    worker: str
    rss_bytes: int
    device_bytes: int | None
    device_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """Hold all that is told of one size."""

    steps: MeasuredSteps
    peaks: tuple[MemoryPeak, ...]
    records: tuple[MetricsRecord, ...]

    @property
    def complete(self) -> bool:
        """Tell whether every member has told its memory, and every step is written down."""
        wanted = self.steps.last - self.steps.first + 1
        return len(self.peaks) == self.steps.workers and len(self.records) == wanted


def find_allocations(events: Iterable[Event], metrics: Sequence[MetricsRecord]) -> tuple[Allocation, ...]:
    """Return what is told so far, in the order of measurement; a size that was measured twice counts once."""
    spans: dict[int, MeasuredSteps] = {}
    peaks: dict[int, dict[str, MemoryPeak]] = {}
    for event in events:
        fields = event.fields
        if event.kind == "allocation_measured":
            # Taken out first: the order is that of the measurement that counts.
            spans.pop(fields["workers"], None)
            spans[fields["workers"]] = MeasuredSteps(
                generation=fields["generation"],
                workers=fields["workers"],
                first=fields["first_step"],
                last=fields["last_step"],
            )
        elif event.kind == "memory_measured":
            peak = MemoryPeak(
                worker=fields["worker"],
                rss_bytes=fields["rss_bytes"],
                device_bytes=fields["device_bytes"],
                device_type=fields["device_type"],
            )
            peaks.setdefault(fields["generation"], {})[peak.worker] = peak
    return tuple(
        Allocation(
            steps=span,
            peaks=tuple(peaks.get(span.generation, {}).values()),
            records=tuple(r for r in metrics if span.first <= r.step <= span.last),
        )
        for span in spans.values()
    )


def compute_points(allocations: Iterable[Allocation]) -> tuple[AllocationPoint, ...]:
    """Return the figures of all complete sizes, the fewest workers first."""
    return compare_points(_compute(allocation) for allocation in allocations if allocation.complete)


def _compute(allocation: Allocation) -> AllocationPoint:
    held = [peak.device_bytes for peak in allocation.peaks if peak.device_bytes is not None]
    return compute_point(
        allocation.steps.workers,
        [record.samples for record in allocation.records],
        [record.step_time_s for record in allocation.records],
        max(peak.rss_bytes for peak in allocation.peaks),
        max(held) if held else None,
    )
