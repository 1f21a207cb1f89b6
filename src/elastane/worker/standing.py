"""Where a worker stands: the state that its training thread and its control thread share, under one lock.

The training thread asks at step boundaries and around commits and waits here, and only here, for the
others. The control thread changes what it is told. What is asked and told is decided in `core.stance`.
"""

import threading
import time
from collections.abc import Callable
from typing import NoReturn

from elastane.core.gate import ProposalId, StepGate, Switch, Wait
from elastane.core.member import LocalState, Quit
from elastane.core.stance import Stance
from elastane.model.exits import EXIT_FENCED
from elastane.model.records import ActivityKind, MemberRecord
from elastane.model.topology import Topology
from elastane.worker.courier import Courier

LOOK_AGAIN_S = 1.0
"""A waiting training thread looks around this often even if nobody notifies it."""
SILENCE_S = 15.0
"""An exchange for which all wait, and which does not come for longer, is lost: several times what TCP takes
to send again what a short trouble of the network swallowed (its pauses double from 0.2 s on, RFC 6298)."""
SLOWEST_LINK = 10_000_000
"""Bytes per second below which a link counts as cut: what is left of 100 Mbit/s Ethernet on a bad day."""


class Left(SystemExit):
    """End a worker that was asked to leave, or whose job was stopped: a SystemExit, usually with code 0."""

    def __init__(self, reason: str, code: int = 0) -> None:
        super().__init__(code)
        self.reason = reason


class Standing:
    """Share a worker's stance between its two threads.

    Args:
        record: what the worker says of itself at first.
        wake: called, from any thread, when the control thread should look at once.

    Attributes:
        changed: the lock; held whenever `stance` is touched.
        stance: where the worker stands.
    """

    def __init__(self, record: MemberRecord, wake: Callable[[], None]) -> None:
        self.changed = threading.Condition()
        self.stance: Stance[Courier] = Stance(record, wake, self._notify)

    @property
    def gate(self) -> StepGate:
        """Return which steps may begin."""
        return self.stance.gate

    @property
    def local(self) -> LocalState:
        """Return what the rules know of this worker beside its gate."""
        return self.stance.local

    @property
    def record(self) -> MemberRecord:
        """Return what the worker says of itself."""
        return self.stance.record

    @property
    def leaving(self) -> bool:
        """Tell whether the training thread has begun to leave."""
        return self.stance.leaving

    @property
    def waits_since_s(self) -> float:
        """Return since when the training thread does what it does (monotonic)."""
        return self.stance.doing.since_s

    # --- for the training thread --------------------------------------------------------------------

    def announce_ready(self, virtual_workers: int, committed: int, *, restored_after: int = 0) -> None:
        """Say that this worker can take part; `committed` is the step that its own state stands at.

        `restored_after` is the generation whose loss made it load that state from a checkpoint; 0 if none.
        """
        with self.changed:
            self.stance.announce_ready(virtual_workers, committed, restored_after=restored_after)

    def await_turn(self, step: int) -> Topology | None:
        """Wait at the boundary before `step`; return a generation to enter, or None to begin the step.

        Raises:
            Left: the worker is to go.
        """
        with self.changed:
            while True:
                answer = self.stance.ask(step, time.monotonic())
                if isinstance(answer, Quit):
                    self._leave(answer)
                elif isinstance(answer, Wait):
                    self.changed.wait(LOOK_AGAIN_S)
                else:
                    return answer.topology if isinstance(answer, Switch) else None

    def await_switch(self, step: int, timeout_s: float) -> Topology | None:
        """Wait, after the last step, for a generation to enter; None if none came in time. Raises Left."""
        with self.changed:
            due = self._heed(self.stance.ask_switch(step))
            if due is None:
                self.changed.wait(timeout_s)
                due = self._heed(self.stance.ask_switch(step))
            return due

    def note_run(self, what: str) -> None:
        """Remember what the training thread does from now on, by itself."""
        self._note(ActivityKind.RUNS, what)

    def note_stand(self, what: str) -> None:
        """Remember for what decision the training thread waits."""
        self._note(ActivityKind.STANDS, what)

    def note_exchange(self, what: str, moved_bytes: int = 0) -> None:
        """Remember for which data of its peers the training thread waits, and how much of it there is."""
        patience_s = SILENCE_S + moved_bytes / SLOWEST_LINK
        self._note(ActivityKind.EXCHANGES, what, patience_s)

    def begin_commit(self) -> bool:
        """Ask to commit the step in flight; False: drop it, it will be repeated. Raises Left."""
        with self.changed:
            answer = self.stance.begin_commit()
            if isinstance(answer, Quit):
                self._leave(answer)
            return answer

    def end_commit(self, step_time_s: float) -> None:
        """Record that the step in flight is committed."""
        with self.changed:
            self.stance.end_commit(step_time_s, time.monotonic())

    def end_gather(self) -> None:
        """Record that a gathering between two steps is through; see `Stance.end_gather`."""
        with self.changed:
            self.stance.end_gather(time.monotonic())

    def link_of(self, topology: Topology) -> Courier | None:
        """Return the courier of a generation that is being entered; None if it has one peer only."""
        with self.changed:
            return self.stance.links.get(ProposalId.of(topology))

    def entered(self, topology: Topology) -> None:
        """Record that the training thread holds the state of `topology` and uses its link from now on."""
        with self.changed:
            self.stance.entered(topology)

    def commit_failed(self, why: str) -> int:
        """Record that the step in flight was not committed; see `Stance.commit_failed`."""
        with self.changed:
            return self.stance.commit_failed(why)

    def switch_failed(self, topology: Topology, why: str, *, has_state: bool) -> int:
        """Record that `topology` could not be entered; see `Stance.switch_failed`."""
        with self.changed:
            return self.stance.switch_failed(topology, why, has_state=has_state)

    def announce_finished(self) -> None:
        """Say that this worker has come to the end of training."""
        with self.changed:
            self.stance.announce_finished()

    def close(self) -> None:
        """Give all links back."""
        with self.changed:
            self.stance.close()

    # --- for the threads that build links -----------------------------------------------------------

    def keep_link(self, proposal: ProposalId, courier: Courier | None, why: str) -> None:
        """Take the outcome of building a link; see `Stance.keep_link`."""
        with self.changed:
            self.stance.keep_link(proposal, courier, why)

    # --- inside -------------------------------------------------------------------------------------

    def _note(self, kind: ActivityKind, what: str, patience_s: float = 0.0) -> None:
        # Under the lock, for the control thread judges what lasts in one turn: it must not see one activity
        # when it looks how long it has lasted, and publish another.
        with self.changed:
            self.stance.note(kind, what, time.monotonic(), patience_s)

    def _notify(self) -> None:
        self.changed.notify_all()

    def _heed(self, answer: Topology | Quit | None) -> Topology | None:
        if isinstance(answer, Quit):
            self._leave(answer)
        return answer

    def _leave(self, order: Quit) -> NoReturn:
        self.stance.leaving = True
        raise Left(order.reason, 0 if order.clean else EXIT_FENCED)
