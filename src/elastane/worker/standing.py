"""Where a worker stands: the state that its training thread and its control thread share, under one lock.

The training thread asks at step boundaries and around commits and waits here, and only here, for the
others. The control thread changes what it is told. Both are thin: the rules are in `core.gate`.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from msgspec import structs

from elastane.core.gate import ProposalId, StepGate, Switch, Wait
from elastane.core.member import Candidate, LinkPhase, LocalState, Quit
from elastane.model.records import Ack, MemberRecord, WorkerPhase
from elastane.model.topology import Topology
from elastane.worker.courier import Courier

EXIT_FENCED = 75
"""Exit code of a worker that stopped because the others go on without it (EX_TEMPFAIL of sysexits.h)."""
LOOK_AGAIN_S = 1.0
"""A waiting training thread looks around this often even if nobody notifies it."""


class Left(SystemExit):
    """End a worker that was asked to leave, or whose job was stopped: a SystemExit, usually with code 0."""

    def __init__(self, reason: str, code: int = 0) -> None:
        super().__init__(code)
        self.reason = reason


class Standing:
    """Share a worker's state between its two threads.

    Args:
        record: what the worker says of itself at first.
        wake: called, from any thread, when the control thread should look at once.

    Attributes:
        changed: the lock; held whenever `gate`, `local`, `record` or a link is touched.
        links: candidate and committed links that have not been entered, by proposal.
        waiting: what the training thread waits for and since when (monotonic); None while it does not.
        leaving: the training thread has begun to leave.
    """

    def __init__(self, record: MemberRecord, wake: Callable[[], None]) -> None:
        self.changed = threading.Condition()
        self.gate = StepGate()
        self.local = LocalState(worker=record.worker)
        self.record = record
        self.links: dict[ProposalId, Courier | None] = {}
        self.waiting: tuple[str, float] | None = None
        self.step_time_s = 0.0
        self.leaving = False
        self._running: Courier | None = None
        self._retired: list[Courier | None] = []
        self._quit: Quit | None = None
        self._wake = wake

    # --- for the training thread --------------------------------------------------------------------

    def announce_ready(self, virtual_workers: int, committed: int, *, restored_after: int = 0) -> None:
        """Say that this worker can take part; `committed` is the step that its own state stands at.

        `restored_after` is the generation whose loss made it load that state from a checkpoint; 0 if none.
        """
        with self.changed:
            self.gate.committed = committed
            self.local = replace(self.local, ready=True)
            self._note(
                phase=WorkerPhase.READY,
                virtual_workers=virtual_workers,
                committed_step=committed,
                restored_after=restored_after,
            )
        self._wake()

    def await_turn(self, step: int) -> Topology | None:
        """Wait at the boundary before `step`; return a generation to enter, or None to begin the step.

        Raises:
            Left: the worker is to go.
        """
        with self.changed:
            while True:
                self._leave_if_told()
                answer = self.gate.try_begin(step)
                if not isinstance(answer, Wait):
                    self.waiting = None
                    return answer.topology if isinstance(answer, Switch) else None
                self.note_wait(answer.why)
                self.changed.wait(LOOK_AGAIN_S)

    def await_switch(self, step: int, timeout_s: float) -> Topology | None:
        """Wait, after the last step, for a generation to enter; None if none came in time. Raises Left."""
        with self.changed:
            self._leave_if_told()
            due = self.gate.try_switch(step)
            if due is None:
                self.changed.wait(timeout_s)
                self._leave_if_told()
                due = self.gate.try_switch(step)
            return due.topology if due is not None else None

    def note_wait(self, why: str) -> None:
        """Remember what the training thread waits for, so that a long wait can be explained."""
        if self.waiting is None or self.waiting[0] != why:
            self.waiting = (why, time.monotonic())

    def begin_commit(self) -> bool:
        """Ask to commit the step in flight; False: drop it, it will be repeated. Raises Left."""
        with self.changed:
            self._leave_if_told()
            return self.gate.begin_commit()

    def end_commit(self, step_time_s: float) -> None:
        """Record that the step in flight is committed."""
        with self.changed:
            self.gate.end_commit()
            self.step_time_s = step_time_s
            halted = self.gate.halted
            self._close_retired()
        if halted:
            self._wake()

    def link_of(self, topology: Topology) -> Courier | None:
        """Return the courier of a generation that is being entered; None if it has one peer only."""
        with self.changed:
            return self.links.get(ProposalId.of(topology))

    def entered(self, topology: Topology) -> None:
        """Record that the training thread holds the state of `topology` and uses its link from now on.

        A worker that leaves with it keeps its state at hand until the others have entered too.
        """
        me = self.record.worker
        seated = topology.member(me) is not None
        with self.changed:
            self._retired.append(self._running)
            self._running = self.links.pop(ProposalId.of(topology), None)
            self.gate.entered(topology, seated=seated, has_state=seated or me in topology.suppliers)
            candidate = self.local.candidate
            # A newer one may be under way already: somebody was lost in the middle of this switch.
            if candidate is not None and candidate.proposal == ProposalId.of(topology):
                self.local = replace(self.local, candidate=None)
            self._note(
                phase=WorkerPhase.TRAINING,
                generation=topology.generation,
                committed_step=self.gate.committed,
            )
        self._wake()

    def commit_failed(self, why: str) -> int:
        """Record that the step in flight was not committed, since a peer was lost; nothing was changed.

        Returns:
            The generation that cannot go on, if this worker is the first to say so to itself; else 0.
        """
        with self.changed:
            self.gate.busy = False
            if self.gate.halted:
                return 0
            return self._break(self.gate.newest_generation, why)

    def switch_failed(self, topology: Topology, why: str, *, has_state: bool) -> int:
        """Record that `topology` could not be entered; say whether the worker's old state is still whole.

        Returns:
            As for `commit_failed`.
        """
        with self.changed:
            self.gate.switch_failed(has_state=has_state)
            if self.gate.passed_over >= topology.generation:
                return 0
            return self._break(topology.generation, why)

    def _break(self, generation: int, why: str) -> int:
        self.halt(why)
        self.report_broken(generation)
        self._wake()
        return generation

    def announce_finished(self) -> None:
        """Say that this worker has come to the end of training."""
        with self.changed:
            self.local = replace(self.local, finished=True)
            self._note(phase=WorkerPhase.FINISHED, committed_step=self.gate.committed)
        self._wake()

    def close(self) -> None:
        """Give all links back."""
        with self.changed:
            self._retired += [self._running, *self.links.values()]
            self._running = None
            self.links.clear()
            self._close_retired()

    def _close_retired(self) -> None:
        # A commit in the new generation needs every member, so by then all are through with the old link.
        # Closed any earlier, it could break under a slower member that still finishes its last step.
        for courier in self._retired:
            if courier is not None:
                courier.close()
        self._retired.clear()

    # --- for the control thread, under `changed` ------------------------------------------------------

    def tell_to_quit(self, order: Quit) -> bool:
        """Make the training thread leave at its next boundary; tell whether this is news."""
        with self.changed:
            if self._quit is not None:
                return False
            self._quit = order
            if not order.clean:
                self.halt(order.reason)
                for courier in self.links.values():
                    if courier is not None:
                        courier.abandon(order.reason)
            self.changed.notify_all()
            return True

    def set_candidate(self, candidate: Candidate | None) -> None:
        """Follow another proposal, or none; what was built or promised for an older one is dropped."""
        keep = ProposalId.of(self.gate.pending) if self.gate.pending else None
        for proposal in [p for p in self.links if p != keep]:
            courier = self.links.pop(proposal)
            if courier is not None:
                courier.close()
        self.gate.withdraw()
        self.local = replace(self.local, candidate=candidate)
        self.changed.notify_all()

    def keep_link(self, proposal: ProposalId, courier: Courier | None, why: str) -> None:
        """Take the outcome of building a link: a courier (None for a lone peer), or why it failed."""
        with self.changed:
            candidate = self.local.candidate
            if candidate is None or candidate.proposal != proposal:
                if courier is not None:
                    courier.close()
                return
            phase = LinkPhase.FAILED if why else LinkPhase.CONNECTED
            if not why:
                self.links[proposal] = courier
            self.local = replace(self.local, candidate=Candidate(proposal=proposal, phase=phase, why=why))
        self._wake()

    def halt(self, why: str) -> None:
        """Commit nothing more in the present generation and wake whoever waits for its link.

        A link that is being built for a newer proposal is left alone.
        """
        self.gate.halt()
        passed_over = max(self.gate.generation, self.gate.passed_over)
        for proposal, courier in self.links.items():
            if courier is not None and proposal.generation <= passed_over:
                courier.abandon(why)
        if self._running is not None:
            self._running.abandon(why)
        self.changed.notify_all()

    def report_broken(self, generation: int) -> None:
        """Tell the leader that `generation` cannot be reached or go on."""
        self.local = replace(self.local, broken=generation)
        self._note(broken=generation)

    def acknowledged(self, proposal: ProposalId, ack: Ack) -> None:
        """Remember what was written last, so that it is written once."""
        self.local = replace(self.local, acked=(proposal, ack))

    def registered(self) -> None:
        """Remember that the worker's record is in the store: a view without it means loss from now on."""
        self.local = replace(self.local, registered=True)

    def refresh_progress(self) -> None:
        """Bring the record's progress up to date."""
        self._note(committed_step=self.gate.committed, step_time_s=self.step_time_s)

    def _note(self, **changes: object) -> None:
        self.record = structs.replace(self.record, **changes)

    def _leave_if_told(self) -> None:
        if self._quit is not None:
            self.leaving = True
            raise Left(self._quit.reason, 0 if self._quit.clean else EXIT_FENCED)
