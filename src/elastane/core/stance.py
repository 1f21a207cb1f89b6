"""Where a worker stands: the state that its training loop and its control loop share.

Pure state, no threads, no clock: a worker wraps it in a lock, the simulation drives it as it is. The
training loop asks at step boundaries and around commits; the control loop carries out what the rules of
`core.member` say. Which step may begin is up to `core.gate`. The links are somebody else's: a stance
keeps them and says when one is to be abandoned or closed, neither of which ever waits.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from msgspec import structs

from elastane.core.gate import Answer, ProposalId, StepGate, Switch, Wait
from elastane.core.member import (
    Accept,
    Acknowledge,
    Action,
    Candidate,
    Connect,
    DropCandidate,
    Halt,
    LinkPhase,
    LocalState,
    OfferPromise,
    Quit,
    ReportBroken,
)
from elastane.model.records import (
    Ack,
    Activity,
    ActivityKind,
    MemberRecord,
    Promised,
    Refused,
    WorkerPhase,
)
from elastane.model.topology import Topology

EXIT_GRACE_S = 5.0
"""How long a worker that must stop may take to reach a step boundary before it is ended on the spot."""


class Tie(Protocol):
    """Be a link, as far as a stance is concerned."""

    def abandon(self, reason: str, /) -> None:
        """Make all present and future waits for the link fail."""

    def close(self) -> None:
        """Give the link back after what was submitted."""


TieT = TypeVar("TieT", bound=Tie)


@dataclass(frozen=True, slots=True)
class GaveUp:
    """Tell that the worker has found the link of `generation` silent, and why it thinks so."""

    generation: int
    why: str


Outward = Connect | DropCandidate | Acknowledge | Quit | GaveUp
"""Actions that reach beyond the stance: links to build or to give up, acknowledgements to write, and news."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doing:
    """Say what the training loop does, since when, and how long an exchange may stay silent.

    Attributes:
        activity: what it does.
        since_s: monotonic clock of this worker.
        patience_s: for an exchange: after so much silence the link counts as cut.
    """

    activity: Activity
    since_s: float
    patience_s: float = 0.0


