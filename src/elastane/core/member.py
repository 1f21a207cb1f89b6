"""What a worker must do now, given what the store says and where it stands: its side of the protocol.

Level-triggered: `react` compares the whole view with the whole local state and returns the actions that
close the difference. It is asked again after every change of either, so a lost event does no harm.
The shell (worker/control.py, or the simulation) carries the actions out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from elastane.core.gate import ProposalId, StepGate
from elastane.core.view import JobView
from elastane.model.ids import WorkerId
from elastane.model.records import Ack, Connected, Failed, JobPhase, Promised, Refused, WorkerPhase
from elastane.model.topology import Mode, Topology


class LinkPhase(StrEnum):
    """Say how far the link of a proposed generation is."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Describe the link that is being built, or stands ready, beside the running one."""

    proposal: ProposalId
    phase: LinkPhase
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalState:
    """Show where a worker stands, beside its gate.

    Attributes:
        worker: its id.
        ready: its script has come to the training loop and it can take part.
        registered: its record has been seen in the store at least once, so a view without it means loss.
        finished: it has come to the end of training.
        candidate: the newest link it was asked to build.
        broken: the newest generation whose link it found broken; 0 = none.
        acked: the acknowledgement it wrote last, and to which proposal.
    """

    worker: WorkerId
    ready: bool = False
    registered: bool = False
    finished: bool = False
    candidate: Candidate | None = None
    broken: int = 0
    acked: tuple[ProposalId, Ack] | None = None


@dataclass(frozen=True, slots=True)
class Connect:
    """Build the link of `topology` beside the running one; drop any older candidate."""

    topology: Topology


@dataclass(frozen=True, slots=True)
class DropCandidate:
    """Forget the candidate link; its proposal is gone."""

    why: str


@dataclass(frozen=True, slots=True)
class Halt:
    """Commit nothing more in the present generation and abandon its link."""

    why: str


