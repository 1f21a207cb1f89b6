"""Make workers of a running job slow, or their machine busy, and see what the job does about it.

What a slow worker does is in `worker/braking.py`; what came of it is read from the job's own log by
`observe/slowdowns.py`. This module owns the clock. Whatever becomes of it, nobody stays slow: the orders
hang on a lease of this process, each has an end, and busy processes watch over the life of the one that
started them.
"""

import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from elastane.cli.contention import Contention
from elastane.cli.drill_watch import DrillWatch
from elastane.cli.parse import parse_slowness
from elastane.core.drills import Harm
from elastane.core.view import JobView
from elastane.jobs.slowdowns import SlowdownLease
from elastane.model.errors import ConfigError, StoreError
from elastane.model.ids import WorkerId
from elastane.model.records import JobInfo, Launch, Slowdown
from elastane.observe.events import EventLog
from elastane.observe.slowdowns import SETTLING_STEPS, SlowDrill, SlowReport, judge_slow_drill
from elastane.store.base import Store

LOOK_S = 0.05
"""Time between two looks, far less than it takes to find a slow worker."""
AFTER_STEPS = SETTLING_STEPS + 20
"""Steps that are watched when nobody is slow any more: enough for a median."""
AFTER_S = 20.0
"""How long they may take: a job of long steps is not waited for."""
OFF = "off"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowOrder:
    """Say who is to be slow, how many processes are to be busy, and for how long."""

    slow: Mapping[WorkerId, float]
    processes: int
    for_s: float


@dataclass(kw_only=True)
class SlowSession:
    """Hold one such drill on one job.

    Attributes:
        store: a handle of the calling thread.
        info: the job.
        launch: how it was started.
        order: what is to be done.
        interrupted: somebody wants this to end: set from a signal handler.
        ended: the job has ended meanwhile.
        trouble: what went wrong with the drill itself.
    """

    store: Store
    info: JobInfo
    launch: Launch
    order: SlowOrder
    interrupted: bool = False
    ended: bool = False
    trouble: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.watch = DrillWatch(self.store, self.info)
        self._gone_at: int | None = None
        self._drill = secrets.token_hex(4)
        self._lease = SlowdownLease(self.store, self.info.job, self.launch.lease_s)

    def run(self) -> SlowReport:
        """Make slow, wait, let go, watch what follows; return what came of it.

        Raises:
            JobStateError: a worker has gone before it could be made slow.
            StoreError: the store cannot be reached.
        """
        view = self.watch.look()
        self._log_drill()
        try:
            with Contention(self.order.processes, self.order.for_s):
                begun_s = time.time()
                if self.order.slow:
                    self._lease.begin(self._make_orders(), time.monotonic())
                self._wait(self.order.for_s, self._is_over)
        finally:
            self._let_go()
        ended_s = time.time()
        # What was said so far was about the drill, and is done.
        self.interrupted = False
        self._watch_on()
        drill = SlowDrill(
            drill=self._drill,
            factors={str(worker): factor for worker, factor in self.order.slow.items()},
            processes=self.order.processes,
            begun_s=begun_s,
            ended_s=ended_s,
            unseen=frozenset(map(str, self.watch.find_unseen(view, self.order.slow))),
            findable=self.launch.stragglers != OFF and bool(find_unharmed(view, self.order.slow)),
        )
        report = judge_slow_drill(drill, self.watch.read_curve(), self.watch.events)
        return replace(report, trouble=(*self.trouble, *report.trouble))

    def _let_go(self) -> None:
        """Take the orders back; if the store is away they end with their lease."""
        try:
            self._lease.end()
        except StoreError as error:
            _log.warning("workers may stay slow for %g s more: %s", self.launch.lease_s, error)

    def _watch_on(self) -> None:
        """See what follows, as far as that can be seen: the drill is over, and is reported anyway."""
        goal = self._last_step() + AFTER_STEPS
        try:
            self._wait(AFTER_S, lambda _view: self._last_step() >= goal)
        except StoreError as error:
            _log.warning("what followed the drill is not in the report: %s", error)

    def _make_orders(self) -> dict[WorkerId, Slowdown]:
        for_s = self.order.for_s
        return {
            worker: Slowdown(factor=factor, for_s=for_s, drill=self._drill)
            for worker, factor in self.order.slow.items()
        }

    def _log_drill(self) -> None:
        log = EventLog(Path(self.info.directory), "chaos")
        reason = "asked for by a person"
        for worker, factor in self.order.slow.items():
            log.append("drill", worker=worker, harm=Harm.SLOW.value, factor=factor, reason=reason)
        if self.order.processes:
            count = self.order.processes
            log.append("drill", worker="", harm=Harm.CONTEND.value, processes=count, reason=reason)
        log.close()

    def _last_step(self) -> int:
        return self.watch.metrics[-1].step if self.watch.metrics else -1

    def _is_over(self, view: JobView) -> bool:
        """Tell whether nobody is slow any more: all went some steps ago, or the orders were lost."""
        if not self._lease.renew(time.monotonic()) and self.order.slow:
            self.trouble.append("this command was held up for longer than its lease: the drill ended early")
            return True
        if self.order.processes or any(view.alive(worker) for worker in self.order.slow):
            return False
        if self._gone_at is None:
            self._gone_at = self._last_step()
        return self._last_step() >= self._gone_at + AFTER_STEPS

    def _wait(self, for_s: float, is_over: Callable[[JobView], bool]) -> None:
        """Look until the time is up, the job has ended, it is over, or somebody interrupts."""
        deadline_s = time.monotonic() + for_s
        while not self.interrupted and time.monotonic() < deadline_s:
            view = self.watch.look()
            self.ended = view.status.phase.ended
            if self.ended or is_over(view):
                return
            time.sleep(LOOK_S)
        self.watch.look()


