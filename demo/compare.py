"""Whether two runs are equal, bit for bit, and what each change of topology cost. Pure."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from demo.story import Deed, Scene
from elastane.model.topology import Mode
from elastane.observe.metrics import MetricsRecord
from elastane.observe.snapshot import Change


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Hold what came of one run: the sha256 of its final state and the record of every step."""

    digest: str
    records: tuple[MetricsRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Hold what one change cost.

    Attributes:
        what: the change, in words.
        step: the step before which it took effect.
        stop_s: how long training made no progress because of it.
        join_s: from the request until the new worker took part in a step; None if none joined.
    """

    what: str
    step: int | None
    stop_s: float | None
    join_s: float | None


def compare_runs(elastic: Run, plain: Run) -> list[str]:
    """Return where two runs differ, in words; nothing if every bit is equal."""
    differences = []
    if len(elastic.records) != len(plain.records):
        differences.append(
            f"steps: {len(elastic.records)} in the elastic run, {len(plain.records)} in the plain one"
        )
    for ours, theirs in zip(elastic.records, plain.records, strict=False):
        if _essence(ours) != _essence(theirs):
            differences.append(
                f"first unequal step: {ours.step}: elastic {_describe(ours)}, plain {_describe(theirs)}"
            )
            break
    if elastic.digest != plain.digest:
        differences.append(f"final state: elastic sha256 {elastic.digest}, plain sha256 {plain.digest}")
    return differences


def _essence(record: MetricsRecord) -> tuple[object, ...]:
    # As texts: repr tells all floats apart, and says of a NaN that it equals itself.
    values = sorted((name, repr(value)) for name, value in record.values.items())
    return record.step, record.epoch, record.samples, tuple(values)


def _describe(record: MetricsRecord) -> str:
    values = ", ".join(f"{name} {value!r}" for name, value in record.values.items())
    return f"epoch {record.epoch}, {record.samples} samples, {values}"


def compute_costs(scenes: Sequence[Scene], records: Sequence[MetricsRecord]) -> list[Cost]:
    """Return what each change cost, in order."""
    return [_compute_cost(scene, change, records) for scene in scenes for change in scene.changes]


def _compute_cost(scene: Scene, change: Change, records: Sequence[MetricsRecord]) -> Cost:
    join_s = max((join.latency_s for join in change.joined), default=None)
    stop_s = change.stop_s
    what: str = scene.act.deed.value
    if change.mode == Mode.RECOVERY:
        what = "SIGKILL to next step"
        stop_s = compute_recovery_s(scene.asked_at_s, change.generation, records)
    elif scene.act.deed is Deed.KILL:
        what = "replacement joins"
    return Cost(what=what, step=change.step, stop_s=stop_s, join_s=join_s)


def compute_recovery_s(killed_at_s: float, generation: int, records: Sequence[MetricsRecord]) -> float | None:
    """Return the time from a kill to the first step committed in `generation` or a later one."""
    after = (record.at_s for record in records if record.generation >= generation)
    first_s = next(after, None)
    return None if first_s is None else first_s - killed_at_s


def compute_step_time_s(records: Sequence[MetricsRecord]) -> float:
    """Return the median time of a step; NaN if there is none."""
    return statistics.median(record.step_time_s for record in records) if records else math.nan
