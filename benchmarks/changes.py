"""Change the workers of a running job again and again, and hold what each change cost.

Rows that are measured in one invocation share the runs.
"""

import functools
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.analysis import (
    Commit,
    Stop,
    compute_lost_s,
    compute_stop,
    find_first_commit,
)
from benchmarks.elastic_job import ElasticJob, Plan
from benchmarks.workloads import DIGITS, MLP25M, Workload
from elastane.observe.joins import JoinPhase, JoinReport, compute_joins

MIGRATE = "migrate"
NOTICED = "noticed by the agent"
PHASES = {
    JoinPhase.SPAWN: "process started",
    JoinPhase.IMPORT: "imports",
    JoinPhase.DEVICE: "device ready",
    JoinPhase.BUILD: "model and data built",
    JoinPhase.WARM_UP: "step rehearsed",
    JoinPhase.CONNECT: "link connected",
    JoinPhase.AGREE: "switch agreed and reached",
    JoinPhase.TRANSFER: "state moved",
}
"""What the phases of a join are called in the figures."""
FIRST_STEP = "first step"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Say which changes a job goes through, over and over, from one worker back to one.

    Attributes:
        changes: numbers of workers to ask for, or `MIGRATE`.
        window: steps on either side of a change that tell the step times.
    """

    changes: tuple[int | str, ...]
    window: int


ROUTES = {
    DIGITS.name: Route(changes=(2, 3, 2, 1, MIGRATE), window=40),
    MLP25M.name: Route(changes=(2, 1, MIGRATE), window=6),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Hold a change that was asked for and has happened.

    Attributes:
        name: such as "1 -> 2".
        workers: how many there are after it.
        requested_at_s: wall clock of the request.
        generation, switch_step, event_stop_s, moved_bytes: as the job's event log tells.
    """

    name: str
    workers: int
    requested_at_s: float
    generation: int
    switch_step: int
    event_stop_s: float
    moved_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Hold what a change cost.

    Attributes:
        lost_s: how much later than without it the job came to its first step.
        latency_s: from the request to the first commit with the new worker; None if none joined.
        phases: of a join, in seconds.
    """

    asked: Asked
    stop: Stop
    lost_s: float
    latency_s: float | None
    phases: dict[str, float]


@functools.cache
def measure_changes(workload: Workload, cycles: int, *, cold: bool = False) -> tuple[Measured, ...]:
    """Run one job through its route so often; cold: workers start without a preloaded parent."""
    route = ROUTES[workload.name]
    if cold:
        route = Route(changes=(2, 1), window=route.window)
    plan = Plan(
        script=workload.script,
        arguments=workload.endless,
        workers=1,
        flags=("--cold",) if cold else (),
    )
    with tempfile.TemporaryDirectory() as folder, ElasticJob(plan, Path(folder)) as job:
        job.wait_commits(2 * route.window)
        asked = [_change(job, route, number) for number in range(cycles * len(route.changes))]
        joins = compute_joins(job.all_events())
        return tuple(_measure(change, job.commits, joins, route.window) for change in asked)


def _change(job: ElasticJob, route: Route, number: int) -> Asked:
    """Ask for the next change of the route and wait until the job has settled."""
    wish = route.changes[number % len(route.changes)]
    before = job.commits[-1].workers
    requested_at_s = job.migrate() if isinstance(wish, str) else job.scale(wish)
    fields = job.wait_switch(number + 1)
    job.wait_workers(fields["workers"])
    job.wait_commits(2 * route.window + 2)
    return Asked(
        name=wish if isinstance(wish, str) else f"{before} -> {wish}",
        workers=fields["workers"],
        requested_at_s=requested_at_s,
        generation=fields["generation"],
        switch_step=fields["step"],
        event_stop_s=fields["stop_s"],
        moved_bytes=fields["moved_bytes"],
    )


def _measure(asked: Asked, commits: Sequence[Commit], joins: Sequence[JoinReport], window: int) -> Measured:
    stop = compute_stop(commits, asked.switch_step, asked.requested_at_s, window)
    join = next((join for join in joins if join.generation == asked.generation), None)
    latency_s, phases = None, dict[str, float]()
    if join is not None:
        first = commits[asked.switch_step - commits[0].step]
        assert first == find_first_commit(commits, asked.workers, first.at_s - 1e-6)
        latency_s = first.at_s - asked.requested_at_s
        phases = name_phases(join, asked.requested_at_s, latency_s)
    return Measured(
        asked=asked,
        stop=stop,
        lost_s=compute_lost_s(commits, asked.switch_step, asked.requested_at_s, stop),
        latency_s=latency_s,
        phases=phases,
    )


def name_phases(join: JoinReport, requested_at_s: float, latency_s: float) -> dict[str, float]:
    """Return the seconds of each phase of a join, from a request by the wall clock to the first step.

    Args:
        join: what the worker measured, from when its agent began to start it until it had a seat.
        requested_at_s: wall clock of the request, on the same machine.
        latency_s: from then to the first commit with the worker.
    """
    noticed_s = join.asked_at_s - requested_at_s
    measured = {PHASES[phase]: seconds for phase, seconds in join.phases.items()}
    rest_s = latency_s - noticed_s - (join.latency_s or 0.0)
    return {NOTICED: noticed_s, **measured, FIRST_STEP: rest_s}
