"""B6: from the SIGSTOP of a worker to the next committed step; and what the worker does when it may go on."""

import signal

from rich.console import Console

from benchmarks.command import Findings, run_row
from benchmarks.deaths import FENCED, make_plan, measure_series, train_quietly
from benchmarks.figures import Figure, Row, Target, make_figure
from benchmarks.recovery_time import PEERS, Peer
from benchmarks.torchft_peer import PeerMissingError
from benchmarks.workloads import DIGITS, MLP25M, Workload
from elastane.core.drills import Harm

ROW = Row(
    id="B6",
    name="frozen_worker",
    title="A worker that freezes (SIGSTOP) without dying",
    method=(
        "Workers of one job of two are stopped by SIGSTOP, each time when both are back and have trained "
        "for a while. The time runs from the signal to the first commit of the other one. When the others "
        "have gone on without it the worker is continued: `woken, ended itself` counts those that ended "
        "themselves with the exit code of a fenced worker. `runs that differ` as for B5. The lease is 3 "
        "s. The peers are those of B5, waited for as long as `gave up after` says; `went on` counts the "
        "trials in which the others committed a step by then. torchft's gloo timeout is set to 5 s, as "
        "long as its heartbeat timeout; at its default of 60 s it waits for so long."
    ),
    remarks=(
        "A worker renews its lease every second, so it runs out 2 to 3 s after the freeze. A process that "
        "its agent has seen frozen for the length of the lease is ended by the agent, so one that is "
        "continued a little later than that does not end itself. Neither gloo nor NCCL can tell a frozen "
        "peer from a slow one, which is why stock training waits."
    ),
)
FREEZES = 5
PEER_TRIALS = 3
GIVE_UP_S = 60.0
QUICK_GIVE_UP_S = 15.0
LEASE_S = 3.0
REACTION_S = 0.5


def measure(quick: bool) -> Findings:
    """Measure both workloads."""
    figures: list[Figure] = []
    for workload in (DIGITS, MLP25M):
        figures += measure_ours(workload, 1 if quick else FREEZES)
        for name, peer in PEERS.items():
            give_up_s = QUICK_GIVE_UP_S if quick else GIVE_UP_S
            figures += measure_peer(name, peer, workload, 1 if quick else PEER_TRIALS, give_up_s)
    return Findings(figures=figures)


def measure_ours(workload: Workload, freezes: int) -> list[Figure]:
    """Return what the freezes cost, and how the workers that were frozen ended."""
    series = measure_series(workload, 2, Harm.FREEZE, freezes)
    waits_s = [r.next_commit_s for r in series.report.results if r.next_commit_s is not None]
    again = [float(r.steps_repeated) for r in series.report.results]
    differs = float(series.digest != train_quietly(make_plan(workload, 2, freezes)))
    step_s = 2 * series.step_s
    clean = sum(code == FENCED for code in series.codes) / freezes
    goal = f"<= {LEASE_S + REACTION_S + step_s:.2f}"
    return [
        make_figure("SIGSTOP to next step", workload.name, waits_s, "s", Target(goal=goal)),
        make_figure("steps again", workload.name, again, "steps", Target(goal="<= 0")),
        make_figure("woken, ended itself", workload.name, [clean], "ratio", Target(goal=">= 1")),
        make_figure("runs that differ", workload.name, [differs], "runs", Target(goal="<= 0")),
    ]


def measure_peer(name: str, peer: Peer, workload: Workload, trials: int, give_up_s: float) -> list[Figure]:
    """Return what a freeze costs under another system; nothing, with a word, if it cannot be had."""
    try:
        losses = [peer(workload, signal.SIGSTOP, give_up_s) for _ in range(trials)]
    except PeerMissingError as error:
        Console(stderr=True).print(f"{name} is left out: {error}")
        return []
    went_on = [float(loss.went_on) for loss in losses]
    waits_s = [loss.wait_s for loss in losses if loss.went_on]
    figures = [make_figure(f"went on, {name}", workload.name, went_on, "ratio")]
    if waits_s:
        figures.append(make_figure(f"SIGSTOP to next step, {name}", workload.name, waits_s, "s"))
    if len(waits_s) < trials:
        figures.append(make_figure(f"gave up after, {name}", workload.name, [give_up_s], "s"))
    return figures


if __name__ == "__main__":
    run_row(ROW, measure)
