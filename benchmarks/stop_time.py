"""B2, B3: how long the workers of a job make no progress when it grows, shrinks or moves."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.changes import MIGRATE, Measured, measure_changes
from benchmarks.command import Findings, run_row
from benchmarks.figures import Figure, Row, Target, make_figure
from benchmarks.restart import measure_restarts
from benchmarks.stock import move_bytes
from benchmarks.workloads import DIGITS, MLP25M, Workload

ROW = Row(
    id="B2, B3",
    name="stop_time",
    title="Stop time of scale-out, scale-in and migration",
    method=(
        "One job goes through all changes again and again while it trains. The stop is the time between "
        "the last commit before a change and the first one after it, less the median step time after the "
        "change: it holds all that a user loses, slower first steps and noise included. In step times it "
        "is divided by the shorter of the step times before and after. The event log's own figure begins "
        "when the first worker arrives at the switch and ends when it goes on. `progress lost` adds what "
        "a preparing worker takes from the others, which share two cores with it here. `gloo moves the "
        "state once`: as many bytes as the change moved, sent between two other processes by stock gloo; "
        "the limit of a scale-out is one step and the shortest of these times. torchrun: two agents "
        "(`--nnodes=1:2`), checkpoint every 20 steps, from the last step before the restart to the first "
        "one after it; steps that were trained twice come on top of that."
    ),
    remarks=(
        "Of a scale-out's stop, the event log's part is the wait at the boundary and the state on its way. "
        "The rest is the first step together, in which the new worker runs everything for the first time. A "
        "scale-in moves nothing. A migration moves the whole state: workers of one machine read it from each "
        "other's memory, at about twice gloo's speed. The digits' steps are so short that a single wake-up "
        "of another process is a large part of one; and here up to three workers, their control threads and "
        "the agent share two cores."
    ),
)

CYCLES = {DIGITS.name: 8, MLP25M.name: 6}
TRIALS = 5
MOVES = 7


def measure(quick: bool) -> Findings:
    """Measure both workloads."""
    figures: list[Figure] = []
    for workload in (DIGITS, MLP25M):
        found = measure_changes(workload, 1 if quick else CYCLES[workload.name])
        moves_s = measure_moves(found, quick=quick)
        figures += _make_figures(workload, found, moves_s)
        restarts = measure_restarts(workload, 1 if quick else TRIALS)
        stops_s = [restart.stop_s for restart in restarts]
        repeated = [float(restart.repeated_steps) for restart in restarts]
        figures.append(make_figure("stop, torchrun restart", workload.name, stops_s, "s"))
        figures.append(make_figure("steps trained twice, torchrun", workload.name, repeated, "steps"))
    return Findings(figures=figures)


def measure_moves(found: Sequence[Measured], *, quick: bool) -> list[float]:
    """Return how long gloo takes for the bytes that the changes moved, in seconds."""
    moved_bytes = max(change.asked.moved_bytes for change in found)
    with tempfile.TemporaryDirectory() as folder:
        return move_bytes(moved_bytes, 2 if quick else MOVES, Path(folder))


def _make_figures(workload: Workload, found: Sequence[Measured], moves_s: Sequence[float]) -> list[Figure]:
    figures = []
    for name in dict.fromkeys(change.asked.name for change in found):
        changes = [change for change in found if change.asked.name == name]
        target = _target(changes, moves_s)
        steps = [change.stop.steps for change in changes]
        figures.append(make_figure(f"stop, {name}", workload.name, steps, "steps", target))
        for what, seconds in (
            ("stop", [change.stop.stop_s for change in changes]),
            ("stop by the event log", [change.asked.event_stop_s for change in changes]),
            ("progress lost", [change.lost_s for change in changes]),
        ):
            values = [value_s * 1e3 for value_s in seconds]
            figures.append(make_figure(f"{what}, {name}", workload.name, values, "ms"))
    moves_ms = [move_s * 1e3 for move_s in moves_s]
    figures.append(make_figure("gloo moves the state once", workload.name, moves_ms, "ms"))
    return figures


def _target(changes: Sequence[Measured], moves_s: Sequence[float]) -> Target:
    asked = changes[0].asked
    shrinks = asked.name != MIGRATE and not changes[0].phases
    if shrinks or asked.name == MIGRATE:
        return Target(goal="<= 0.2", limit="<= 0.3")
    step_s = min(min(change.stop.before_s, change.stop.after_s) for change in changes)
    return Target(goal="<= 1", limit=f"<= {1 + min(moves_s) / step_s:.2f}")


if __name__ == "__main__":
    run_row(ROW, measure)
