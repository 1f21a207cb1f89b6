"""A worker's part in measuring its job: count steps, tell its memory; the main worker asks for the next size.

Steps are counted in the training thread, the store is asked in the control thread. Which sizes there are and
which steps count is decided in `core.profiling`; what is made of the figures in `observe.allocations`. The
foreground ends the job when all is told.
"""

import time

from elastane.core.profiling import AllocationMeter, MeasuredSteps, find_next
from elastane.jobs.requests import read_picture, request_scale
from elastane.model.records import ProfilePlan
from elastane.model.topology import Topology
from elastane.observe.metrics import MetricsRecord
from elastane.store.base import Store
from elastane.worker.control import Control
from elastane.worker.memory import MemoryMeter
from elastane.worker.network import torch_device
from elastane.worker.straggling import is_quiet

ASK_EVERY_S = 0.02
"""Pause between two attempts to tell of a size while a change is not quite over: short beside a switch."""


class Profiling:
    """Measure a job for as long as this worker is in it.

    Args:
        control: of this worker.
        plan: the sizes and steps.
        memory: of this worker.
    """

    def __init__(self, control: Control, plan: ProfilePlan, memory: MemoryMeter) -> None:
        self._control = control
        self._plan = plan
        self._memory = memory
        self._meter = AllocationMeter(plan)
        self._main: Topology | None = None
        self._untold: MeasuredSteps | None = None
        self._asked: MeasuredSteps | None = None
        """What the next size was asked for after, for all one knows, and is not told yet."""
        self._next_ask_s = 0.0

    def enter(self, topology: Topology, *, main: bool) -> None:
        """Begin with a new generation."""
        self._main = topology if main else None
        self._untold = None
        self._memory.restart()

    def observe(self, record: MetricsRecord) -> bool:
        """Take a committed step; tell whether it was the last one that counts."""
        measured = self._meter.observe(record.generation, record.workers, record.step)
        if measured is not None:
            self._tell_memory(measured)
            self._untold = measured
        topology, now_s = self._main, time.monotonic()
        if self._untold is not None and topology is not None and now_s >= self._next_ask_s:
            self._next_ask_s = now_s + ASK_EVERY_S
            told = self._untold
            self._control.post(lambda store: self._go_on(store, topology, told))
        return measured is not None

    def _tell_memory(self, measured: MeasuredSteps) -> None:
        self._control.events.append(
            "memory_measured",
            worker=self._control.context.worker,
            generation=measured.generation,
            workers=measured.workers,
            rss_bytes=self._memory.read_rss(),
            device_bytes=self._memory.read_device(),
            device_type=self._memory.name_device(),
        )

    # --- the control thread -------------------------------------------------------------------------

    def _go_on(self, store: Store, topology: Topology, measured: MeasuredSteps) -> None:
        """Tell which steps count and ask for the next size, unless a change or a loss lies in them."""
        job = self._control.context.job
        if self._asked is not measured:
            if self._untold is not measured:
                return  # told already, or a generation ago
            view = read_picture(store, job).view
            if not is_quiet(view, topology) or view.spec.wanted != measured.workers:
                return
            self._asked = measured
        # A request that failed may have taken effect: it is made again, whatever has come of the first.
        following = find_next(self._plan, measured.workers)
        if following is not None:
            request_scale(store, job, following)
        self._untold = self._asked = None
        self._control.events.append(
            "allocation_measured",
            worker=self._control.context.worker,
            generation=measured.generation,
            workers=measured.workers,
            first_step=measured.first,
            last_step=measured.last,
            reason=f"next: {following} workers" if following is not None else "the last one",
        )


def make_profiling(control: Control) -> Profiling | None:
    """Return what measures the job as its command line has it; None if it is there to be trained."""
    plan = control.context.profile
    if plan is None:
        return None
    return Profiling(control, plan, MemoryMeter(torch_device(control.context.device)))
