"""What the loss of a worker costs under torchrun, and what any such loss is measured by."""

import signal
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen

import psutil

from benchmarks.analysis import Commit
from benchmarks.processes import end_tree, find_free_port, wait_until
from benchmarks.restart import SAVE_EVERY, read_commits, start_agent
from benchmarks.workloads import Workload

STEPS_BEFORE = 2 * SAVE_EVERY + 5
"""Two saved states, and some steps that the restart loses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Hold what one worker's end cost the others.

    Attributes:
        wait_s: until the next committed step; the time after which it was given up if there was none.
        went_on: there was one.
        steps_again: steps that had been trained and were trained again; 0 if the job did not go on.
    """

    wait_s: float
    went_on: bool
    steps_again: int


def compute_loss(
    commits: Sequence[Commit], struck_s: float, *, workers_after: int | None, give_up_s: float
) -> Loss:
    """Return what the log says about a loss at the wall clock `struck_s`.

    Args:
        commits: in the order in which they were written; a restart goes back in steps.
        struck_s: when the worker was harmed; a step that was under way may still be committed then.
        workers_after: how many workers the others are; None: as many as before, who have been restarted,
            so that the first step after a restart is one that goes back, or comes after a pause.
        give_up_s: how long was waited.
    """
    before = [c for c in commits if c.at_s <= struck_s]
    after = [c for c in commits if c.at_s > struck_s]
    if workers_after is None:
        later = _find_restart(before, after)
    else:
        later = next((c for c in after if c.workers == workers_after), None)
    if later is None:
        return Loss(wait_s=give_up_s, went_on=False, steps_again=0)
    newest = max(c.step for c in commits if c.at_s < later.at_s)
    return Loss(wait_s=later.at_s - struck_s, went_on=True, steps_again=max(0, newest + 1 - later.step))


def _find_restart(before: Sequence[Commit], after: Sequence[Commit]) -> Commit | None:
    newest = before[-1].step
    for commit in after:
        if commit.step <= newest:
            return commit
        newest = commit.step
    return None


def measure_loss(workload: Workload, number: signal.Signals, give_up_s: float) -> Loss:
    """Signal the second of two agents' workers in the middle of training; return what that cost."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        port = find_free_port()
        agents: list[Popen[bytes]] = []
        frozen: list[psutil.Process] = []
        try:
            agents += [start_agent(workload, folder, port, agent) for agent in ("a", "b")]

            def warm() -> bool:
                return sum(commit.workers == 2 for commit in read_commits(folder)) >= STEPS_BEFORE

            wait_until(warm, "steps with both agents", agents)
            (victim,) = psutil.Process(agents[1].pid).children()
            frozen.append(victim)
            struck_s = time.time()
            victim.send_signal(number)
            deadline_s = time.monotonic() + give_up_s

            def decided() -> bool:
                found = compute_loss(read_commits(folder), struck_s, workers_after=None, give_up_s=give_up_s)
                return found.went_on or time.monotonic() > deadline_s

            wait_until(decided, "the restart", agents)
            return compute_loss(read_commits(folder), struck_s, workers_after=None, give_up_s=give_up_s)
        finally:
            for process in frozen:
                if process.is_running():
                    process.kill()
            for agent in reversed(agents):
                end_tree(agent)