def find_unharmed(view: JobView, slow: Mapping[WorkerId, float]) -> list[WorkerId]:
    """Return the members of the job that stay at their own speed."""
    members = view.current.members if view.current is not None else ()
    return [m.worker for m in members if view.alive(m.worker) and m.worker not in slow]


def read_slow(texts: list[str], view: JobView) -> dict[WorkerId, float]:
    """Return who is to be how many times as slow.

    Args:
        texts: as `parse_slowness` reads them; a number names a member by its place.
        view: the job.

    Raises:
        ConfigError: a text says nothing, or names nobody, or somebody who was named before.
    """
    slow: dict[WorkerId, float] = {}
    for text in texts:
        name, factor = parse_slowness(text)
        worker = _resolve(name, view)
        if worker in slow:
            raise ConfigError(f"--slow names {worker} twice; one number for each worker")
        slow[worker] = factor
    return slow


def _resolve(name: str, view: JobView) -> WorkerId:
    members = [m.worker for m in (view.current.members if view.current is not None else ())]
    living = [worker for worker in members if view.alive(worker)]
    if name in living:
        return WorkerId(name)
    if name.isascii() and name.isdigit() and int(name) < len(members):
        return members[int(name)]
    present = ", ".join(f"{place}: {worker}" for place, worker in enumerate(members)) or "none"
    raise ConfigError(f"--slow names {name!r}, which trains not in this job; it has {present}")


def warn(order: SlowOrder, launch: Launch, view: JobView) -> list[str]:
    """Return what somebody should know who expects an answer and will see none."""
    remarks = []
    if launch.stragglers == OFF:
        remarks.append("nothing will be done about it: this job runs with --stragglers off")
    elif order.slow and not find_unharmed(view, order.slow):
        remarks.append(
            "nobody will be found: there is no worker of full speed to compare with"
            + (" (a lone worker is never slow)" if len(order.slow) == 1 else "")
        )
    return remarks
