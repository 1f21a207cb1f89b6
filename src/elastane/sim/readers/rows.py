"""The nouns of reading a trace: one row, why a row was left out, and the whole trace.

A row says what the file says and no more: it knows neither throughput profiles nor a cluster.
Everything that was left out is counted by reason, with the first few line numbers as examples,
so that nothing disappears without the reader of a report being told.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import msgspec

EXAMPLES_PER_REASON = 5
"""Line numbers kept for each reason; enough to find the fault, few enough to read on one line."""


class TraceRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Describe one job as its trace describes it.

    Times are seconds on the trace's own clock; `duration_s` is the running time on `devices` devices.
    It is None where the trace gives work instead: then `work_samples` does, or the profile that `model`
    names. `waited_s` is how long the job really waited before its first start, where the trace says so.
    """

    line: int
    job_id: str
    submit_s: float
    devices: int
    duration_s: float | None
    tenant: str = ""
    model: str | None = None
    work_samples: float | None = None
    waited_s: float | None = None
    min_devices: int | None = None
    max_devices: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Say how many rows were left out for one reason, and where the first of them stand.

    `expected` rows are no jobs to simulate (steps, jobs without devices, jobs still running); the others are
    faults of the file or do not fit the cluster.
    """

    reason: str
    count: int
    examples: tuple[str, ...]
    expected: bool = False


@dataclass(slots=True)
class LeftOutCounter:
    """Count what is left out while a file streams past."""

    _counts: Counter[str] = field(default_factory=Counter)
    _examples: dict[str, list[str]] = field(default_factory=dict)
    _expected: set[str] = field(default_factory=set)

    def add(self, reason: str, example: str, *, expected: bool = False) -> None:
        """Count one row under `reason`; keep `example` ("line 17 ('-1')") if it is among the first few."""
        if expected:
            self._expected.add(reason)
        self._counts[reason] += 1
        examples = self._examples.setdefault(reason, [])
        if len(examples) < EXAMPLES_PER_REASON:
            examples.append(example)

    def total(self) -> int:
        """Return how many rows were left out."""
        return self._counts.total()

    def summary(self) -> tuple[LeftOut, ...]:
        """Return the counts, the most frequent reason first."""
        return tuple(
            LeftOut(
                reason=reason,
                count=count,
                examples=tuple(self._examples[reason]),
                expected=reason in self._expected,
            )
            for reason, count in self._counts.most_common()
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Hold the usable jobs of a trace file in order of submission, the first one at second 0.

    `origin` is what second 0 means on the trace's own clock; `notes` are facts about the file that
    change how results are read (rows sorted, columns ignored, a window applied). `profile_set` names the
    published speed profiles that the trace's models come from, if it has models.
    """

    name: str
    format: str
    rows: tuple[TraceRow, ...]
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()
    origin: str = "0"
    profile_set: str | None = None
