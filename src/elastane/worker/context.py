"""What a worker process is told by the agent that starts it; absent under plain `python train.py`.

The agent's preloaded parent sets the context in the process it forks; a cold start passes it in the
environment. This is the only place of the training runtime that looks at the environment.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from elastane.model.ids import DeviceId, JobId, NodeId, WorkerId
from elastane.model.records import CheckpointPlan, ProfilePlan

CONTEXT_VARIABLE = "ELASTANE_WORKER"


class WorkerContext(msgspec.Struct, frozen=True, kw_only=True):
    """Hold everything a worker must know before its script runs."""

    job: JobId
    worker: WorkerId
    node: NodeId
    device: DeviceId
    address: str = "127.0.0.1"
    """Under which the workers of other nodes reach this one."""
    store_url: str
    directory: str
    """The job's folder: event log, metrics, worker logs, saved state."""
    script: str
    arguments: tuple[str, ...] = ()
    virtual_workers: int | None = None
    """N when the command line overrides the script's."""
    checkpoints: CheckpointPlan = CheckpointPlan()
    lease_ttl_s: float = 3.0
    orphan_grace_s: float = 60.0
    """How long workers train on without an agent on their node before they stop the job and save it."""
    step_timeout_s: float = 600.0
    """How long one worker's training thread may keep the others waiting before they go on without it."""
    autoscale: str = ""
    """How the number of workers is chosen, in the words of `core.autoscale_text`; "" = it is not."""
    stragglers: str = "off"
    """What is done about slow workers: a name of `core.relief.Answer`."""
    profile: ProfilePlan | None = None
    """How the job is measured; None: it is there to be trained."""
    intra_op_threads: int = 1
    requested_at_s: float = 0.0
    """Machine-wide monotonic clock at which the start was asked for: join latency counts from here."""
    began_at_s: float = 0.0
    """The same clock when the process of the worker began to run code of ours; set by the process itself."""
    environment: dict[str, str] = {}


_current: WorkerContext | None = None

METRICS_VARIABLE = "ELASTANE_METRICS"


def metrics_directory(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return where a job that no agent started is to leave its metrics; None for nowhere."""
    text = environment.get(METRICS_VARIABLE)
    return Path(text) if text else None


def set_context(context: WorkerContext | None) -> None:
    """Make `context` that of this process."""
    global _current  # noqa: PLW0603 - one context per process, set once before the script runs
    _current = context


def current_context(environment: Mapping[str, str] = os.environ) -> WorkerContext | None:
    """Return this process's context; None in a process that no agent started."""
    if _current is not None:
        return _current
    text = environment.get(CONTEXT_VARIABLE)
    return msgspec.json.decode(text, type=WorkerContext) if text else None
