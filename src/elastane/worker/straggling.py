"""The main worker's eye on slow workers: measure in the training thread, ask the store in the control thread.

Everybody knows everybody's compute time after each step, so anybody could watch; the worker with virtual
worker 0 does. What is slow is decided in `core.stragglers`, what to do about it in `core.relief`; it is asked
for as a person would ask, by the job's spec. A new main worker begins to watch with nothing in memory. A
request that met an outage is made again and only then remembered.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from elastane.core.cooling import Ledger
from elastane.core.relief import (
    Answer,
    Bear,
    Evict,
    Rebalance,
    Relief,
    ReliefSettings,
    Replace,
    Seat,
    Situation,
    decide_straggler,
    find_readmitted,
)
from elastane.core.stragglers import (
    DetectorSettings,
    StragglerWatch,
    Suspect,
    compute_slowness,
    level_speeds,
)
from elastane.core.view import JobView
from elastane.jobs.requests import (
    MAX_WORKERS,
    JobPicture,
    find_free_devices,
    read_picture,
    request_balance,
    request_evict,
    request_migrate,
    request_scale,
)
from elastane.model.ids import DeviceId, WorkerId
from elastane.model.records import JobPhase
from elastane.model.topology import Mode, Topology
from elastane.store.base import Store
from elastane.worker.control import Control

ASK_EVERY_S = 0.5
"""Pause between two looks at the store for a slow worker: far less than it takes to find one."""
FOUND_BY_SPEEDS = "speeds"
"""Said in place of a detector where measured speeds alone call for another placement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """Hold what the training thread has measured, and of whom."""

    topology: Topology
    suspects: Sequence[Suspect]
    speeds: Mapping[WorkerId, float]


