"""What the control loop of a worker does with the store: the next errand, and what follows from its outcome.

Theory of operation. A turn is: upkeep (the lease, the own record), a fresh view, what the rules say, deeds
(acknowledgements, leading). Each errand is derived from what is wanted and what is known to be written, so
one that failed is derived again: while the store is out of reach the loop just goes on trying. A request
that failed may have taken effect, or may still do so; the guards make that harmless.

Rules
- The lease counts from before the last renewal that succeeded was asked for.
- Once it has run out while the store cannot be reached, the worker fences itself: it commits nothing more
  and goes, since by then the others may go on without it.

Pure: the shell (worker/control.py, or the simulation) has the clock, the store and the links.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Generic

from elastane.core.blame import find_late, is_silent, progress_of
from elastane.core.gate import ProposalId, StepGate
from elastane.core.leader import Decision, LeaderSettings, Sight, decide, may_lead
from elastane.core.lookout import Lookout, guard_decision
from elastane.core.member import Acknowledge, Action, LocalState, Quit, react
from elastane.core.stance import GaveUp, Outward, Stance, TieT
from elastane.core.view import JobView
from elastane.model.errors import LeaseLostError
from elastane.model.ids import JobId, WorkerId
from elastane.model.records import Ack, ActivityKind, JobKeys, MemberRecord

RENEW_AFTER = 1 / 3
"""Part of the lease after which it is renewed, so that two renewals may be late before it is lost."""
PUBLISH_AFTER_S = 2.0
"""A training loop that does one thing for longer says so in the record. Far beyond most steps: a record that
says so costs the store a write, and everybody a look."""
RETRY_S = 0.1
"""Pause between two attempts to reach a store that does not answer: it adds little to a short outage."""


@dataclass(frozen=True, slots=True)
class RenewLease:
    """Renew the lease."""


@dataclass(frozen=True, slots=True)
class WriteRecord:
    """Write the own record under the lease, if it was last written at revision `over`; 0 = it is absent."""

    record: MemberRecord
    over: int


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """Read at which revision the own record was written; it must be there and hang on the own lease."""


@dataclass(frozen=True, slots=True)
class WriteAck:
    """Write the answer to a proposal under the lease."""

    proposal: ProposalId
    ack: Ack


@dataclass(frozen=True, slots=True)
class TakeLead:
    """Become the leader, under the lease, if there is none."""


@dataclass(frozen=True, slots=True)
class WriteDecision:
    """Write what the leader has decided, if what it rests on stands; None stands for an absent key."""

    decision: Decision
    guards: Mapping[str, bytes | None]


Errand = RenewLease | WriteRecord | ReadRecord | WriteAck | TakeLead | WriteDecision


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Tell whether an errand took effect, and at which revision."""

    succeeded: bool
    revision: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Explain a long wait of the training loop.

    Attributes:
        why: for what it waits.
        since_s: when that began, on the worker's clock.
        late: for whom, as far as is known.
        until_s: when that ends at the latest; None if that is not known.
    """

    why: str
    since_s: float
    late: tuple[WorkerId, ...] = ()
    until_s: float | None = None


_ELECTED = Decision(event="leader", reason="the job had no leader")


class Rules:
    """Be the rules of the protocol; the simulation breaks some of them on purpose."""

    def react(self, view: JobView, local: LocalState, gate: StepGate) -> tuple[Action, ...]:
        """Return what a worker must do."""
        return react(view, local, gate)

    def decide(self, job: JobId, view: JobView, sight: Sight, settings: LeaderSettings) -> Decision:
        """Return what the leader must do."""
        return decide(job, view, sight, settings)


class Duty(Generic[TieT]):
    """Say what one worker's control loop has to do next.

    Args:
        job: the job.
        stance: where the worker stands.
        lease_ttl_s: life of its lease without renewal.
        settings: constants of the leader.
        rules: what is right.

    Attributes:
        lease_until_s: until when nobody can think this worker gone; checked before each commit.
        view: the newest picture of the job.
        trouble: why the store could not be reached last time; "" if it could.
        reached_at_s: when it answered last.
    """

    def __init__(
        self,
        job: JobId,
        stance: Stance[TieT],
        lease_ttl_s: float,
        settings: LeaderSettings,
        rules: Rules | None = None,
    ) -> None:
        self.stance = stance
        self.lease_until_s = 0.0
        self.view: JobView | None = None
        self.trouble = ""
        self.reached_at_s = 0.0
        self.lookout = Lookout()
        self._me = stance.record.worker
        self._job = job
        self._keys = JobKeys(job)
        self._lease_ttl_s = lease_ttl_s
        self._settings = settings
        self._rules = rules or Rules()
        self._written: MemberRecord | None = None
        self._written_at = 0
        self._doubts_record = False
        self._acks: list[tuple[ProposalId, Ack]] = []
        self._acked_at = 0
        self._led_at = -1
        self._all_wait: tuple[object, float] | None = None
        self._explained: Waiting | None = None

    # --- a turn -------------------------------------------------------------------------------------

    def begin(self, now_s: float) -> None:
        """Take note that a lease is about to be asked for: from then on it counts. Nothing hangs on it."""
        self.lease_until_s = now_s + self._lease_ttl_s
        self._written, self._written_at, self._doubts_record = None, 0, False

    def next_upkeep(self, now_s: float) -> Errand | None:
        """Return what has to be done before the next look at the job, if anything."""
        if now_s >= self.renew_at_s:
            return RenewLease()
        if self._doubts_record:
            return ReadRecord()
        self._publish(now_s)
        record = self.stance.record
        return WriteRecord(record, self._written_at) if record != self._written else None

    def follow(self, view: JobView, now_s: float) -> tuple[Outward, ...]:
        """Take a new picture of the job and do what the rules say; return what is to be done outside."""
        self.view = view
        silent = self._notice_silence(view, now_s)
        self._recheck_ack(view)
        stance = self.stance
        actions = self._rules.react(view, stance.local, stance.gate)
        outward = [done for action in actions if (done := stance.carry_out(action, now_s)) is not None]
        self._acks = [(o.proposal, o.ack) for o in outward if isinstance(o, Acknowledge)]
        return (*silent, *outward)

    def next_deed(self, now_s: float) -> Errand | None:
        """Return what has to be written after the look at the job, if anything."""
        if self._acks:
            return WriteAck(*self._acks[0])
        return self._next_lead(now_s)

    def done(self, errand: Errand, outcome: Outcome, asked_at_s: float, now_s: float) -> Decision | None:
        """Take note of what became of an errand that the store has answered; return what to log of it.

        Raises:
            LeaseLostError: the own record is gone: the others have given this worker up.
        """
        self.reached(now_s)
        match errand:
            case RenewLease():
                self.lease_until_s = asked_at_s + self._lease_ttl_s
                self.stance.refresh_progress()
            case WriteRecord(record):
                self._note_record(record, outcome)
            case ReadRecord():
                if not outcome.succeeded:
                    raise LeaseLostError(f"the record of {self._me} is gone from the store")
                self._note_record(None, outcome)
            case WriteAck(proposal, ack):
                self._acks.pop(0)
                self._acked_at = outcome.revision
                self.stance.acknowledged(proposal, ack)
            case TakeLead():
                return self._note_lead(_ELECTED, outcome, now_s)
            case WriteDecision(decision):
                return self._note_lead(decision, outcome, now_s)
        return None

    # --- the store out of reach ---------------------------------------------------------------------

    def failed(self, why: str, now_s: float) -> bool:
        """Take note that the store could not be reached; tell whether that is news."""
        news = not self.trouble
        self.trouble = why
        return news

    def reached(self, now_s: float) -> None:
        """Take note that the store answers."""
        self.trouble, self.reached_at_s = "", now_s

    def fence(self, now_s: float) -> Quit | None:
        """Return the order to quit if the lease has run out while the store was out of reach."""
        if not self.trouble or now_s < self.lease_until_s:
            return None
        away_s = now_s - self.reached_at_s
        return Quit(
            f"the store has been out of reach for {away_s:.1f} s, and the lease of {self._lease_ttl_s:g} s "
            f"has run out: the others may go on without this worker ({self.trouble})",
            clean=False,
        )

    # --- times --------------------------------------------------------------------------------------

    @property
    def renew_at_s(self) -> float:
        """Return when the lease is to be renewed."""
        return self.lease_until_s - self._lease_ttl_s * (1 - RENEW_AFTER)

    def is_overdue(self, now_s: float) -> bool:
        """Tell whether this worker was told to quit and has not begun to leave in time."""
        return now_s > self.stance.quit_by_s and not self.stance.leaving

    def explain_wait(self, now_s: float) -> Waiting | None:
        """Return for whom the training loop waits if that lasts long and has not been told yet."""
        doing = self.stance.doing
        if doing.activity.kind is ActivityKind.RUNS or now_s - doing.since_s < PUBLISH_AFTER_S:
            return None
        late = find_late(self.view, self._me) if self.view is not None else ()
        patience_s = self._settings.step_timeout_s if late else doing.patience_s
        until_s = doing.since_s + patience_s if patience_s else None
        waiting = Waiting(why=doing.activity.what, since_s=doing.since_s, late=late, until_s=until_s)
        if waiting == self._explained:
            return None
        self._explained = waiting
        return waiting

    # --- inside -------------------------------------------------------------------------------------

    def _publish(self, now_s: float) -> None:
        """Let the record say what the training loop does once that lasts."""
        stance = self.stance
        lasting_s = max(PUBLISH_AFTER_S, 2 * stance.step_time_s)
        takes_part = stance.gate.newest_generation > 0
        lasts = takes_part and now_s - stance.doing.since_s >= lasting_s
        stance.publish(stance.doing.activity if lasts else None)

    def _notice_silence(self, view: JobView, now_s: float) -> tuple[GaveUp, ...]:
        """Give the generation up if all peers wait for each other for too long: the link is cut."""
        stance = self.stance
        doing = stance.doing  # once: the training thread may go on to something else at any moment
        seen = view.members.get(self._me)
        told = seen is not None and seen.activity == doing.activity
        if not told or stance.gate.halted or not is_silent(view, self._me):
            self._all_wait = None
            return ()
        assert view.current is not None, "nobody has peers before the first generation"
        progress = {w: progress_of(view.members[w]) for w in view.current.peers if view.alive(w)}
        if self._all_wait is None or self._all_wait[0] != progress:
            self._all_wait = (progress, now_s)
        silent_s = now_s - self._all_wait[1]
        if silent_s < doing.patience_s:
            return ()
        why = f"all wait for each other, and nothing has come for {silent_s:.0f} s: the link is cut"
        return (GaveUp(stance.give_up(stance.gate.newest_generation, why), why),)

    def _recheck_ack(self, view: JobView) -> None:
        """Forget the answer that was written last if something else stands in its place by now."""
        acked = self.stance.local.acked
        if acked is None or view.proposal is None or view.revision < self._acked_at:
            return
        if ProposalId.of(view.proposal) == acked[0] and view.acks.get(self._me) != acked[1]:
            self.stance.local = replace(self.stance.local, acked=None)

    def _note_record(self, record: MemberRecord | None, outcome: Outcome) -> None:
        self._doubts_record = not outcome.succeeded
        if outcome.succeeded:
            self._written, self._written_at = record, outcome.revision
            self.stance.registered()

    def _note_lead(self, decision: Decision, outcome: Outcome, now_s: float) -> Decision | None:
        # Either way the store has moved on: what is decided before that shows could contradict it.
        self._led_at = self.view.revision if self.view is not None else -1
        if not outcome.succeeded:
            return None
        self.lookout.wrote(decision, outcome.revision, now_s)
        return decision if decision.event else None

    def _next_lead(self, now_s: float) -> Errand | None:
        """Stand for election or lead, as the view has it."""
        view, lookout, gate = self.view, self.lookout, self.stance.gate
        lookout.wake_at_s = float("inf")
        if view is None or view.revision < lookout.written_at or view.revision == self._led_at:
            return None
        if view.leader is None:
            return TakeLead() if may_lead(view, self._me) else None
        if view.leader != self._me:
            return None
        sight = lookout.look(view, now_s, max(gate.begun, 0), self.stance.step_time_s)
        decision = self._rules.decide(self._job, view, sight, self._settings)
        if decision.wake_at_s is not None:
            lookout.wake_at_s = decision.wake_at_s
        if not decision.puts and not decision.deletes:
            return None
        return WriteDecision(decision, guard_decision(self._keys, view, self._me, decision))
