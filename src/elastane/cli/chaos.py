"""The command that harms a running job on purpose and reports what came of it.

Whom it may harm is decided in `core/drills.py`, whose process that is found in `agent/strike.py`, and what it
did is read from the job's own log by `observe/drills.py`. Slow workers are the business of `cli/slowing.py`.
This module owns the clock, the dice and Ctrl-C.
"""

import random
import secrets
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Annotated

import msgspec
import typer

from elastane.agent.strike import Mark
from elastane.checkpoint.catalog import list_checkpoints
from elastane.checkpoint.target import open_job_target
from elastane.cli.contention import MAX_PROCESSES
from elastane.cli.drill_report import render_report, summarise_report
from elastane.cli.drill_watch import SOURCE, DrillWatch, find_main
from elastane.cli.exits import Exit
from elastane.cli.folder import check_folder
from elastane.cli.groups import option_group
from elastane.cli.options import Desk, JobArgument
from elastane.cli.output import Output
from elastane.cli.parse import parse_duration
from elastane.cli.slow_report import describe_order, render_slow_report, summarise_slow_report
from elastane.cli.slowing import SlowOrder, SlowSession, read_slow, warn
from elastane.cli.wording import format_duration
from elastane.core.drills import Harm, Spared, Target, choose_target, find_safe_holders
from elastane.core.view import JobView
from elastane.jobs.registry import find_job, read_launch
from elastane.jobs.requests import read_picture
from elastane.model.errors import ConfigError, JobStateError
from elastane.model.ids import NodeId, WorkerId
from elastane.model.records import JobInfo
from elastane.observe.drills import Drill, find_next_commit, find_workers_back, judge_drills
from elastane.observe.events import EventLog
from elastane.store.base import Store

LOOK_S = 0.05
"""Time between two looks: a recovery takes some 40 ms, and the report is read from the log afterwards."""
FREEZE_FACTOR = 1.5
"""A frozen worker is let go on after so many leases: by then all others have given it up."""
SETTLE_S = 20.0
"""How long the last drill may take, beside the lease: a cold start on a busy machine takes 15 s."""
EVERY = "5s"
"""Time between two drills unless said otherwise: a worker is back by then."""


