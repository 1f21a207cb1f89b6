"""B7: what it takes to measure a job at several sizes: scaled in while it trains, or started for each size.

Run: python -m benchmarks.profile_cost [--out FILE.json] [--quick].
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.command import Findings, run_row
from benchmarks.elastic_job import ElasticJob, Plan
from benchmarks.figures import NO_TARGET, Figure, Row, Target, compute_ratios, make_figure
from benchmarks.pairs import measure_call_s
from benchmarks.processes import end_tree, start_python, wait_exit, wait_until
from benchmarks.workloads import DIGITS, Workload
from elastane.model.records import ProfilePlan
from elastane.observe.profiles import load_profile

STEPS = 10
"""That count with each size, as EDL counted (TPDS 2021)."""
TURNS = 5
VIRTUAL_WORKERS = 8

ROW = Row(
    id="B7",
    name="profile_cost",
    title="Measuring a job at several sizes, against a new run for each size",
    method=(
        "`elastane profile` of the digits example, 8 virtual workers, from 8 workers down to 2 and from 4 to "
        "1: from the start of the command to its end, with table, file and picture. Stop-resume, in turns "
        "with it, is a new run for each size, until as many steps are trained and its processes have been "
        "ended: `torchrun` (stock DDP, gloo), and `elastane run`. Neither saves nor loads a state, which "
        f"flatters them. {STEPS} steps count with each size, and "
        f"{ProfilePlan(allocations=(1,), steps=1).skipped_steps} before them do not. EDL's figure for 8 to 2 "
        "GPUs is 0.20."
    ),
    remarks=(
        "A profile pays one start, of as many workers as a run of the largest size, and then some tenths of "
        "a second for each size. What it saves grows with the number of sizes and with what a start takes: "
        "here that is the import of torch in each process of torchrun, which elastane's workers inherit."
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Say which sizes are measured, and what is to be reached."""

    name: str
    sizes: tuple[int, ...]
    target: Target = NO_TARGET


CASES = (
    Case(name="digits, 8 -> 2", sizes=tuple(range(8, 1, -1)), target=Target(goal="<= 0.15", limit="<= 0.20")),
    Case(name="digits, 4 -> 1", sizes=tuple(range(4, 0, -1))),
)
PEERS = ("torchrun", "elastane run")


def measure(quick: bool) -> Findings:
    """Measure all cases."""
    figures: list[Figure] = []
    for case in CASES:
        figures += _measure_case(case, 1 if quick else TURNS)
    return Findings(figures=figures)


def _measure_case(case: Case, turns: int) -> list[Figure]:
    systems: dict[str, Callable[[], None]] = {
        "profile": lambda: profile(DIGITS, case.sizes),
        "torchrun": lambda: run_each(case.sizes, lambda size: run_torchrun(DIGITS, size)),
        "elastane run": lambda: run_each(case.sizes, lambda size: run_elastane(DIGITS, size)),
    }
    taken: dict[str, list[float]] = {name: [] for name in systems}
    for turn in range(turns):
        # Another one is first each time, so that a drift favours none.
        names = list(systems)[turn % len(systems) :] + list(systems)[: turn % len(systems)]
        for name in names:
            taken[name].append(measure_call_s(systems[name]))
    figures = []
    for peer in PEERS:
        ratios = compute_ratios(taken["profile"], taken[peer])
        target = case.target if peer == "torchrun" else NO_TARGET
        figures.append(make_figure(f"time / {peer} for each size", case.name, ratios, "ratio", target))
    figures.append(make_figure("time, elastane profile", case.name, taken["profile"], "s"))
    figures += [make_figure(f"time, {peer} for each size", case.name, taken[peer], "s") for peer in PEERS]
    return figures


def profile(workload: Workload, sizes: Sequence[int]) -> None:
    """Measure all sizes in one run. Raise RuntimeError if that fails or leaves one out."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        out, log = folder / "profile.json", folder / "profile.log"
        process = start_python(
            [
                *("-m", "elastane.cli.main", "profile", str(workload.script)),
                *("--allocations", ",".join(map(str, sizes)), "--steps", str(STEPS), "--out", str(out)),
                *("--virtual-workers", str(VIRTUAL_WORKERS), "--", *workload.endless),
            ],
            log,
        )
        try:
            wait_exit(process, log)
        finally:
            end_tree(process)
        measured = [point.workers for point in load_profile(out).points]
        if measured != sorted(sizes):
            raise RuntimeError(f"sizes {measured} were measured instead of {sorted(sizes)}")


def run_each(sizes: Sequence[int], run: Callable[[int], None]) -> None:
    """Run once for each size, one after another."""
    for size in sizes:
        run(size)


def run_torchrun(workload: Workload, size: int) -> None:
    """Train as many steps as one size of a profile takes, from start to end, as stock DDP under torchrun."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = folder / "torchrun.log"
        process = start_python(
            [
                *("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={size}"),
                *("-m", "benchmarks.scripts.stock_ddp", "--workload", workload.name),
                *("--steps", str(count_steps()), "--out", str(folder)),
            ],
            log,
        )

        def all_done() -> bool:
            return all((folder / f"rank{number}.json").exists() for number in range(size))

        try:
            # Not for its exit: ranks of gloo that go one after another sometimes abort in their last moment.
            wait_until(all_done, f"the steps of {size} ranks (see {log})", [process])
        finally:
            end_tree(process)


def run_elastane(workload: Workload, size: int) -> None:
    """Train as many steps as one size of a profile takes, from start to end, as an elastic job."""
    plan = Plan(
        script=workload.script,
        arguments=workload.endless,
        workers=size,
        # Once more, with a lower bound: the job must not start with fewer.
        flags=("--workers", f"{size}:{size}", "--virtual-workers", str(VIRTUAL_WORKERS)),
    )
    with tempfile.TemporaryDirectory() as name, ElasticJob(plan, Path(name)) as job:
        job.wait_commits(count_steps())


def count_steps() -> int:
    """Return how many steps are trained with each size: those that count, and those before them."""
    return ProfilePlan(allocations=(1,), steps=STEPS).skipped_steps + STEPS


if __name__ == "__main__":
    run_row(ROW, measure)
