"""Which worker of a job a drill may harm: anyone, as long as the job's state lives on somewhere else.

Pure: the moment, the dice and the means are the caller's. What came of it is judged in `observe/drills.py`.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from elastane.core.view import JobView
from elastane.model.ids import WorkerId


class Harm(StrEnum):
    """Say what is done to a worker."""

    KILL = "kill"
    """SIGKILL, as by a machine that runs out of memory."""
    FREEZE = "freeze"
    """SIGSTOP for longer than its lease, as by a machine that hangs; then SIGCONT."""
    SLOW = "slow"
    """Its computing takes so many times as long, as on a device that is too hot."""
    CONTEND = "contend"
    """Other processes use the processors, as by a neighbour's job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Name a worker to harm, and what it is to its job at this moment.

    Attributes:
        worker: its id.
        pid: its process, as it says itself.
        phase: preparing, ready (to join) or training.
        generation: that of the job; 0 before the first.
        seated: it is a member of that generation, so that the others need it for the next step.
        leader: it leads the job.
        main: it runs virtual worker 0, logs and saves.
        changing: a change of workers is under way.
        wanted: how many workers the job wants.
    """

    worker: WorkerId
    pid: int
    phase: str
    generation: int
    seated: bool
    leader: bool
    main: bool
    changing: bool
    wanted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Spared:
    """Say why nobody is harmed now."""

    reason: str


def find_safe_holders(view: JobView, harmed: Collection[WorkerId] = ()) -> tuple[WorkerId, ...]:
    """Return the workers that certainly hold the job's state and are going to stay.

    Args:
        view: the job.
        harmed: workers that have been harmed already; a frozen one looks alive as long as its lease.
    """
    current, proposal = view.current, view.proposal
    if current is None:
        return ()
    staying = [
        m.worker
        for m in current.members
        if view.alive(m.worker)
        and view.has_entered(m.worker)
        and m.worker not in harmed
        and m.worker not in view.spec.leaving
        and (proposal is None or proposal.member(m.worker) is not None)
    ]
    # Those beyond the number that is wanted are about to be sent away.
    return tuple(staying[: max(1, view.spec.wanted)])


def choose_target(
    view: JobView,
    reachable: Collection[WorkerId],
    harmed: Collection[WorkerId],
    draw: float,
    *,
    risk_all: bool = False,
) -> Target | Spared:
    """Choose whom to harm.

    Args:
        view: the job.
        reachable: workers whose processes the caller can signal.
        harmed: workers that have been harmed already.
        draw: the dice, 0 <= draw < 1: equal views and draws give equal choices.
        risk_all: the last worker that holds the state may be chosen, too.
    """
    living = sorted((w for w in view.members if view.alive(w) and w not in harmed), key=lambda w: (len(w), w))
    if not living:
        return Spared(reason="no worker lives that was not harmed already")
    here = [w for w in living if w in reachable]
    if not here:
        return Spared(reason=f"{', '.join(living)} run on other machines")
    holders = find_safe_holders(view, harmed)
    fit = [w for w in here if risk_all or any(holder != w for holder in holders)]
    if not fit:
        return Spared(reason=_explain_risk(holders))
    return _describe(view, fit[int(draw * len(fit))])


def _explain_risk(holders: tuple[WorkerId, ...]) -> str:
    if holders:
        return f"{holders[0]} alone holds the training state"
    return "no worker that is sure to stay holds the training state yet"


def _describe(view: JobView, worker: WorkerId) -> Target:
    current = view.current
    record = view.members[worker]
    return Target(
        worker=worker,
        pid=record.pid,
        phase=record.phase.value,
        generation=current.generation if current else 0,
        seated=current is not None and current.member(worker) is not None,
        leader=view.leader == worker,
        main=current is not None and bool(current.members) and current.members[0].worker == worker,
        changing=view.proposal is not None or not view.settled,
        wanted=view.spec.wanted,
    )
