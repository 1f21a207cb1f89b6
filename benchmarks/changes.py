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
    compute_phases,
    compute_stop,
    find_first_commit,
)
from benchmarks.elastic_job import ElasticJob, Plan
from benchmarks.workloads import DIGITS, MLP25M, Workload
from elastane.observe.events import Event

MIGRATE = "migrate"
PHASES = {
    "worker_starting": "noticed by the agent",
    "worker_started": "process started",
    "worker_ready": "script ran, step rehearsed",
    "joined": "links, switch, state moved",
}
"""The events of a join in their order, and what the time until each was spent on."""
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
        events = [event for kind in PHASES for event in job.events(kind)]
        return tuple(_measure(change, job.commits, events, route.window) for change in asked)


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


def _measure(asked: Asked, commits: Sequence[Commit], events: Sequence[Event], window: int) -> Measured:
    stop = compute_stop(commits, asked.switch_step, asked.requested_at_s, window)
    marks = find_marks(events, asked.generation)
    latency_s = None
    if marks:
        first = commits[asked.switch_step - commits[0].step]
        assert first == find_first_commit(commits, asked.workers, first.at_s - 1e-6)
        marks[FIRST_STEP] = first.at_s
        latency_s = first.at_s - asked.requested_at_s
    return Measured(
        asked=asked,
        stop=stop,
        lost_s=compute_lost_s(commits, asked.switch_step, asked.requested_at_s, stop),
        latency_s=latency_s,
        phases=compute_phases(asked.requested_at_s, marks),
    )


def find_marks(events: Sequence[Event], generation: int) -> dict[str, float]:
    """Return when the phases of the worker ended that joined with `generation`; empty if none did."""
    joined = [e for e in events if e.kind == "joined" and e.fields["generation"] == generation]
    if not joined:
        return {}
    worker = joined[0].fields["worker"]
    return {PHASES[e.kind]: e.at_s for e in events if e.kind in PHASES and e.fields["worker"] == worker}
