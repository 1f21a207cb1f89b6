"""Run several policies, and several points of a sweep, over one trace in parallel processes.

Each run is a pure function of (trace, task), so the order in which processes finish changes nothing but the
progress bar. A policy that fails takes down only its own runs. Knows neither files nor terminals.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import queue
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.queues import Queue
from typing import Any, cast

from elastane.model.cluster import Cluster
from elastane.model.errors import ElastaneError
from elastane.perf.overhead import Overhead
from elastane.policy.base import Policy
from elastane.sim.engine import SimOptions, simulate
from elastane.sim.policy_choice import describe_policy, make_policy
from elastane.sim.readers.rows import Trace
from elastane.sim.recording import ChangeLog, RecordingPolicy, describe_settings
from elastane.sim.result import Metrics, SimResult
from elastane.sim.sweep import SweepPoint
from elastane.sim.workload import Preparation, WorkloadOptions, prepare_workload

MOST_JOBS_RECORDED = 20_000
"""Changes are kept for drawing up to this many jobs; a map of more is a grey carpet."""

_POLL_S = 0.1
"""Time between two looks at the progress of other processes: short for an eye, long for a processor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Hold what all runs of a comparison share."""

    cluster: Cluster
    overhead: Overhead
    options: WorkloadOptions
    round_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Name one run: a policy as the user typed it, at the comparison's own point or at one of a sweep."""

    policy: str
    point: SweepPoint | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRun:
    """Hold one policy's full result. `changes` is None where the run was too large to be drawn."""

    policy: str
    result: SimResult
    changes: ChangeLog | None
    wall_s: float
    clairvoyant: bool = False
    summary: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRun:
    """Hold one policy's figures at one point of a sweep."""

    policy: str
    point: SweepPoint
    metrics: Metrics
    offered_load: float
    capacity: int
    jobs_left_out: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Say why a run gave no result. `expected` failures explain themselves; others carry a trace."""

    policy: str
    point: SweepPoint | None
    message: str
    detail: str = ""


Outcome = PolicyRun | SweepRun | Failure
OnProgress = Callable[[int, float], None]
"""Called with a task's number and the share of it that is done."""


def run_tasks(
    trace: Trace, setting: Setting, tasks: Sequence[Task], *, processes: int, on_progress: OnProgress
) -> list[Outcome]:
    """Return the outcome of each task, in the order of the tasks."""
    if processes <= 1 or len(tasks) == 1:
        return [
            run_task(trace, setting, task, partial(on_progress, number)) for number, task in enumerate(tasks)
        ]
    return _run_in_processes(trace, setting, tasks, min(processes, len(tasks)), on_progress)


def run_task(trace: Trace, setting: Setting, task: Task, on_share: Callable[[float], None]) -> Outcome:
    """Run one policy at one point and return what it gave, or why it gave nothing."""
    try:
        policy = make_policy(task.policy)
        preparation, cluster = _prepare(trace, setting, task.point)
        record = task.point is None and len(preparation.workload.jobs) <= MOST_JOBS_RECORDED
        recorder = RecordingPolicy(policy)
        started = time.perf_counter()
        result = simulate(
            preparation.workload,
            cluster,
            cast(Policy, recorder) if record else policy,
            overhead=setting.overhead,
            options=SimOptions(round_s=setting.round_s),
            on_progress=on_share,
        )
        wall_s = time.perf_counter() - started
    except ElastaneError as error:
        return Failure(policy=task.policy, point=task.point, message=f"{_name(task)}: {error}")
    except Exception as error:  # noqa: BLE001 - a user's policy may raise anything; the others go on
        return _explain(task, error)
    on_share(1.0)
    if task.point is not None:
        return _at_point(task, task.point, preparation, result)
    result = dataclasses.replace(result, settings=describe_settings(policy))
    log = recorder.log() if record else None
    return PolicyRun(
        policy=task.policy,
        result=result,
        changes=log,
        wall_s=wall_s,
        clairvoyant=policy.clairvoyant,
        summary=describe_policy(type(policy)),
    )


