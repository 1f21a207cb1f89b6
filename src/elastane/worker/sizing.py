"""The main worker's part of the autoscaler: measure throughput, ask `core.autoscaler`, ask for workers.

Steps are taken in the training thread, the store is asked in the control thread. What is wanted is asked for
as a person would ask, by the job's spec. A new main worker begins its search anew. A request that met an
outage is made again and only then remembered.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec

from elastane.core.autoscale_text import parse_autoscale
from elastane.core.autoscaler import (
    AutoscaleSettings,
    Observation,
    Search,
    SizeDecision,
    compute_most,
    decide_size,
)
from elastane.core.throughput import SizeMeter
from elastane.jobs.requests import JobPicture, find_free_devices, read_picture, request_scale
from elastane.model.records import JobInfo, JobKeys
from elastane.model.topology import Topology
from elastane.observe.metrics import MetricsRecord
from elastane.store.base import Store
from elastane.worker.control import Control
from elastane.worker.straggling import is_quiet

PATIENCE_S = 120.0
"""How long workers that were asked for may take to come: a cold start on a busy machine takes less. After
that the job makes do with those it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """Hold what the training thread has measured, and after which step."""

    step: int
    throughput: float
    remaining_samples: int
    step_time_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Intent:
    """Hold a decision that may have been asked for already, and what it was made of."""

    measured: _Measured
    seen: Observation
    wanted_before: int
    decision: SizeDecision


class Sizing:
    """Look for the right number of workers for as long as this worker is the main one.

    Args:
        control: of this worker.
        settings: what the user asked for.
        remaining_samples: tells how many samples are still to be trained.
    """

    def __init__(
        self, control: Control, settings: AutoscaleSettings, remaining_samples: Callable[[], int]
    ) -> None:
        self._control = control
        self._settings = settings
        self._remaining_samples = remaining_samples
        self._meter = SizeMeter(settings.interval_steps, settings.skipped_steps)
        self._topology: Topology | None = None
        self._search = Search()
        self._told = ""
        self._asked_at_s = float("-inf")
        self._intent: _Intent | None = None

    def enter(self, topology: Topology | None) -> None:
        """Measure a new generation; nothing, if this is not its main worker."""
        self._topology = topology

    def observe(self, record: MetricsRecord) -> None:
        """Take a committed step."""
        topology = self._topology
        if topology is None:
            return
        throughput = self._meter.observe(record.generation, record.samples, record.step_time_s)
        if throughput is None:
            return
        remaining = self._remaining_samples()
        if remaining > 0:
            measured = _Measured(
                step=record.step,
                throughput=throughput,
                remaining_samples=remaining,
                step_time_s=record.step_time_s,
            )
            self._control.post(lambda store: self._decide(store, topology, measured))

    # --- the control thread -------------------------------------------------------------------------

    def _decide(self, store: Store, topology: Topology, measured: _Measured) -> None:
        """Decide, ask, remember. Run again after an outage it asks for the same."""
        picture = read_picture(store, self._control.context.job)
        intent = self._intent
        if intent is None or intent.measured is not measured:
            intent = self._intent = self._think(store, picture, topology, measured)
        wanted = picture.view.spec.wanted
        # Anything else was asked for by somebody else, while the store was away.
        if intent is None or wanted not in (intent.wanted_before, intent.decision.size):
            return
        if intent.decision.size != wanted:
            request_scale(store, self._control.context.job, intent.decision.size)
        if intent.decision.size != intent.wanted_before:
            self._asked_at_s = intent.seen.now_s
        self._search = intent.decision.search
        self._tell(intent.decision, intent.seen, measured.step)

    def _think(
        self, store: Store, picture: JobPicture, topology: Topology, measured: _Measured
    ) -> _Intent | None:
        """Return what is decided; None while something else is under way."""
        if not is_quiet(picture.view, topology):
            return None
        size, now_s, wanted = len(topology.members), time.monotonic(), picture.view.spec.wanted
        under_way = wanted != size
        if under_way and now_s < self._asked_at_s + PATIENCE_S:
            return None
        seen = Observation(
            now_s=now_s,
            size=size,
            throughput=measured.throughput,
            elapsed_s=_read_age_s(store, self._control),
            remaining_samples=float(measured.remaining_samples),
            step_time_s=measured.step_time_s,
            available=size if under_way else _count_available(picture, size),
        )
        decision = decide_size(self._search, seen, self._settings)
        return _Intent(measured=measured, seen=seen, wanted_before=wanted, decision=decision)

    def _tell(self, decision: SizeDecision, seen: Observation, step: int) -> None:
        """Log a decision when its reason changes."""
        if decision.reason == self._told:
            return
        self._told = decision.reason
        search = decision.search
        # What a look has measured is forgotten by the search, and told all the same.
        rates = {seen.size: seen.throughput, **search.measured}
        self._control.events.append(
            "autoscale",
            step=step,
            elapsed_s=seen.elapsed_s,
            remaining_samples=seen.remaining_samples,
            workers=seen.size,
            wanted=decision.size,
            settled=search.settled is not None and not search.looks,
            samples_per_s={str(size): rate for size, rate in sorted(rates.items())},
            reason=decision.reason,
        )


def make_sizing(
    control: Control, virtual_workers: int, remaining_samples: Callable[[], int], parts: int = 0
) -> Sizing | None:
    """Return the autoscaler as the job's command line has it; None if there is none.

    Args:
        control: of this worker.
        virtual_workers: the most workers that the job can use: its N, or the samples of its largest batch.
        remaining_samples: tells how many samples are still to be trained.
        parts: its N if that is fixed; 0 if any number of workers shares a step evenly.

    Raises:
        ConfigError: it asks for more workers than can be used.
    """
    text = control.context.autoscale
    if not text:
        return None
    settings = parse_autoscale(text)
    most = compute_most(settings, virtual_workers=virtual_workers)
    return Sizing(control, replace(settings, maximum=most, parts=parts), remaining_samples)


def _read_age_s(store: Store, control: Control) -> float:
    """Return how long ago the job was made, by the wall clock: the only one that outlives its processes."""
    entry = store.get(JobKeys(control.context.job).info)
    if entry is None:
        return 0.0
    return max(0.0, time.time() - msgspec.json.decode(entry.value, type=JobInfo).created_at_s)


def _count_available(picture: JobPicture, size: int) -> int | None:
    """Return how many workers there are devices for; None while no agent says what it has."""
    return size + len(find_free_devices(picture)) if picture.agents else None
