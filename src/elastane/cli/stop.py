"""The command that ends a job: gracefully, with its state saved, or at once."""

import time
from typing import Annotated

import typer

from elastane.cli.exits import Exit
from elastane.cli.folder import find_folder
from elastane.cli.options import Desk, JobArgument, TimeoutOption
from elastane.cli.outcome import compute_outcome
from elastane.cli.output import Output
from elastane.cli.watch import JobWatch
from elastane.jobs.registry import find_job
from elastane.jobs.requests import request_abort, request_stop
from elastane.observe.snapshot import JobSnapshot

WAIT_INTERVAL_S = 0.1
DEFAULT_TIMEOUT_S = 60.0
"""Twice the grace time that a graceful stop has by default."""


def stop(
    job: JobArgument,
    *,
    now: Annotated[bool, typer.Option("--now", help="At once, without saving the state.")] = False,
    timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S,
    desk: Desk,
) -> int:
    """Stop a job: all workers leave together and the state is saved, so that it can be resumed."""
    with desk.open() as store:
        info = find_job(store, job)
        request = request_abort if now else request_stop
        request(store, info.job)
        watch = JobWatch(store, info, find_folder(info, desk.resolve()))
        snapshot = _wait_for_end(watch, timeout_s)
    return _tell(desk.output(), snapshot, timeout_s)


def _wait_for_end(watch: JobWatch, timeout_s: float) -> JobSnapshot:
    deadline_s = time.monotonic() + timeout_s
    while True:
        snapshot = watch.look()
        if snapshot.phase.ended or time.monotonic() >= deadline_s:
            return snapshot
        time.sleep(WAIT_INTERVAL_S)


def _tell(out: Output, snapshot: JobSnapshot, timeout_s: float) -> int:
    saved = compute_outcome(snapshot, 0.0).saved
    data = {
        "job": snapshot.job,
        "done": snapshot.phase.ended,
        "phase": snapshot.phase,
        "step": snapshot.step,
        "saved": saved,
    }
    if not snapshot.phase.ended:
        text = f"not stopped after {timeout_s:g} s; the request stands: `elastane show {snapshot.job}`"
    elif saved:
        text = f"stopped after {snapshot.step} steps; go on with: elastane resume {snapshot.job}"
    else:
        reason = f" ({snapshot.message.splitlines()[0]})" if snapshot.message else ""
        text = f"{snapshot.phase.value} after {snapshot.step} steps; no state was saved{reason}"
    out.show(data, f"job {snapshot.job}: {text}")
    return Exit.DONE if snapshot.phase.ended else Exit.TIMED_OUT