@dataclass(kw_only=True)
class Session:
    """Hold a series of drills on one job."""

    store: Store
    info: JobInfo
    lease_s: float
    harm: Harm
    generator: random.Random
    out: Output
    risk_all: bool
    interrupted: bool = False
    drills: list[Drill] = field(default_factory=list)
    spared: list[str] = field(default_factory=list)
    frozen: list[tuple[float, Mark]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.watch = DrillWatch(self.store, self.info)
        self._log = EventLog(Path(self.info.directory), SOURCE)

    # --- looking -------------------------------------------------------------------------------------

    def look(self) -> JobView:
        """Read what is new; wake whoever was frozen long enough; return the job as it is."""
        self._wake_frozen(time.monotonic())
        return self.watch.look()

    @property
    def harmed(self) -> frozenset[WorkerId]:
        """Return all workers that were harmed so far."""
        return frozenset(drill.target.worker for drill in self.drills)

    def is_over(self) -> bool:
        """Tell whether the job has shown what the last drill did to it."""
        if not self.drills:
            return True
        last = self.drills[-1]
        after = [event for event in self.watch.events if event.at_s >= last.at_s]
        answered = find_next_commit(last, self.watch.metrics) is not None
        return answered and find_workers_back(last, after) is not None

    # --- harming -------------------------------------------------------------------------------------

    def strike(self) -> None:
        """Harm one worker, if one may be harmed now."""
        view = self.look()
        if view.status.phase.ended:
            return
        marks = self.watch.find_marks(view)
        try:
            choice = self._choose(view, marks)
            if isinstance(choice, Spared):
                self._spare(choice.reason)
            else:
                self._harm(choice, marks)
        finally:
            for mark in marks.values():
                mark.release()

    def _choose(self, view: JobView, marks: dict[WorkerId, Mark]) -> Target | Spared:
        """Choose whom to harm, by what runs at this moment."""
        node, main = self.watch.find_curve_elsewhere(view), find_main(view)
        if node:
            return Spared(reason=f"the loss curve, by which drills are judged, is written on node {node} now")
        reachable = set(marks)
        if main in reachable and self.watch.has_other_folders(view):
            reachable.discard(main)
            if not reachable:
                return Spared(
                    reason=f"without {main} the loss curve would go on on a node that is not seen here"
                )
        draw = self.generator.random()
        risk_all = self.risk_all or self._may_risk_last(view)
        return choose_target(view, reachable, self.harmed, draw, risk_all=risk_all)

    def _may_risk_last(self, view: JobView) -> bool:
        """Tell whether the last worker that holds the state may be harmed: the job wants no other, and has a
        checkpoint."""
        return is_alone(view) and self.has_checkpoint()

    def has_checkpoint(self) -> bool:
        """Tell whether the job has a checkpoint to go on from."""
        plan = read_launch(self.store, self.info.job).checkpoints
        target = open_job_target(plan, self.info.directory, self.info.job)
        return any(listing.complete and not listing.problem for listing in list_checkpoints(target))

    def _harm(self, target: Target, marks: dict[WorkerId, Mark]) -> None:
        mark = marks[target.worker]
        at_s = time.time()
        number = signal.SIGKILL if self.harm is Harm.KILL else signal.SIGSTOP
        if not mark.signal(number):
            self._spare(f"{target.worker} ended by itself at this moment")
            return
        if self.harm is Harm.FREEZE:
            self.frozen.append((time.monotonic() + self.lease_s * FREEZE_FACTOR, marks.pop(target.worker)))
        drill = Drill(number=len(self.drills) + 1, harm=self.harm, at_s=at_s, target=target)
        self.drills.append(drill)
        self._log.append("drill", worker=target.worker, harm=self.harm.value, reason="asked for by a person")
        verb = "killed" if self.harm is Harm.KILL else "froze"
        self.out.remark(f"{drill.number}: {verb} {describe_target(target)}")

    def _spare(self, reason: str) -> None:
        self.spared.append(reason)
        self.out.remark(f"nobody harmed: {reason}")

    def _wake_frozen(self, now_s: float) -> None:
        for _, mark in [entry for entry in self.frozen if entry[0] <= now_s]:
            mark.signal(signal.SIGCONT)
            mark.release()
        self.frozen = [entry for entry in self.frozen if entry[0] > now_s]

    def close(self) -> None:
        """Let everybody who is frozen go on, and close the log."""
        self._wake_frozen(float("inf"))
        self._log.close()


@option_group
@dataclass(frozen=True, slots=True, kw_only=True)
class KillFlags:
    """Hold how workers are killed or frozen."""

    kill_every: Annotated[
        str | None,
        typer.Option(
            "--kill-every", metavar="TIME", help=f"Time between two drills: 5s, 500ms, 1m [{EVERY}]."
        ),
    ] = None
    freeze: Annotated[
        bool, typer.Option("--freeze", help="Freeze workers for longer than their lease, not kill them.")
    ] = False
    seed: Annotated[
        int | None, typer.Option("--seed", help="Choose the same workers as the drill that named this seed.")
    ] = None
    yes: Annotated[
        bool, typer.Option("--yes", help="Harm also the only worker that holds the training state.")
    ] = False

    @property
    def given(self) -> bool:
        """Tell whether any of them was given."""
        return self != KillFlags()


@option_group
@dataclass(frozen=True, slots=True, kw_only=True)
class SlowFlags:
    """Hold who is made slow, instead of killing anybody."""

    slow: Annotated[
        list[str] | None,
        typer.Option(
            "--slow",
            metavar="WORKER=TIMES",
            help="Make a worker so many times as slow, by its id or place: w2=1.33. May be repeated.",
        ),
    ] = None
    contend: Annotated[
        int,
        typer.Option(
            "--contend",
            metavar="N",
            min=0,
            max=MAX_PROCESSES,
            help="Keep N processes busy on this machine, beside the job.",
        ),
    ] = 0

    @property
    def given(self) -> bool:
        """Tell whether any of them was given."""
        return bool(self.slow) or self.contend > 0


def chaos(
    job: JobArgument,
    *,
    kills: KillFlags,
    slow: SlowFlags,
    duration: Annotated[str, typer.Option("--for", metavar="TIME", help="How long to go on.")] = "60s",
    desk: Desk,
) -> int:
    """Kill, freeze or slow down workers of your own job, and report what that did to it.

    The job should train on without losing a step. Ctrl-C ends the drills and reports.
    """
    for_s = parse_duration(duration)
    if slow.given and kills.given:
        raise ConfigError(
            "--slow and --contend make workers slow and harm nobody; --kill-every, --freeze, --seed and "
            "--yes are for the other drills: give two commands, one after the other or at the same time"
        )
    with desk.open() as store:
        info = find_job(store, job)
        agents = read_picture(store, info.job).agents
        folder = check_folder(info, desk.resolve(), agents, "events and the loss curve")
        info = msgspec.structs.replace(info, directory=str(folder))  # as this machine sees it
        if slow.given:
            return hold_slow_drill(store, info, slow, for_s, desk.output())
        return hold_drills(store, info, kills, for_s, desk.output())


def hold_drills(store: Store, info: JobInfo, kills: KillFlags, for_s: float, out: Output) -> int:
    """Kill or freeze workers for a while, and report; return the exit code."""
    every_s = parse_duration(kills.kill_every or EVERY)
    number = secrets.randbelow(1_000_000) if kills.seed is None else kills.seed
    session = Session(
        store=store,
        info=info,
        lease_s=read_launch(store, info.job).lease_s,
        harm=Harm.FREEZE if kills.freeze else Harm.KILL,
        generator=random.Random(number),
        out=out,
        risk_all=kills.yes,
    )
    try:
        check_drillable(session, session.look())
        out.remark(f"drills on job {info.job} ({info.name}) for {format_duration(for_s)}, seed {number}")
        with _interruptible(session):
            run_drills(session, every_s, for_s)
        report = judge_drills(session.drills, session.watch.read_curve(), session.watch.events)
    finally:
        session.close()
    data = summarise_report(info, number, session.harm, session.spared, report)
    out.show(data, render_report(report, session.spared))
    return Exit.DONE if report.harmless else Exit.FAILED


def hold_slow_drill(store: Store, info: JobInfo, flags: SlowFlags, for_s: float, out: Output) -> int:
    """Make workers slow for a while, and report; return the exit code."""
    view = read_picture(store, info.job).view
    _check_trains(info, view)
    launch = read_launch(store, info.job)
    order = SlowOrder(slow=read_slow(flags.slow or [], view), processes=flags.contend, for_s=for_s)
    for remark in warn(order, launch, view):
        out.remark(remark)
    out.remark(f"drill on job {info.job} ({info.name}) for {format_duration(for_s)}: {describe_order(order)}")
    session = SlowSession(store=store, info=info, launch=launch, order=order)
    _check_curve_here(info, session.watch, session.watch.look())
    with _interruptible(session):
        report = session.run()
    if session.ended:
        out.remark("the job has ended meanwhile: the report is about what there was of it")
    out.show(summarise_slow_report(info, report, order), render_slow_report(report))
    return Exit.DONE if report.passed else Exit.FAILED


def check_drillable(session: Session, view: JobView) -> None:
    """Raise JobStateError if the job may not be harmed at all; the message says what to do."""
    info = session.info
    _check_trains(info, view)
    marks = session.watch.find_marks(view)
    for mark in marks.values():
        mark.release()
    if not marks:
        nodes = ", ".join(sorted({m.node for m in view.members.values()})) or "nowhere"
        raise JobStateError(
            f"no worker of job {info.job} runs on this machine as this user (they run on {nodes}); "
            "give the command there"
        )
    _check_curve_here(info, session.watch, view)
    if is_alone(view) and not session.risk_all and not session.has_checkpoint():
        raise JobStateError(
            f"{min(marks)} alone holds the training state of job {info.job}, which has no checkpoint: it "
            f"would begin anew; add a worker (`elastane scale {info.job} 2`), or give --yes"
        )


def _check_curve_here(info: JobInfo, watch: DrillWatch, view: JobView) -> None:
    node = watch.find_curve_elsewhere(view)
    if node:
        raise JobStateError(
            f"the loss curve of job {info.job}, by which drills are judged, is written on node {node}, in "
            f"{view.agents[NodeId(node)].directory}; give the command there"
        )


def is_alone(view: JobView) -> bool:
    """Tell whether one worker holds the job's state, and neither is nor is wanted another."""
    living = sum(view.alive(worker) for worker in view.members)
    return len(find_safe_holders(view)) < 2 and max(living, view.spec.wanted) < 2


def _check_trains(info: JobInfo, view: JobView) -> None:
    phase = view.status.phase
    if phase.ended:
        raise JobStateError(f"job {info.job} has ended: {phase.value}; start one, and let the drills begin")
    if view.current is None:
        raise JobStateError(f"job {info.job} has not begun to train; try again when it does")
    if view.spec.stop:
        raise JobStateError(f"job {info.job} is about to stop")


def run_drills(session: Session, every_s: float, for_s: float) -> None:
    """Strike again and again until the time is up, the job has ended or somebody interrupts; then watch."""
    now_s = time.monotonic()
    end_s = now_s + for_s
    next_s = now_s + min(every_s, for_s) / 2  # the first one soon, so that short series hold one
    while not session.interrupted and now_s < end_s:
        if session.look().status.phase.ended:
            return
        if now_s >= next_s:
            session.strike()
            next_s += every_s
        time.sleep(LOOK_S)
        now_s = time.monotonic()
    deadline_s = now_s + session.lease_s * FREEZE_FACTOR + SETTLE_S
    while not session.is_over() and time.monotonic() < deadline_s:
        if session.look().status.phase.ended:
            break
        time.sleep(LOOK_S)
    session.look()


def describe_target(target: Target) -> str:
    """Say who was harmed, and what it was to its job."""
    roles = [name for name, holds in (("leader", target.leader), ("main worker", target.main)) if holds]
    change = ["while workers changed"] if target.changing else []
    return ", ".join([f"{target.worker} ({', '.join([*roles, target.phase])})", *change])


@contextmanager
def _interruptible(session: Session | SlowSession) -> Iterator[None]:
    """Let the first Ctrl-C end the drills; the second one ends the command."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        if session.interrupted:
            raise KeyboardInterrupt
        session.interrupted = True

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