class StragglerCare:
    """Look after slow workers for as long as this worker is the main one.

    `enter` and `observe` belong to the training thread; what touches the store runs in the control thread.
    """

    def __init__(self, control: Control, settings: ReliefSettings) -> None:
        self._control = control
        self._settings = settings
        self._detecting = DetectorSettings()
        self._watch = StragglerWatch(self._detecting)
        self._topology: Topology | None = None
        self._next_ask_s = 0.0
        self._ledger = Ledger()
        self._evicted: tuple[DeviceId, ...] = ()
        self._told = ""
        self._planned_for: _Measured | None = None
        self._planned: deque[Callable[[Store], None]] = deque()

    def enter(self, topology: Topology | None) -> None:
        """Watch the members of a new generation; nobody, if this is not its main worker."""
        self._topology = topology
        self._watch.restart()

    def observe(self, seconds: Sequence[float]) -> None:
        """Take each member's compute time per virtual worker in the step just committed."""
        topology = self._topology
        if topology is None or not seconds:
            return
        self._watch.observe(dict(zip((m.worker for m in topology.members), seconds, strict=True)))
        now_s = time.monotonic()
        if now_s < self._next_ask_s:
            return
        suspects, speeds = self._watch.suspects(), self._watch.speeds()
        unequal = len(set(level_speeds(list(speeds.values())))) > 1
        if suspects or unequal or self._evicted:
            self._next_ask_s = now_s + ASK_EVERY_S
            measured = _Measured(topology=topology, suspects=suspects, speeds=speeds)
            self._control.post(lambda store: self._care(store, measured))

    # --- the control thread -------------------------------------------------------------------------

    def _care(self, store: Store, measured: _Measured) -> None:
        """Decide and carry it out. Run again after an outage it goes on where it was."""
        if self._planned_for is not measured:
            self._planned = deque(self._plan(store, measured))
            self._planned_for = measured
        while self._planned:
            self._planned[0](store)
            self._planned.popleft()

    def _plan(self, store: Store, measured: _Measured) -> Iterator[Callable[[Store], None]]:
        """Return what is to be done, one request at a time: each is remembered when it went through."""
        picture = read_picture(store, self._control.context.job)
        if not is_quiet(picture.view, measured.topology):
            return
        now_s = time.monotonic()
        rested = find_readmitted(self._ledger, self._evicted, now_s)
        if rested:
            view = picture.view
            wanted = min(view.spec.wanted + len(rested), view.virtual_workers or MAX_WORKERS)
            yield partial(self._readmit, rested=rested, wanted=wanted)
            return
        situation = describe_situation(picture, measured.topology, measured.suspects, measured.speeds)
        relief = decide_straggler(situation, self._ledger, now_s, self._settings)
        yield from self._carry_out(situation, relief, now_s)
        yield lambda _store: self._tell(relief, situation)

    def _readmit(self, store: Store, *, rested: Sequence[DeviceId], wanted: int) -> None:
        request_scale(store, self._control.context.job, wanted)
        self._evicted = tuple(device for device in self._evicted if device not in rested)
        reason = f"{', '.join(rested)} rested after slowness: {len(rested)} more workers are asked for"
        self._control.events.append("straggler", action="readmit", reason=reason, devices=list(rested))

    def _tell(self, relief: Relief, situation: Situation) -> None:
        """Log a decision when its reason changes."""
        if relief.reason == self._told and isinstance(relief, Bear):
            return
        self._told = relief.reason
        if not relief.reason:
            return
        suspects = [suspect.worker for suspect in situation.suspects]
        seconds = {worker: 1 / speed for worker, speed in situation.speeds.items() if speed > 0}
        self._control.events.append(
            "straggler",
            action=type(relief).__name__.lower(),
            reason=relief.reason,
            workers=list(relief.workers) if isinstance(relief, Replace | Evict) else [],
            suspects=suspects,
            found_by=self._detecting.method.value if suspects else FOUND_BY_SPEEDS,
            slowness={worker: round(ratio, 3) for worker, ratio in compute_slowness(seconds).items()},
        )

    def _carry_out(
        self, situation: Situation, relief: Relief, now_s: float
    ) -> Iterator[Callable[[Store], None]]:
        """Return the requests that make up a decision."""
        devices = {seat.worker: seat.device for seat in situation.seats}
        match relief:
            case Rebalance(speeds=speeds):
                members = [seat.worker for seat in situation.seats]
                yield partial(self._balance, speeds=dict(zip(members, speeds, strict=True)))
            case Replace(workers=workers):
                resting = self._ledger.resting(now_s)
                fresh = [device for device in situation.free_devices if device not in resting]
                for worker, target in zip(workers, fresh, strict=False):
                    yield partial(
                        self._replace, worker=worker, device=devices[worker], target=target, now_s=now_s
                    )
            case Evict(workers=workers):
                for worker in workers:
                    yield partial(self._evict, worker=worker, device=devices[worker], now_s=now_s)
            case Bear():
                pass

    def _balance(self, store: Store, *, speeds: Mapping[WorkerId, float]) -> None:
        request_balance(store, self._control.context.job, speeds)

    def _replace(
        self, store: Store, *, worker: WorkerId, device: DeviceId, target: DeviceId, now_s: float
    ) -> None:
        if not self._is_leaving(store, worker):
            request_migrate(store, self._control.context.job, worker, target)
        self._ledger = self._ledger.note([device], now_s, self._settings.cooling)

    def _evict(self, store: Store, *, worker: WorkerId, device: DeviceId, now_s: float) -> None:
        if not self._is_leaving(store, worker):
            request_evict(store, self._control.context.job, worker)
        self._ledger = self._ledger.note([device], now_s, self._settings.cooling)
        self._evicted += (device,)

    def _is_leaving(self, store: Store, worker: WorkerId) -> bool:
        """Tell whether a worker was asked to go: by this one, if the answer to its request was lost."""
        return worker in read_picture(store, self._control.context.job).view.spec.leaving


def make_care(control: Control) -> StragglerCare | None:
    """Return what looks after slow workers as the job's command line has it; None if nothing does."""
    answer = Answer(control.context.stragglers)
    return None if answer is Answer.OFF else StragglerCare(control, ReliefSettings(answer=answer))


def is_quiet(view: JobView, topology: Topology) -> bool:
    """Tell whether the job trains in `topology` and no change of it is wished for or under way."""
    current, spec = view.current, view.spec
    return (
        current is not None
        and current.generation == topology.generation
        and current.mode is not Mode.STOP
        and view.status.phase is JobPhase.TRAINING
        and view.proposal is None
        and view.settled
        and not (spec.stop or spec.abort)
        and not any(view.alive(worker) for worker in spec.leaving)
    )


def describe_situation(
    picture: JobPicture, topology: Topology, suspects: Sequence[Suspect], speeds: Mapping[WorkerId, float]
) -> Situation:
    """Return the job as the decision about its slow workers sees it."""
    records = picture.view.members
    seats = [
        Seat(worker=m.worker, device=_name_device(picture.view, m.worker), vranks=m.vranks)
        for m in topology.members
        if m.worker in records
    ]
    return Situation(
        seats=seats,
        speeds=speeds,
        suspects=suspects,
        free_devices=find_free_devices(picture),
        minimum=picture.view.spec.minimum,
        dealt_evenly=bool(picture.view.batch),
    )


def _name_device(view: JobView, worker: WorkerId) -> DeviceId:
    record = view.members[worker]
    return DeviceId(f"{record.node}/{record.device}")
