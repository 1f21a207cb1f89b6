"""B4: from the request for a worker to the first step that it takes part in."""

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.changes import Measured, measure_changes
from benchmarks.command import Findings, run_row
from benchmarks.figures import NO_TARGET, Figure, Row, Target, make_figure
from benchmarks.pairs import measure_call_s
from benchmarks.processes import end_tree, start_python, wait_exit
from benchmarks.restart import measure_restarts
from benchmarks.stop_time import CYCLES, TRIALS, measure_moves
from benchmarks.workloads import DIGITS, MLP25M, Workload

ROW = Row(
    id="B4",
    name="join_latency",
    title="Join latency: from the request to the first step with the new worker",
    method=(
        "A job of one worker is asked for a second one; the request is a write to the job's store by "
        "another process, the end is the first commit with two workers, so the step during which the "
        "request came and the first common step are in it. Warm: the agent forks the worker from a parent "
        "that has imported torch. Cold (`--cold`): the worker is a new Python. The phases are "
        "measured by the new worker itself, as `elastane joins` shows them. `imports`: a new Python "
        "that imports what the cold worker imports and makes an "
        "optimizer. Goals: warm 0.3 s and the time gloo needs to move the state, cold the imports and 0.5 "
        "s. torchrun: from the start of the second agent to the first step with two ranks."
    ),
    remarks=(
        "The largest part of the digits' warm join is the agreement on the switch; of mlp25m's it is the "
        "script, which the new worker runs from its top: it makes 25 million random parameters and "
        "rehearses one step. Then it waits for the end of the step that the others are in, and trains the "
        "first one with them: two whole steps, which the goal for mlp25m does not allow for. A cold join "
        "is the imports, and then the same as a warm one; the imports beside it were measured alone, "
        "those of the new worker run beside the job's own worker."
    ),
)

COLD_CYCLES = 5
IMPORT_TURNS = 5
WARM_GOAL_S = 0.3
WARM_LIMIT_S = 0.8
COLD_GOAL_S = 0.5
IMPORTS = {
    DIGITS.name: "import torch, torch.utils.data, sklearn.datasets",
    MLP25M.name: "import torch, torch.utils.data",
}
WORKER_IMPORTS = "elastane.worker.bootstrap, elastane.worker.job"
FIRST_OPTIMIZER = "torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)"


def measure(quick: bool) -> Findings:
    """Measure both workloads."""
    figures: list[Figure] = []
    for workload in (DIGITS, MLP25M):
        changes = measure_changes(workload, 1 if quick else CYCLES[workload.name])
        move_s = min(measure_moves(changes, quick=quick))
        warm = Target(goal=f"<= {WARM_GOAL_S + move_s:.2f}", limit=f"<= {WARM_LIMIT_S + move_s:.2f}")
        figures += _make_figures("warm", workload, changes, warm)
        imports_s = measure_imports(workload, 1 if quick else IMPORT_TURNS)
        cold = Target(goal=f"<= {statistics.median(imports_s) + COLD_GOAL_S:.2f}")
        colds = measure_changes(workload, 1 if quick else COLD_CYCLES, cold=True)
        figures += _make_figures("cold", workload, colds, cold)
        figures.append(make_figure("imports", workload.name, imports_s, "s"))
        latencies_s = [restart.latency_s for restart in measure_restarts(workload, 1 if quick else TRIALS)]
        figures.append(make_figure("join, torchrun restart", workload.name, latencies_s, "s"))
    return Findings(figures=figures)


def measure_imports(workload: Workload, turns: int) -> list[float]:
    """Return how long a new Python takes to import what the workload's script imports, in seconds."""
    code = f"{IMPORTS[workload.name]}; import {WORKER_IMPORTS}; {FIRST_OPTIMIZER}"
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "imports.log"
        return [measure_call_s(lambda: _run_python(code, log)) for _ in range(turns)]


def _run_python(code: str, log: Path) -> None:
    process = start_python(["-c", code], log)
    try:
        wait_exit(process, log)
    finally:
        end_tree(process)


def _make_figures(
    how: str, workload: Workload, changes: Sequence[Measured], target: Target = NO_TARGET
) -> list[Figure]:
    joins = [change for change in changes if change.asked.name == "1 -> 2"]
    latencies_s = [join.latency_s for join in joins if join.latency_s is not None]
    figures = [make_figure(f"join, {how}", workload.name, latencies_s, "s", target)]
    for phase in joins[0].phases:
        values = [join.phases[phase] * 1e3 for join in joins]
        figures.append(make_figure(f"{how}: {phase}", workload.name, values, "ms"))
    return figures


if __name__ == "__main__":
    run_row(ROW, measure)
