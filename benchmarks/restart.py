"""The peer: torchrun with two agents, which grows a job by stopping all ranks and starting them anew."""

import functools
import json
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen

from benchmarks.analysis import Commit, compute_periods, find_first_commit
from benchmarks.processes import end_tree, find_free_port, start_python, wait_until
from benchmarks.workloads import Workload

SAVE_EVERY = 20
"""Steps between two saved states. More often would cost more, more seldom would lose more steps."""
STEPS_BEFORE = 45
"""Two saved states, and some steps that the restart loses."""
STEPS_AFTER = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """Hold what the restart of one trial cost.

    Attributes:
        stop_s: from the last step before it to the first step after it, less that step's own time.
        latency_s: from the start of the second agent to the first step with both.
        repeated_steps: steps that had been trained and were trained again.
    """

    stop_s: float
    latency_s: float
    repeated_steps: int


def compute_restart(commits: list[Commit], requested_at_s: float) -> Restart:
    """Return what the restart cost that the second agent's arrival caused.

    Raises:
        ValueError: the log holds no step with two workers.
    """
    first = find_first_commit(commits, 2, requested_at_s)
    place = commits.index(first)
    before = commits[:place]
    step_time_s = statistics.median(compute_periods(commits[place:]))
    return Restart(
        stop_s=first.at_s - before[-1].at_s - step_time_s,
        latency_s=first.at_s - requested_at_s,
        repeated_steps=before[-1].step + 1 - first.step,
    )


@functools.cache
def measure_restarts(workload: Workload, trials: int) -> tuple[Restart, ...]:
    """Run trials; rows that are measured in one invocation share them."""
    return tuple(_run_trial(workload) for _ in range(trials))


def _run_trial(workload: Workload) -> Restart:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        port = find_free_port()
        agents: list[Popen[bytes]] = []
        try:
            agents.append(start_agent(workload, folder, port, "a"))
            wait_until(lambda: len(read_commits(folder)) >= STEPS_BEFORE, f"{STEPS_BEFORE} steps", agents)
            requested_at_s = time.time()
            agents.append(start_agent(workload, folder, port, "b"))

            def both_trained() -> bool:
                return sum(commit.workers == 2 for commit in read_commits(folder)) >= STEPS_AFTER

            wait_until(both_trained, "steps with both agents", agents)
            return compute_restart(read_commits(folder), requested_at_s)
        finally:
            for agent in reversed(agents):
                end_tree(agent)


def start_agent(workload: Workload, folder: Path, port: int, name: str) -> Popen[bytes]:
    """Start an agent. At torchrun's defaults a joining one ends the job after 60 s: see the settings here."""
    return start_python(
        [
            *("-m", "torch.distributed.run", "--nnodes=1:2", "--nproc-per-node=1", "--max-restarts=10"),
            *("--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=bench"),
            *("--rdzv-conf=last_call_timeout=1", "--local-addr=127.0.0.1"),
            *("-m", "benchmarks.scripts.stock_restart", "--workload", workload.name),
            *("--folder", str(folder), "--save-every", str(SAVE_EVERY)),
        ],
        folder / f"agent-{name}.log",
        {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
    )


def read_commits(folder: Path) -> list[Commit]:
    """Return the steps that rank 0 has written, those of all starts."""
    path = folder / "steps.jsonl"
    if not path.exists():
        return []
    whole, _, _ = path.read_text().rpartition("\n")
    return [Commit(**json.loads(line)) for line in whole.splitlines()]