class Stance(Generic[TieT]):
    """Hold where one worker stands.

    Args:
        record: what the worker says of itself at first.
        wake: called when the control loop should look at once.
        notify: called when a waiting training loop should ask again.

    Attributes:
        links: candidate and committed links that have not been entered, by proposal.
        running: the link of the generation that the worker has entered.
        doing: what the training loop does.
        ordered: the order to quit, if there is one.
        quit_by_s: when a worker that was told to quit is ended on the spot.
        leaving: the training loop has begun to leave.
    """

    def __init__(
        self, record: MemberRecord, wake: Callable[[], object], notify: Callable[[], object]
    ) -> None:
        self.gate = StepGate()
        self.local = LocalState(worker=record.worker)
        self.record = record
        self.links: dict[ProposalId, TieT | None] = {}
        self.running: TieT | None = None
        self.doing = Doing(activity=Activity(kind=ActivityKind.RUNS, what="the script starts"), since_s=0.0)
        self.step_time_s = 0.0
        self.ordered: Quit | None = None
        self.quit_by_s = float("inf")
        self.leaving = False
        self._retired: list[TieT | None] = []
        self._wake = wake
        self._notify = notify

    # --- for the training loop ----------------------------------------------------------------------

    def announce_ready(self, virtual_workers: int, committed: int, *, restored_after: int = 0) -> None:
        """Say that this worker can take part; `committed` is the step that its own state stands at.

        `restored_after` is the generation whose loss made it load that state from a checkpoint; 0 if none.
        """
        self.gate.committed = committed
        self.local = replace(self.local, ready=True)
        self._note(
            phase=WorkerPhase.READY,
            virtual_workers=virtual_workers,
            committed_step=committed,
            restored_after=restored_after,
        )
        self._wake()

    def ask(self, step: int, now_s: float) -> Answer | Quit:
        """Answer a training loop that stands at the boundary before `step`."""
        if self.ordered is not None:
            return self.ordered
        answer = self.gate.try_begin(step)
        if isinstance(answer, Wait):
            self.note(ActivityKind.STANDS, answer.why, now_s)
        else:
            what = f"step {step}" if not isinstance(answer, Switch) else "entering a generation"
            self.note(ActivityKind.RUNS, what, now_s)
        return answer

    def ask_switch(self, step: int) -> Topology | Quit | None:
        """Answer a training loop that will begin no step any more: what it is to enter, if anything."""
        if self.ordered is not None:
            return self.ordered
        due = self.gate.try_switch(step)
        return due.topology if due is not None else None

    def note(self, kind: ActivityKind, what: str, now_s: float, patience_s: float = 0.0) -> None:
        """Remember what the training loop does from now on; saying the same twice changes nothing."""
        before = self.doing.activity
        if before.kind is kind and before.what == what:
            return
        activity = Activity(kind=kind, what=what, serial=before.serial + 1)
        self.doing = Doing(activity=activity, since_s=now_s, patience_s=patience_s)

    def begin_commit(self) -> bool | Quit:
        """Ask to commit the step in flight; False: drop it, it will be repeated."""
        return self.ordered if self.ordered is not None else self.gate.begin_commit()

    def end_commit(self, step_time_s: float, now_s: float) -> None:
        """Record that the step in flight is committed."""
        self.gate.end_commit()
        self.step_time_s = step_time_s
        self.note(ActivityKind.RUNS, "the script between two steps", now_s)
        self._close_retired()
        if self.gate.halted:
            self._wake()

    def end_gather(self, now_s: float) -> None:
        """Record that a gathering between two steps, which was begun like a commit, is through."""
        self.gate.end_gather()
        self.note(ActivityKind.RUNS, "the script between two steps", now_s)
        if self.gate.halted:
            self._wake()

    def entered(self, topology: Topology) -> None:
        """Record that the training loop holds the state of `topology` and uses its link from now on.

        A worker that leaves with it keeps its state at hand until the others have entered too.
        """
        me = self.record.worker
        name = ProposalId.of(topology)
        seated = topology.member(me) is not None
        self._retired.append(self.running)
        self.running = self.links.pop(name, None)
        self.gate.entered(topology, seated=seated, has_state=seated or me in topology.suppliers)
        candidate = self.local.candidate
        # A newer one may be under way already: somebody was lost in the middle of this switch.
        if candidate is not None and candidate.proposal == name:
            self.local = replace(self.local, candidate=None)
        self._note(
            phase=WorkerPhase.TRAINING, generation=topology.generation, committed_step=self.gate.committed
        )
        self._wake()

    def commit_failed(self, why: str) -> int:
        """Record that the step in flight was not committed, since a peer was lost; nothing was changed.

        Returns:
            The generation that cannot go on, if this worker is the first to say so to itself; else 0.
        """
        self.gate.busy = False
        if self.gate.halted:
            return 0
        return self.give_up(self.gate.newest_generation, why)

    def switch_failed(self, topology: Topology, why: str, *, has_state: bool) -> int:
        """Record that `topology` could not be entered; say whether the worker's old state is still whole.

        Returns:
            As for `commit_failed`.
        """
        self.gate.switch_failed(has_state=has_state)
        if self.gate.passed_over >= topology.generation:
            return 0
        return self.give_up(topology.generation, why)

    def give_up(self, generation: int, why: str) -> int:
        """Halt and tell the leader that `generation` cannot go on; return it."""
        self._halt(why)
        self._report_broken(generation)
        self._wake()
        return generation

    def announce_finished(self) -> None:
        """Say that this worker has come to the end of training."""
        self.local = replace(self.local, finished=True)
        self._note(phase=WorkerPhase.FINISHED, committed_step=self.gate.committed)
        self._wake()

    def close(self) -> None:
        """Give all links back."""
        self._retired += [self.running, *self.links.values()]
        self.running = None
        self.links.clear()
        self._close_retired()

    def _close_retired(self) -> None:
        # A commit in the new generation needs every member, so by then all are through with the old link.
        # Closed any earlier, it could break under a slower member that still finishes its last step.
        for link in self._retired:
            if link is not None:
                link.close()
        self._retired.clear()

    # --- for the control loop -----------------------------------------------------------------------

    def carry_out(self, action: Action, now_s: float) -> Outward | None:
        """Do what the rules say; return what is to be done beyond the stance, if anything."""
        outward: Outward | None = None
        match action:
            case Connect(topology):
                self.set_candidate(Candidate(proposal=ProposalId.of(topology), phase=LinkPhase.CONNECTING))
                outward = action
            case DropCandidate():
                self.set_candidate(None)
                outward = action
            case Halt(why):
                self._halt(why)
            case OfferPromise(proposal, step):
                begun = self.gate.offer_promise(proposal, step)
                outward = Acknowledge(proposal, Promised(step=step) if begun is None else Refused(at=begun))
            case Acknowledge():
                outward = action
            case Accept(topology):
                self.gate.accept(topology)
            case ReportBroken(generation):
                self._report_broken(generation)
            case Quit():
                outward = action if self.tell_to_quit(action, now_s) else None
        # A later step than the one promised before, for one, frees a training loop that waits for that one.
        self._notify()
        return outward

    def tell_to_quit(self, order: Quit, now_s: float) -> bool:
        """Make the training loop leave at its next boundary; tell whether this is news."""
        if self.ordered is not None:
            return False
        self.ordered = order
        self.quit_by_s = now_s + EXIT_GRACE_S
        if not order.clean:
            self._halt(order.reason)
            for link in self.links.values():
                if link is not None:
                    link.abandon(order.reason)
        self._notify()
        return True

    def set_candidate(self, candidate: Candidate | None) -> None:
        """Follow another proposal, or none; what was built or promised for an older one is dropped."""
        keep = ProposalId.of(self.gate.pending) if self.gate.pending else None
        for proposal in [p for p in self.links if p != keep]:
            link = self.links.pop(proposal)
            if link is not None:
                link.close()
        self.gate.withdraw()
        self.local = replace(self.local, candidate=candidate)
        self._notify()

    def keep_link(self, proposal: ProposalId, link: TieT | None, why: str) -> None:
        """Take the outcome of building a link: the link (None for a lone peer), or why it failed."""
        candidate = self.local.candidate
        if candidate is None or candidate.proposal != proposal:
            if link is not None:
                link.close()
            return
        if not why:
            self.links[proposal] = link
        phase = LinkPhase.FAILED if why else LinkPhase.CONNECTED
        self.local = replace(self.local, candidate=Candidate(proposal=proposal, phase=phase, why=why))
        self._wake()

    def acknowledged(self, proposal: ProposalId, ack: Ack) -> None:
        """Remember what was written last, so that it is written once."""
        self.local = replace(self.local, acked=(proposal, ack))

    def registered(self) -> None:
        """Remember that the worker's record is in the store: a view without it means loss from now on."""
        self.local = replace(self.local, registered=True)

    def refresh_progress(self) -> None:
        """Bring the record's progress up to date."""
        self._note(committed_step=self.gate.committed, step_time_s=self.step_time_s)

    def publish(self, activity: Activity | None) -> None:
        """Say in the record what the training loop has been doing for a while; None: it goes on."""
        if self.record.activity != activity:
            self._note(activity=activity, committed_step=self.gate.committed)

    def _halt(self, why: str) -> None:
        """Commit nothing more in the present generation and wake whoever waits for its link.

        A link that is being built for a newer proposal is left alone.
        """
        self.gate.halt()
        passed_over = max(self.gate.generation, self.gate.passed_over)
        for proposal, link in self.links.items():
            if link is not None and proposal.generation <= passed_over:
                link.abandon(why)
        if self.running is not None:
            self.running.abandon(why)
        self._notify()

    def _report_broken(self, generation: int) -> None:
        self.local = replace(self.local, broken=generation)
        self._note(broken=generation)

    def _note(self, **changes: object) -> None:
        self.record = structs.replace(self.record, **changes)
