"""The commands that ask something of a running job: scale, migrate, evict.

They write a wish into the job's spec and, with --wait, watch until leader and agents have fulfilled it.
"""

import time
from collections.abc import Callable
from typing import Annotated

import typer

from elastane.cli.exits import Exit
from elastane.cli.folder import find_folder
from elastane.cli.options import Desk, JobArgument, Patience
from elastane.cli.parse import ScaleBy, parse_scale
from elastane.cli.render import render_change
from elastane.cli.watch import JobWatch, resolve_worker
from elastane.cli.wording import format_count
from elastane.jobs import requests
from elastane.jobs.registry import find_job
from elastane.model.errors import JobStateError
from elastane.model.records import JobInfo, Leave
from elastane.model.topology import Mode
from elastane.observe.snapshot import Change, JobSnapshot
from elastane.store.base import Store

WAIT_INTERVAL_S = 0.05
"""Time between two looks while waiting: well below the time that the fastest change takes."""
TELL_LIMIT_S = 2.0
"""How long the cost of a change is waited for when all runs as wanted: its event may be written on another
node, or be lost with its writer."""

Request = Callable[[Store, JobInfo, JobSnapshot], requests.Change]


def scale(
    job: JobArgument,
    workers: Annotated[str, typer.Argument(metavar="N|+N|-N", help="Workers to run: 8, +2 more, -1 fewer.")],
    *,
    patience: Patience,
    desk: Desk,
) -> int:
    """Let a job run with more or fewer workers."""
    wish = parse_scale(workers)

    def request(store: Store, info: JobInfo, _snapshot: JobSnapshot) -> requests.Change:
        return requests.request_scale(store, info.job, wish.workers, relative=isinstance(wish, ScaleBy))

    return perform(job, request, patience, desk)


def migrate(
    job: JobArgument,
    *,
    source: Annotated[str, typer.Option("--from", metavar="WORKER", help="The worker that is to move.")],
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="DEVICE", help="Where to: DEVICE or NODE:DEVICE [any other]."),
    ] = None,
    patience: Patience,
    desk: Desk,
) -> int:
    """Move a worker to another device: its successor is started there and takes over in one switch."""

    def request(store: Store, info: JobInfo, snapshot: JobSnapshot) -> requests.Change:
        return requests.request_migrate(store, info.job, resolve_worker(snapshot, source), to)

    return perform(job, request, patience, desk)


def evict(
    job: JobArgument,
    worker: Annotated[str, typer.Argument(metavar="WORKER", help="The worker that is to go.")],
    *,
    patience: Patience,
    desk: Desk,
) -> int:
    """Let a worker go at the next step, without a successor: the job then wants one fewer."""

    def request(store: Store, info: JobInfo, snapshot: JobSnapshot) -> requests.Change:
        return requests.request_evict(store, info.job, resolve_worker(snapshot, worker))

    return perform(job, request, patience, desk)


def perform(job: str, request: Request, patience: Patience, desk: Desk) -> int:
    """Send one request and, if asked, wait for what it changes; return the exit code."""
    with desk.open() as store:
        info = find_job(store, job)
        watch = JobWatch(store, info, find_folder(info, desk.resolve()))
        before = watch.look()
        asked = request(store, info, before)
        changes: tuple[Change, ...] = ()
        code = Exit.DONE
        done = None
        if patience.wait:
            after = wait_until_settled(watch, patience.timeout_s)
            changes = after.changes[len(before.changes) :]
            done = runs_as_wanted(after)
            code = Exit.DONE if done else Exit.TIMED_OUT
    data = {
        "job": info.job,
        "before": asked.before,
        "after": asked.after,
        "waited": patience.wait,
        "done": done,
        "changes": changes,
    }
    lines = [f"job {info.job}: {describe_request(asked)}", *(render_change(change) for change in changes)]
    if code is Exit.TIMED_OUT:
        lines.append(
            f"not done after {patience.timeout_s:g} s; the request stands: `elastane show {info.job}`"
        )
    desk.output().show(data, "\n".join(lines))
    return code


def describe_request(asked: requests.Change) -> str:
    """Say in words what a request changed."""
    before, after = asked.before, asked.after
    parts = []
    if before.wanted != after.wanted:
        parts.append(f"{format_count(after.wanted, 'worker')} wanted, {before.wanted} before")
    target = f", on {after.targets[0]}" if after.targets and after.targets != before.targets else ""
    when = {Leave.NOW: "at the next step", Leave.SWAP: f"as soon as its successor is ready{target}"}
    parts += [f"{w} goes {when[how]}" for w, how in after.leaving.items() if before.leaving.get(w) != how]
    return "; ".join(parts) or "nothing to change, that is what was wanted already"


def is_settled(snapshot: JobSnapshot) -> bool:
    """Tell whether a job runs as it is wanted to, and its newest change has said what it cost."""
    told = all(change.stop_s is not None or change.mode == Mode.START for change in snapshot.changes[-1:])
    return told and runs_as_wanted(snapshot)


def runs_as_wanted(snapshot: JobSnapshot) -> bool:
    """Tell whether a job runs as it is wanted to."""
    in_topology = [worker for worker in snapshot.workers if worker.vranks is not None]
    return (
        not snapshot.activity
        and len(snapshot.workers) == len(in_topology) == snapshot.wanted
        and all(worker.generation == snapshot.generation for worker in in_topology)
    )


def wait_until_settled(watch: JobWatch, timeout_s: float) -> JobSnapshot:
    """Look until the job has settled or the time is up, and return the last look.

    Raises:
        JobStateError: the job ended before.
    """
    deadline_s = time.monotonic() + timeout_s
    told_by_s: float | None = None
    while True:
        snapshot, now_s = watch.look(), time.monotonic()
        if snapshot.phase.ended:
            raise JobStateError(
                f"job {snapshot.job} ended before the change was made: {snapshot.phase.value} "
                f"at step {snapshot.step}"
            )
        if not runs_as_wanted(snapshot):
            told_by_s = None
        elif told_by_s is None:
            told_by_s = now_s + TELL_LIMIT_S
        if now_s >= deadline_s or (told_by_s is not None and (is_settled(snapshot) or now_s >= told_by_s)):
            return snapshot
        time.sleep(WAIT_INTERVAL_S)
