"""Run the job that `elastane profile` measures, in a home of its own, and end it when all is told.

The main thread runs the agent; a second one reads what the workers tell, says so, and ends the job. One
signal ends it at once: nothing of it is worth saving.
"""

import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from elastane.agent.serve import Order
from elastane.cli.home import Home
from elastane.cli.outcome import OWN_ERRORS, Outcome, compute_outcome
from elastane.cli.output import Output
from elastane.cli.supervisor import Supervisor, caught_signals
from elastane.cli.watch import EventTail, JobWatch
from elastane.cli.wording import format_count, format_duration, name_of_error
from elastane.core.profiling import check_profile, compute_needed_steps
from elastane.jobs.registry import NewJob, create_job
from elastane.jobs.requests import read_picture
from elastane.model.errors import ElastaneError, ProfileMismatchError
from elastane.model.ids import NodeId
from elastane.model.profile import AllocationPoint, MeasuredProfile
from elastane.model.records import JobInfo, JobPhase, Launch, ModelSignature, ProfilePlan, Spec
from elastane.observe.allocations import Allocation, compute_points, find_allocations
from elastane.observe.events import Event
from elastane.observe.metrics import MetricsRecord, MetricsTail
from elastane.store.base import Store
from elastane.store.open import open_store

LOOK_S = 0.03
"""Time between two looks at what the workers tell: nothing waits for it but the end."""
PATIENCE_S = 10.0
"""What is not told so long after the last size's steps will not come: events and metrics are written within
a second, unless a worker is lost or the disk is full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Say what is to be found out about which script.

    Attributes:
        devices: as a person names them; None for all.
        base: a profile to which the figures are to be added; it must be of the same model.
    """

    script: Path
    arguments: tuple[str, ...]
    plan: ProfilePlan
    launch: Launch
    devices: str | None = None
    base: MeasuredProfile | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Hold what was found out.

    Attributes:
        plan: what was to be found out.
        allocations: sizes that were measured completely, in order.
        signature: of the script's model; None if it never came so far.
        outcome: how the job ended.
        step_time_s: median over all its steps; 0 if there was none.
        interrupted: a signal ended it.
        gave_up: something of a size never came, so it was ended without.
    """

    plan: ProfilePlan
    allocations: tuple[Allocation, ...]
    signature: ModelSignature | None
    outcome: Outcome
    step_time_s: float
    interrupted: bool
    gave_up: bool = False

    @property
    def device_type(self) -> str:
        """Return what the workers ran on."""
        kinds = {peak.device_type for allocation in self.allocations for peak in allocation.peaks}
        return min(kinds, default="cpu")

    @property
    def failed(self) -> bool:
        """Tell whether the script raised, or the job could not go on."""
        return self.outcome.phase is JobPhase.FAILED and not self.complete

    @property
    def complete(self) -> bool:
        """Tell whether all sizes were measured."""
        return len(self.allocations) == len(self.plan.allocations)

    @property
    def refused(self) -> bool:
        """Tell whether the job could not be what was asked for, so that nothing of the script is wrong."""
        return self.failed and "ConfigError" in name_of_error(self.outcome.traceback or "").split(":")[0]

    @property
    def traceback(self) -> str | None:
        """Return the first error of the script, unless its message says it all."""
        text = self.outcome.traceback
        return None if text is None or name_of_error(text).startswith(OWN_ERRORS) else text

    @property
    def failed_worker(self) -> str | None:
        """Return in which worker that was."""
        return self.outcome.failed_worker

    def explain(self) -> str:
        """Say why not all was measured; "" if it was."""
        if self.complete:
            return ""
        done, wanted = len(self.allocations), len(self.plan.allocations)
        measured = f"{done} of {format_count(wanted, 'number')} of workers had been measured"
        if self.failed:
            return f"{self.outcome.message or 'the job failed'} ({measured})"
        if self.gave_up:
            return self._explain_loss()
        # What is known of some sizes need not hold for the others: the rest takes so many steps at least.
        rest = compute_needed_steps(self.plan, self.step_time_s, done)
        needed = max(compute_needed_steps(self.plan, self.step_time_s), self.outcome.step + rest)
        return (
            f"the script ended after {format_count(self.outcome.step, 'step')}, when {measured}; "
            f"some {needed} steps are needed: let it train longer, or take fewer --steps or --allocations"
            + ("" if not done else "; --partial writes what was measured")
        )

    def _explain_loss(self) -> str:
        done = {allocation.steps.workers for allocation in self.allocations}
        lost = [format_count(n, "worker") for n in self.plan.allocations if n not in done]
        return (
            f"not all that was measured with {', '.join(lost)} was told: a worker was lost just then, or the "
            "disk is full; measure again" + ("; --partial writes what was measured" if done else "")
        )


def measure_script(folder: Path, finding: Finding, out: Output) -> Measurement:
    """Run the script as a job in `folder` until all sizes are measured, and return what was.

    Raises:
        ProfileMismatchError: the profile that the figures are to be added to belongs to another model.
        ConfigError, StoreError, OSError: the job cannot be run.
    """
    home = Home(path=folder)
    node = NodeId(socket.gethostname())
    most = finding.plan.allocations[0]
    with open_store(home.store_url) as store:
        info = create_job(store, folder, _make_job(finding, node, most))
        order = Order(
            store_url=home.store_url, job=info.job, home=str(folder), node=node, devices=finding.devices
        )
        supervisor = Supervisor(order, Path(info.directory))
        reader = Reader(home, info, finding, supervisor, out)
        begun_s = time.monotonic()
        # From now on, and not only while an agent runs, a signal ends the measurement in good order.
        with caught_signals(reader.interrupt):
            sizes = format_count(len(finding.plan.allocations), "number")
            out.remark(f"measuring {sizes} of workers, from {most} down")
            reader.start()
            try:
                supervisor.run(reader.interrupt)
            finally:
                reader.finish()
        if reader.error is not None:
            raise reader.error
        outcome = compute_outcome(JobWatch(store, info).look(), time.monotonic() - begun_s)
        return Measurement(
            plan=finding.plan,
            allocations=reader.complete_allocations(),
            signature=_read_signature(store, info),
            outcome=outcome,
            step_time_s=reader.step_time_s,
            interrupted=reader.interrupted and not reader.told_all,
            gave_up=reader.gave_up,
        )


class Reader(threading.Thread):
    """Read what the workers tell until all is told; then end the job."""

    def __init__(
        self, home: Home, info: JobInfo, finding: Finding, supervisor: Supervisor, out: Output
    ) -> None:
        super().__init__(name="elastane-profile", daemon=True)
        self.error: ElastaneError | OSError | None = None
        self.interrupted = False
        self.told_all = False
        self.gave_up = False
        self._home = home
        self._info = info
        self._finding = finding
        self._supervisor = supervisor
        self._out = out
        self._done = threading.Event()
        self._events: list[Event] = []
        self._metrics: list[MetricsRecord] = []
        self._new_events = EventTail(Path(info.directory))
        self._new_metrics = MetricsTail(Path(info.directory))
        self._said: set[int] = set()
        self._fits = finding.base is None
        self._last_told_s: float | None = None

    def interrupt(self) -> None:
        """Take a signal: end the job at once. Safe in signal handlers."""
        self.interrupted = True
        self._supervisor.end_at_once()

    def run(self) -> None:
        """Look again and again, and a last time at the end."""
        try:
            with open_store(self._home.store_url, create=False) as store:
                while not self._done.wait(LOOK_S):
                    self._check_fit(store)
                    self._look()
                    if not (self.told_all or self.gave_up):
                        self._end_if_due()
                self._look()
        except (ElastaneError, OSError) as error:
            self.error = error
            self._supervisor.end_at_once()

    def finish(self) -> None:
        """Look a last time and end the thread."""
        self._done.set()
        self.join()

    def complete_allocations(self) -> tuple[Allocation, ...]:
        """Return the sizes that were measured completely."""
        return tuple(a for a in find_allocations(self._events, self._metrics) if a.complete)

    @property
    def step_time_s(self) -> float:
        """Return the median time of a step, whatever the size; 0 if there was none."""
        return median(record.step_time_s for record in self._metrics) if self._metrics else 0.0

    @property
    def _is_complete(self) -> bool:
        return len(self._said) == len(self._finding.plan.allocations)

    def _end_if_due(self) -> None:
        """End the job if all is told, or if what is missing will not come any more."""
        last = self._is_last_told
        if last and self._last_told_s is None:
            self._last_told_s = time.monotonic()
        self.told_all = self._is_complete
        waited_s = 0.0 if self._last_told_s is None else time.monotonic() - self._last_told_s
        self.gave_up = last and not self.told_all and waited_s > PATIENCE_S
        if self.told_all or self.gave_up:
            self._supervisor.end_at_once()

    @property
    def _is_last_told(self) -> bool:
        """Tell whether the steps of the last size are told: nobody will ask for another one."""
        smallest = self._finding.plan.allocations[-1]
        return any(
            event.kind == "allocation_measured" and event.fields["workers"] == smallest
            for event in self._events
        )

    def _look(self) -> None:
        new_events, new_metrics = self._new_events.poll(), self._new_metrics.poll()
        if not new_events and not new_metrics:
            return
        self._events += [e for e in new_events if e.kind in ("allocation_measured", "memory_measured")]
        self._metrics += new_metrics
        if sum(event.kind == "allocation_measured" for event in self._events) == len(self._said):
            return  # all that was told of has been read
        for point in reversed(compute_points(self.complete_allocations())):
            if point.workers not in self._said:
                self._say(point)

    def _say(self, point: AllocationPoint) -> None:
        self._said.add(point.workers)
        self._out.remark(
            f"{format_count(point.workers, 'worker')}: {point.samples_per_s:.4g} samples/s, "
            f"{format_duration(point.step_time_s)} a step"
        )

    def _check_fit(self, store: Store) -> None:
        """Raise ProfileMismatchError as soon as it shows that the figures cannot be added to the base."""
        base = self._finding.base
        if self._fits or base is None:
            return
        signature = _read_signature(store, self._info)
        if signature is None:
            return
        check_profile(base, signature)
        kinds = {e.fields["device_type"] for e in self._events if e.kind == "memory_measured"}
        if not kinds:
            return
        if kinds != {base.device_type}:
            raise ProfileMismatchError(
                f"the profile of {base.name!r} was taken on {base.device_type}, this machine has "
                f"{', '.join(sorted(kinds))}; write another file with --out"
            )
        self._fits = True


def _make_job(finding: Finding, node: NodeId, most: int) -> NewJob:
    return NewJob(
        name="profile",
        script=str(finding.script),
        arguments=finding.arguments,
        # Nothing is measured before the largest size is there.
        spec=Spec(wanted=most, minimum=most),
        launch=finding.launch,
        node=node,
    )


def _read_signature(store: Store, info: JobInfo) -> ModelSignature | None:
    return read_picture(store, info.job).view.signature
