"""Who should train: the membership that the records of a job ask for, whatever is going on right now.

Pure set arithmetic over the view. The leader compares the answer with the committed topology.
"""

from dataclasses import dataclass
from statistics import median_high

from elastane.core.placement import compute_step_time, is_worth_moving, plan_even, plan_placement
from elastane.core.view import JobView, compute_needed
from elastane.model.ids import WorkerId
from elastane.model.records import Leave, WorkerPhase
from elastane.model.topology import Member, Mode, Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Describe the next generation: its mode, members, leavers, who is new in it, and why."""

    mode: Mode
    members: tuple[Member, ...]
    leaving: tuple[WorkerId, ...] = ()
    joining: tuple[WorkerId, ...] = ()
    reason: str


def plan_change(view: JobView) -> Change | str | None:
    """Return the change that is due, None if all is as it should be.

    Returns:
        A text instead of a change where the job cannot go on: why not.
    """
    current = view.current
    if current is None:
        return _plan_start(view)
    trouble = find_trouble(view, current)
    if trouble:
        return _plan_recovery(view, current, trouble)
    if current.mode is Mode.STOP or not view.settled:
        return None  # one switch at a time: who has yet to enter this generation could miss it otherwise
    if view.spec.stop:
        return Change(
            mode=Mode.STOP,
            members=(),
            leaving=tuple(m.worker for m in current.members),
            reason="asked to stop",
        )
    return _plan_resize(view, current)


def ready_newcomers(view: JobView, current: Topology | None) -> list[WorkerId]:
    """Return who could be taken in, in the order of their ids."""
    taken = current.peers if current else ()
    return sorted(
        w
        for w, m in view.members.items()
        if m.phase is WorkerPhase.READY and w not in taken and view.alive(w) and w not in view.spec.leaving
    )


def _place(view: JobView, workers: list[WorkerId]) -> tuple[Member, ...]:
    virtual_workers = view.count_virtual_workers(len(workers))
    speeds = _speeds_of(view, workers)
    if speeds is None:
        ranges = plan_even(virtual_workers, len(workers))
    else:
        seats = [view.current.member(w) if view.current else None for w in workers]
        ranges = plan_placement(virtual_workers, speeds, [seat.vranks if seat else None for seat in seats])
    return tuple(Member(worker=w, vranks=r) for w, r in zip(workers, ranges, strict=True))


def _speeds_of(view: JobView, workers: list[WorkerId]) -> list[float] | None:
    """Return the workers' measured speeds; who has not been measured counts as most of the others."""
    known = [view.spec.speeds[w] for w in workers if w in view.spec.speeds]
    if not known or view.batch:
        return None
    typical = median_high(known)
    return [view.spec.speeds.get(w, typical) for w in workers]


def _plan_start(view: JobView) -> Change | str | None:
    if view.spec.stop:
        return "stopped before training began"
    ready = ready_newcomers(view, None)[: compute_needed(view)]
    if not ready or view.signature is None:
        return None
    return Change(
        mode=Mode.START,
        members=_place(view, ready),
        joining=tuple(ready),
        reason=f"start with {len(ready)} of {view.spec.wanted} wanted workers",
    )


def find_trouble(view: JobView, current: Topology) -> str:
    """Say what is wrong with the present generation; "" if nothing is.

    A leaver goes only when all members have entered: one that is gone before was lost, and with it what
    the others wait for in the generation before.
    """
    needed = [m.worker for m in current.members] if view.settled else current.peers
    lost = [w for w in needed if not view.alive(w)]
    if lost:
        left = [w for w in lost if w in current.leaving and w in view.exits and view.exits[w].code == 0]
        named = [w for w in lost if w not in left] or lost  # who was asked to go and went is no loss
        return f"lost {', '.join(_obituary(view, w) for w in named)}"
    cut_off = [w for w in current.peers if view.alive(w) and view.members[w].broken >= current.generation]
    return f"{', '.join(cut_off)} lost contact with a peer" if cut_off else ""


def _obituary(view: JobView, worker: WorkerId) -> str:
    if worker in view.exits:
        code = view.exits[worker].code
        if code is None:
            return f"{worker} (ended while no agent watched it)"
        return f"{worker} (killed by signal {-code})" if code < 0 else f"{worker} (exit code {code})"
    if worker in view.dismissed:
        return f"{worker} (dismissed)"
    return f"{worker} (no sign of life for the length of its lease)"


