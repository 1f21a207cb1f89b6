"""What the two activities of a simulated worker share: the counterpart of `worker/standing.py`.

Everything here happens at one instant, as it does under the lock there.
"""

from dataclasses import replace

from msgspec import structs

from elastane.core.gate import ProposalId, StepGate, Switch, Wait
from elastane.core.member import Candidate, LinkPhase, LocalState, Quit
from elastane.model.records import Ack, MemberRecord, WorkerPhase
from elastane.model.topology import Topology

from .fabric import End
from .loop import Bell, Signal

EXIT_FENCED = 75


class LeftError(Exception):
    """End a worker's training activity."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class LinkBrokenError(Exception):
    """Say that an exchange cannot be completed."""


class Standing:
    """Share a worker's state between its training and its control activity."""

    def __init__(self, record: MemberRecord, wake: Bell) -> None:
        self.changed = Signal()
        self.gate = StepGate()
        self.local = LocalState(worker=record.worker)
        self.record = record
        self.links: dict[ProposalId, End | None] = {}
        self.running: End | None = None
        self.retired: list[End] = []
        self.quit: Quit | None = None
        self.waits_for = ""
        self._wake = wake

    # --- for the training activity ------------------------------------------------------------------

    def announce_ready(self, virtual_workers: int, committed: int, restored_after: int) -> None:
        self.gate.committed = committed
        self.local = replace(self.local, ready=True)
        self._note(
            phase=WorkerPhase.READY,
            virtual_workers=virtual_workers,
            committed_step=committed,
            restored_after=restored_after,
        )
        self._wake.fire()

    def ask(self, step: int) -> Topology | Wait | None:
        """Return a generation to enter, what to wait for, or None if the step has begun. Raises LeftError."""
        self.leave_if_told()
        answer = self.gate.try_begin(step)
        if isinstance(answer, Wait):
            self.waits_for = answer.why
            return answer
        return answer.topology if isinstance(answer, Switch) else None

    def begin_commit(self) -> bool:
        self.leave_if_told()
        return self.gate.begin_commit()

    def end_commit(self) -> None:
        self.gate.end_commit()
        self._close_retired()
        if self.gate.halted:
            self._wake.fire()

    def entered(self, topology: Topology) -> None:
        me = self.record.worker
        seated = topology.member(me) is not None
        if self.running is not None:
            self.retired.append(self.running)
        self.running = self.links.pop(ProposalId.of(topology), None)
        self.gate.entered(topology, seated=seated, has_state=seated or me in topology.suppliers)
        candidate = self.local.candidate
        if candidate is not None and candidate.proposal == ProposalId.of(topology):
            self.local = replace(self.local, candidate=None)
        self._note(
            phase=WorkerPhase.TRAINING, generation=topology.generation, committed_step=self.gate.committed
        )
        self._wake.fire()

    def commit_failed(self, why: str) -> None:
        self.gate.busy = False
        if not self.gate.halted:
            self._break(self.gate.newest_generation, why)

    def switch_failed(self, topology: Topology, why: str, *, has_state: bool) -> None:
        self.gate.switch_failed(has_state=has_state)
        if self.gate.passed_over < topology.generation:
            self._break(topology.generation, why)

    def _break(self, generation: int, why: str) -> None:
        self.halt(why)
        self.report_broken(generation)
        self._wake.fire()

    def announce_finished(self) -> None:
        self.local = replace(self.local, finished=True)
        self._note(phase=WorkerPhase.FINISHED, committed_step=self.gate.committed)
        self._wake.fire()

    def close(self) -> None:
        for end in (*self.retired, self.running, *self.links.values()):
            if end is not None:
                end.close()

    def _close_retired(self) -> None:
        for end in self.retired:
            end.close()
        self.retired.clear()

    def leave_if_told(self) -> None:
        if self.quit is not None:
            raise LeftError(0 if self.quit.clean else EXIT_FENCED)

    # --- for the control activity -------------------------------------------------------------------

    def tell_to_quit(self, order: Quit) -> bool:
        if self.quit is not None:
            return False
        self.quit = order
        if not order.clean:
            self.halt(order.reason)
            for end in self.links.values():
                if end is not None:
                    end.abandon(order.reason)
        self.changed.fire()
        return True

    def set_candidate(self, candidate: Candidate | None) -> None:
        keep = ProposalId.of(self.gate.pending) if self.gate.pending else None
        for proposal in [p for p in self.links if p != keep]:
            end = self.links.pop(proposal)
            if end is not None:
                end.close()
        self.gate.withdraw()
        self.local = replace(self.local, candidate=candidate)
        self.changed.fire()

    def keep_link(self, proposal: ProposalId, end: End | None, why: str) -> None:
        candidate = self.local.candidate
        if candidate is None or candidate.proposal != proposal:
            if end is not None:
                end.close()
            return
        if not why:
            self.links[proposal] = end
        phase = LinkPhase.FAILED if why else LinkPhase.CONNECTED
        self.local = replace(self.local, candidate=Candidate(proposal=proposal, phase=phase, why=why))
        self._wake.fire()

    def halt(self, why: str) -> None:
        self.gate.halt()
        passed_over = max(self.gate.generation, self.gate.passed_over)
        for proposal, end in self.links.items():
            if end is not None and proposal.generation <= passed_over:
                end.abandon(why)
        if self.running is not None:
            self.running.abandon(why)
        self.changed.fire()

    def report_broken(self, generation: int) -> None:
        self.local = replace(self.local, broken=generation)
        self._note(broken=generation)

    def acknowledged(self, proposal: ProposalId, ack: Ack) -> None:
        self.local = replace(self.local, acked=(proposal, ack))

    def registered(self) -> None:
        self.local = replace(self.local, registered=True)

    def refresh_progress(self, step_time_s: float) -> None:
        self._note(committed_step=self.gate.committed, step_time_s=step_time_s)

    def _note(self, **changes: object) -> None:
        self.record = structs.replace(self.record, **changes)