@dataclass(frozen=True, slots=True)
class OfferPromise:
    """Promise not to begin `step`, or refuse if it has begun, and acknowledge either."""

    proposal: ProposalId
    step: int


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Write `ack` for `proposal`."""

    proposal: ProposalId
    ack: Ack


@dataclass(frozen=True, slots=True)
class Accept:
    """Hand a committed generation to the gate."""

    topology: Topology


@dataclass(frozen=True, slots=True)
class ReportBroken:
    """Tell the leader that the link of `generation` is broken."""

    generation: int


@dataclass(frozen=True, slots=True)
class Quit:
    """End this worker: the job has ended or goes on without it. `clean` tells which exit code to use."""

    reason: str
    clean: bool = True


Action = Connect | DropCandidate | Halt | OfferPromise | Acknowledge | Accept | ReportBroken | Quit


def react(view: JobView, local: LocalState, gate: StepGate) -> tuple[Action, ...]:
    """Return what the worker must do now, in order.

    Source: EDL section 4 for the shape of a planned change; promises instead of its time allowance.
    """
    quit_now = _reason_to_quit(view, local, gate)
    if quit_now is not None:
        return (quit_now,)
    return (*_follow_current(view, local, gate), *_follow_proposal(view, local, gate))


def may_save(view: JobView, worker: WorkerId, gate: StepGate) -> bool:
    """Tell whether `worker` is the one that saves the state of a stopping job: all stand where it stands."""
    current = view.current
    if current is None or current.mode is not Mode.STOP or gate.generation != current.generation:
        return False
    first = next((w for w in current.leaving if view.alive(w)), None)
    return first == worker and view.settled and not gate.halted


def may_finish(view: JobView, worker: WorkerId) -> bool:
    """Tell whether `worker`, which has come to the end of training, may go.

    Whoever still trains may have missed the end of the last step, and then needs the state. One that has
    left with the present generation needs nothing, however long its script takes to end.
    """
    trains = [w for w, m in view.members.items() if m.phase is WorkerPhase.TRAINING and view.alive(w)]
    return view.status.phase.ended or not any(w != worker and not _is_out(view, w) for w in trains)


def _is_out(view: JobView, worker: WorkerId) -> bool:
    current = view.current
    return current is not None and current.member(worker) is None and view.has_entered(worker)


def _reason_to_quit(view: JobView, local: LocalState, gate: StepGate) -> Quit | None:
    me = local.worker
    phase = view.status.phase
    if me in view.dismissed:
        # A member may be in the middle of a step, in an exchange with somebody who is gone.
        return Quit(view.dismissed[me].reason, clean=not gate.seated)
    reasons = {
        "the agent has already counted this process as ended": me in view.exits,
        "the lease was lost: the others go on without this worker": local.registered
        and me not in view.members,
        f"the job failed: {view.status.message}": phase is JobPhase.FAILED,
        "a newer generation was formed without this worker": gate.seated and _is_passed(view, me, gate),
        "the job has finished, and this worker has lost the others on the way": gate.halted
        and gate.seated
        and not local.finished
        and phase is JobPhase.FINISHED,
        "the job has stopped without this worker": gate.seated and phase is JobPhase.STOPPED,
    }
    for reason, holds in reasons.items():
        if holds:
            return Quit(reason, clean=False)
    if me in view.spec.leaving and _is_outside(view, me, gate):
        return Quit("asked to leave before it took part")
    if phase.ended and not gate.seated:
        return Quit(f"the job has {phase.value} and needs this worker no more")
    if gate.generation and not gate.seated and _has_left(view, me, gate):
        return Quit("all others have entered the generation without this worker")
    return None


def _is_outside(view: JobView, me: WorkerId, gate: StepGate) -> bool:
    """Tell whether a worker is in no generation, current, proposed or about to be entered."""
    generations = [g for g in (view.current, view.proposal, gate.pending) if g is not None]
    return gate.generation == 0 and not any(me in g.peers for g in generations)


def _is_passed(view: JobView, me: WorkerId, gate: StepGate) -> bool:
    current = view.current
    return current is not None and gate.generation < current.generation and me not in current.peers


def _has_left(view: JobView, me: WorkerId, gate: StepGate) -> bool:
    """Tell whether nobody needs the state of a worker that has no seat in its generation."""
    current = view.current
    if current is None or current.mode is Mode.STOP or gate.pending is not None:
        return False  # a stop is over when the job's status says so
    entered = gate.generation == current.generation and all(view.has_entered(w) for w in current.awaited)
    return entered or _is_passed(view, me, gate)


def _follow_current(view: JobView, local: LocalState, gate: StepGate) -> Iterator[Action]:
    current = view.current
    if current is None or local.worker not in current.peers:
        return
    if current.generation > gate.newest_generation:
        yield Accept(current)
        stuck = gate.halted and not current.mode.repairs  # the gate will pass over it
    else:
        stuck = gate.halted and gate.pending is None
    # Who has halted goes on in a recovery only. The leader hears of it under the generation that it knows as
    # current: the loss may lie in the one before, or a recovery was withdrawn as its trouble had passed.
    if stuck and local.broken < current.generation:
        yield ReportBroken(current.generation)


def _follow_proposal(view: JobView, local: LocalState, gate: StepGate) -> Iterator[Action]:
    proposal = view.proposal
    accepted = ProposalId.of(gate.pending) if gate.pending else None
    candidate = local.candidate
    if proposal is None or local.worker not in proposal.peers:
        in_use = view.current is not None and candidate is not None
        committed = in_use and candidate.proposal == ProposalId.of(view.current)  # type: ignore[union-attr,arg-type]
        if candidate is not None and candidate.proposal != accepted and not committed:
            yield DropCandidate("the proposal was withdrawn")
        return
    name = ProposalId.of(proposal)
    if candidate is None or candidate.proposal != name:
        # A newcomer may see the generation that takes it in and the loss of a peer of it in one view.
        takes_part = view.current is not None and local.worker in view.current.peers
        if proposal.mode.repairs and (takes_part or gate.pending is not None):
            yield Halt(proposal.reason)
        yield Connect(proposal)
    else:
        yield from _acknowledge(view, proposal, candidate, local, gate)


def _acknowledge(
    view: JobView, proposal: Topology, candidate: Candidate, local: LocalState, gate: StepGate
) -> Iterator[Action]:
    name = candidate.proposal
    if candidate.phase is LinkPhase.FAILED:
        yield from _once(local, name, Failed(why=candidate.why))
    elif candidate.phase is LinkPhase.CONNECTED:
        step = proposal.switch_step
        old = view.current
        must_promise = step is not None and old is not None and old.member(local.worker) is not None
        if not must_promise:
            yield from _acknowledge_link(view, proposal, name, local, gate)
        elif not _answered(local, name, step):
            assert step is not None
            yield OfferPromise(name, step)


def _acknowledge_link(
    view: JobView, proposal: Topology, name: ProposalId, local: LocalState, gate: StepGate
) -> Iterator[Action]:
    if proposal.mode.repairs and gate.halted:
        if gate.halted_at is not None:
            holds = gate.has_state or proposal.mode is Mode.START
            ack = Connected(halted_at=gate.halted_at, gathered=gate.gathered) if holds else Connected()
            yield from _once(local, name, ack)
    elif proposal.mode is Mode.START or (proposal.mode is Mode.RESTORE and view.has_restored(local.worker)):
        yield from _once(local, name, Connected(halted_at=gate.committed))
    else:
        yield from _once(local, name, Connected())


def _once(local: LocalState, name: ProposalId, ack: Ack) -> Iterator[Action]:
    if local.acked != (name, ack):
        yield Acknowledge(name, ack)


def _answered(local: LocalState, name: ProposalId, step: int | None) -> bool:
    if local.acked is None or local.acked[0] != name:
        return False
    ack = local.acked[1]
    # The leader answers a refusal with a larger step, which is then asked for anew.
    return ack == Promised(step=step or 0) or (isinstance(ack, Refused) and ack.at >= (step or 0))
