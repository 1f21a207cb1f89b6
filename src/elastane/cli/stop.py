"""The command that ends a job: gracefully, with its state saved, or at once."""

import os
import signal
import socket
import time
from typing import Annotated

import typer

from elastane.cli.exits import Exit
from elastane.cli.home import open_home, resolve_home
from elastane.cli.options import HomeOption, JobArgument, JsonOption, TimeoutOption
from elastane.cli.outcome import compute_outcome
from elastane.cli.output import Output
from elastane.cli.watch import JobWatch
from elastane.jobs.registry import find_job
from elastane.jobs.requests import JobPicture, read_picture, request_stop
from elastane.model.errors import JobStateError
from elastane.model.ids import NodeId
from elastane.model.records import JobInfo
from elastane.observe.snapshot import JobSnapshot

WAIT_INTERVAL_S = 0.1
DEFAULT_TIMEOUT_S = 60.0
"""Twice the grace time that a graceful stop has by default."""


def stop(
    job: JobArgument,
    *,
    now: Annotated[bool, typer.Option("--now", help="At once, without saving the state.")] = False,
    timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Stop a job: all workers leave together and the state is saved, so that it can be resumed."""
    out = Output(as_json=as_json)
    with open_home(resolve_home(home)) as store:
        info = find_job(store, job)
        picture = read_picture(store, info.job)
        request_stop(store, info.job)
        if now and not read_picture(store, info.job).view.status.phase.ended:
            end_at_once(info, picture)
        snapshot = _wait_for_end(JobWatch(store, info), timeout_s)
    return _tell(out, snapshot, timeout_s)


def end_at_once(info: JobInfo, picture: JobPicture) -> None:
    """Let the job's agent on this machine end it at once.

    Raises:
        JobStateError: its agent is on another machine, or gone.
    """
    agent = picture.agents.get(NodeId(socket.gethostname()))
    if agent is None:
        others = ", ".join(picture.agents) or "nowhere, it is gone"
        raise JobStateError(
            f"the agent of job {info.job} does not run here ({others}); use `stop` without --now"
        )
    # Two different signals: equal ones that arrive together may count as one, and two mean "at once".
    os.kill(agent.pid, signal.SIGTERM)
    os.kill(agent.pid, signal.SIGUSR1)


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