def _plan_restore(view: JobView, current: Topology, trouble: str) -> Change | str | None:
    """Begin anew, when nobody is left, with those that have loaded the newest checkpoint since."""
    if view.spec.stop or current.mode is Mode.STOP:
        return f"{trouble}, and no worker that holds the job's state is left"
    ready = sorted(ready_newcomers(view, current), key=lambda w: not view.has_restored(w))
    members = ready[: compute_needed(view)]
    if not members or not view.has_restored(members[0]):
        return None
    return Change(
        mode=Mode.RESTORE,
        members=_place(view, members),
        joining=tuple(members),
        reason=f"{trouble}, and nobody is left that holds the job's state: on from the newest checkpoint",
    )


def _plan_recovery(view: JobView, current: Topology, trouble: str) -> Change | str | None:
    survivors = [m.worker for m in current.members if view.alive(m.worker)]
    # Leavers of a change that never reached its switch step may be the only ones that hold the state.
    leavers = [w for w in current.leaving if view.alive(w)]
    if not survivors:
        survivors, leavers = leavers, []
    if not survivors:
        return _plan_restore(view, current, trouble)
    room = compute_needed(view) - len(survivors)
    spares = ready_newcomers(view, current)[: max(0, room)]
    # A step needs all members: while one has not entered a start, none was taken, and whoever is left may
    # begin anew with the state that it has itself.
    begins_anew = current.mode is Mode.START and not view.settled
    return Change(
        mode=Mode.START if begins_anew else Mode.RECOVERY,
        members=_place(view, (survivors + spares)[: view.virtual_workers]),
        leaving=tuple(leavers),
        joining=tuple(spares),
        reason=trouble,
    )


def _plan_resize(view: JobView, current: Topology) -> Change | None:
    wanted = compute_needed(view)
    order = [m.worker for m in current.members]
    going = [w for w in order if w in view.spec.leaving]
    staying = [w for w in order if w not in view.spec.leaving]
    surplus = staying[wanted:]
    staying = staying[:wanted]
    newcomers = ready_newcomers(view, current)[: wanted - len(staying)]
    vacancies = wanted - len(staying) - len(newcomers)
    # Who is to be replaced trains on until his replacement is ready; and somebody must hold the state.
    patient = [w for w in going if view.spec.leaving[w] is Leave.SWAP][: max(0, vacancies)]
    if not staying and not newcomers and not patient:
        return Change(
            mode=Mode.STOP, members=(), leaving=tuple(order), reason="the last worker was asked to leave"
        )
    leaving = tuple(w for w in order if w in surplus or (w in going and w not in patient))
    if not leaving and not newcomers:
        return _plan_rebalance(view, current)
    members = _seat(order, leaving, newcomers)
    return Change(
        mode=Mode.PLANNED,
        members=_place(view, members),
        leaving=leaving,
        joining=tuple(newcomers),
        reason=_explain(view, len(order), len(members), newcomers, leaving),
    )


def _plan_rebalance(view: JobView, current: Topology) -> Change | None:
    """Place the virtual workers of the same members by their speeds, if that makes steps shorter."""
    speeds = _speeds_of(view, [m.worker for m in current.members])
    if speeds is None:
        return None
    members = _place(view, [m.worker for m in current.members])
    present, planned = [m.vranks for m in current.members], [m.vranks for m in members]
    if not is_worth_moving(present, planned, speeds):
        return None
    before_s, after_s = compute_step_time(present, speeds), compute_step_time(planned, speeds)
    return Change(
        mode=Mode.PLANNED,
        members=members,
        reason=f"rebalanced by the workers' speeds: {1000 * before_s:.3g} -> {1000 * after_s:.3g} ms a step",
    )


def _seat(order: list[WorkerId], leaving: tuple[WorkerId, ...], newcomers: list[WorkerId]) -> list[WorkerId]:
    # A newcomer takes a leaver's seat, so that a migration moves no other virtual worker.
    fresh = iter(newcomers)
    seats = [w if w not in leaving else next(fresh, None) for w in order]
    return [w for w in (*seats, *fresh) if w is not None]


def _explain(
    view: JobView,
    before: int,
    after: int,
    newcomers: list[WorkerId],
    leaving: tuple[WorkerId, ...],
) -> str:
    parts = [f"{w} joins" for w in newcomers]
    parts += [f"{w} leaves ({_why_leaving(view, w)})" for w in leaving]
    return f"{before} -> {after} workers, {view.spec.wanted} wanted: {', '.join(parts)}"


def _why_leaving(view: JobView, worker: WorkerId) -> str:
    how = view.spec.leaving.get(worker)
    if how is None:
        return "no longer wanted"
    return "replaced" if how is Leave.SWAP else "asked to leave"
