"""B5: from the SIGKILL of a worker to the next committed step; what is trained again; changed bits."""

import signal
import statistics
from collections.abc import Callable

from rich.console import Console

from benchmarks import stock_losses, torchft_peer
from benchmarks.command import Findings, run_row
from benchmarks.deaths import make_plan, measure_series, train_quietly
from benchmarks.figures import Figure, Row, Target, make_figure
from benchmarks.stock_losses import Loss
from benchmarks.torchft_peer import PeerMissingError
from benchmarks.workloads import DIGITS, MLP25M, Workload
from elastane.core.drills import Harm

ROW = Row(
    id="B5",
    name="recovery_time",
    title="Recovery: from the SIGKILL of a worker to the next committed step",
    method=(
        "Workers of one job are killed again and again, each time when all are back and have trained for "
        "a while; the dice choose who, leaders and the main worker among them. The time runs from the "
        "signal to the first commit of those who are left, in the generation without the dead one: the "
        "rest of the step in flight, the recovery, and that step once more with fewer workers. `steps "
        "again`: steps that had been committed and were trained again. `runs that differ`: the job's "
        "final state is compared with that of the same job left alone. torchrun: two agents "
        "(`--nnodes=1:2`), checkpoint every 20 steps, one of the two workers killed. torchft 0.2.0: two "
        "replicas of one process over gloo, written with its Manager, heartbeat timeout at its default of "
        "5 s; one of the two killed."
    ),
    remarks=(
        "The dead worker's agent tells of its end at once, and the others' links break in the same "
        "moment; the rest is one proposal, new links and one commit through the store. The goal is 0.15 s "
        "and one step of those who are left. Steps again can be 1 if a worker dies in the moment between "
        "its own commit and the others'."
    ),
)
KILLS = 7
PEER_TRIALS = 5
GIVE_UP_S = 60.0
RECOVERY_GOAL_S = 0.15
Peer = Callable[[Workload, signal.Signals, float], Loss]
PEERS: dict[str, Peer] = {"torchrun": stock_losses.measure_loss, "torchft": torchft_peer.measure_loss}


def measure(quick: bool) -> Findings:
    """Measure both workloads, with two workers and with three."""
    figures: list[Figure] = []
    for workload in (DIGITS, MLP25M):
        for workers in (2, 3):
            figures += measure_ours(workload, workers, 2 if quick else KILLS)
        for name, peer in PEERS.items():
            figures += measure_peer(name, peer, workload, 1 if quick else PEER_TRIALS)
    return Findings(figures=figures)


def measure_ours(workload: Workload, workers: int, kills: int) -> list[Figure]:
    """Return what the kills cost, in time, steps and bits."""
    series = measure_series(workload, workers, Harm.KILL, kills)
    results = series.report.results
    waits_s = [r.next_commit_s for r in results if r.next_commit_s is not None]
    backs_s = [r.workers_back_s for r in results if r.workers_back_s is not None]
    again = [float(r.steps_repeated) for r in results]
    differs = float(series.digest != train_quietly(make_plan(workload, workers, kills)))
    # Those who are left have the dead one's virtual workers as well.
    step_s = series.step_s * workers / (workers - 1)
    who = f"{workers} workers"
    return [
        make_figure(
            f"SIGKILL to next step, {who}",
            workload.name,
            waits_s,
            "s",
            Target(goal=f"<= {RECOVERY_GOAL_S + step_s:.2f}"),
        ),
        make_figure(f"SIGKILL to all back, {who}", workload.name, backs_s, "s"),
        make_figure(f"steps again, {who}", workload.name, again, "steps", Target(goal="<= 0")),
        make_figure(f"runs that differ, {who}", workload.name, [differs], "runs", Target(goal="<= 0")),
        make_figure(f"step time, {who}", workload.name, [series.step_s], "s"),
    ]


def measure_peer(name: str, peer: Peer, workload: Workload, trials: int) -> list[Figure]:
    """Return what a kill costs under another system; nothing, with a word, if it cannot be had."""
    try:
        losses = [peer(workload, signal.SIGKILL, GIVE_UP_S) for _ in range(trials)]
    except PeerMissingError as error:
        Console(stderr=True).print(f"{name} is left out: {error}")
        return []
    figures = [make_figure(f"SIGKILL to next step, {name}", workload.name, [x.wait_s for x in losses], "s")]
    again = [float(x.steps_again) for x in losses]
    if statistics.median(again) > 0:
        figures.append(make_figure(f"steps again, {name}", workload.name, again, "steps"))
    return figures


if __name__ == "__main__":
    run_row(ROW, measure)