def _prepare(trace: Trace, setting: Setting, point: SweepPoint | None) -> tuple[Preparation, Cluster]:
    """Return the workload and the cluster at a point of a sweep."""
    if point is None:
        return prepare_workload(trace, setting.cluster, setting.options), setting.cluster
    options = setting.options
    options = dataclasses.replace(
        options,
        load=point.value("load", options.load),
        seed=int(point.value("seed", options.seed)),
        elastic_share=point.value("elastic", options.elastic_share),
    )
    cluster = setting.cluster
    nodes = int(point.value("nodes", len(cluster.nodes)))
    if nodes != len(cluster.nodes):
        first = cluster.nodes[0]
        cluster = Cluster.of(nodes, first.devices, device_type=first.device_type, pooling=cluster.pooling)
    return prepare_workload(trace, cluster, options), cluster


def _at_point(task: Task, point: SweepPoint, preparation: Preparation, result: SimResult) -> SweepRun:
    return SweepRun(
        policy=task.policy,
        point=point,
        metrics=result.metrics,
        offered_load=preparation.offered_load,
        capacity=result.capacity,
        jobs_left_out=sum(entry.count for entry in preparation.left_out),
        digest=result.digest,
    )


def _name(task: Task) -> str:
    """Return the run's name in messages: the policy, and the point of a sweep."""
    if task.point is None:
        return f"policy {task.policy}"
    pairs = zip(task.point.axes, task.point.values, strict=True)
    return f"policy {task.policy} at {', '.join(f'{axis} {value:g}' for axis, value in pairs)}"


def _explain(task: Task, error: Exception) -> Failure:
    """Return a failure that names the line at which foreign code broke."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return Failure(
        policy=task.policy,
        point=task.point,
        message=f"{_name(task)} failed: {type(error).__name__}: {error}{place}",
        detail="".join(traceback.format_exception(error)),
    )


# Work in other processes. The trace goes to each process once, when it starts; a task is then a few bytes.
_shared: dict[str, Any] = {}


def _start_process(trace: Trace, setting: Setting, shares: Queue[tuple[int, float]]) -> None:
    _shared.update(trace=trace, setting=setting, shares=shares)


def _run_numbered(number: int, task: Task) -> Outcome:
    shares = _shared["shares"]
    return run_task(_shared["trace"], _shared["setting"], task, lambda share: shares.put((number, share)))


def _run_in_processes(
    trace: Trace, setting: Setting, tasks: Sequence[Task], processes: int, on_progress: OnProgress
) -> list[Outcome]:
    # A fresh interpreter for each process: forking one that runs a progress bar's thread may hang.
    context = multiprocessing.get_context("spawn")
    shares = context.Queue()
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(
        max_workers=processes,
        mp_context=context,
        initializer=_start_process,
        initargs=(trace, setting, shares),
    )
    try:
        with _interrupts_blocked():
            futures = [pool.submit(_run_numbered, number, task) for number, task in enumerate(tasks)]
        pending: set[Future[Outcome]] = set(futures)
        while pending:
            _, pending = wait(pending, timeout=_POLL_S, return_when=FIRST_COMPLETED)
            for number, share in _drain(shares):
                on_progress(number, share)
        return [_outcome(task, future) for task, future in zip(tasks, futures, strict=True)]
    except BaseException:
        # Interrupted: nobody waits for runs that take minutes more.
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        shares.close()


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Let the processes that start inside inherit that Ctrl-C is not for them.

    It reaches all processes of a terminal at once; the first one decides what it means, if need be as soon
    as the others have started.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _outcome(task: Task, future: Future[Outcome]) -> Outcome:
    """Return a finished task's outcome; a process that died (out of memory) is a failure like others."""
    error = future.exception()
    if error is None:
        return future.result()
    message = f"{_name(task)}: its process ended without a result ({error}); too little memory?"
    return Failure(policy=task.policy, point=task.point, message=message)


def _drain(shares: Queue[tuple[int, float]]) -> Iterator[tuple[int, float]]:
    while True:
        try:
            yield shares.get_nowait()
        except queue.Empty:
            return
