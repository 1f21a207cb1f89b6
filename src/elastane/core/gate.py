"""The gate between a worker's training loop and its control loop: which step may begin, and when to switch.

Pure state, no threads: the worker wraps it in a lock, the simulation drives it as it is.

Rules
- The training loop asks `try_begin(step)` at every step boundary and does what it is told.
- The control loop offers promises, accepts committed generations and halts. A promise is given only
  for a step that has not begun, and from then on that step does not begin until the proposal is
  committed (`accept`) or gone (`withdraw`). So a planned change needs no guess about timing.
- Once halted, nothing more is committed in the old generation: `begin_commit` says no. A commit, a gathering
  or a switch that is under way is finished first, so the counts that a halted worker reports are final.
- A worker enters generations in rising order only, and never one that it passed over.
- A worker without a seat in the generation it has entered stays at the boundary, with its state, until
  it is told to go: until then it can stand in for somebody who is lost in the middle of the switch.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from elastane.model.topology import Topology


class ProposalId(NamedTuple):
    """Name one proposal: a generation may be proposed several times."""

    generation: int
    attempt: int

    @classmethod
    def of(cls, topology: Topology) -> "ProposalId":
        """Return the name of a proposed or committed topology."""
        return cls(topology.generation, topology.attempt)


class Promise(NamedTuple):
    """Bind the worker not to begin `step` before the proposal is decided."""

    proposal: ProposalId
    step: int


@dataclass(frozen=True, slots=True)
class Begin:
    """Go: the step has begun."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Ask again when something has changed; `why` is shown to people who wonder."""

    why: str


@dataclass(frozen=True, slots=True)
class Switch:
    """Enter `topology` now (end with `entered` or `switch_failed`), then ask again."""

    topology: Topology


Answer = Begin | Wait | Switch

BEGIN: Final = Begin()


@dataclass(slots=True, kw_only=True)
class StepGate:
    """Hold where a worker stands.

    Attributes:
        generation: the generation it has entered; 0 = none.
        committed: number of steps committed; the next step has this number.
        gathered: gatherings between two steps since the last committed one. Like a step each needs all
            members, so two of them differ by one step or one gathering at most.
        begun: the newest step that has begun; -1 = none.
        has_state: whether it holds the job's state as of `committed`.
        promise: the promise that binds it, if any.
        pending: a committed generation that it has yet to enter.
        halted: it will commit nothing more in its present generation.
        busy: a commit, a gathering or a switch is under way.
        passed_over: the newest generation that it will not enter, since a link broke before its switch.
        seated: it is a member of its present generation, not one that has left with it.
    """

    generation: int = 0
    committed: int = 0
    gathered: int = 0
    begun: int = -1
    has_state: bool = False
    promise: Promise | None = None
    pending: Topology | None = None
    halted: bool = False
    busy: bool = False
    passed_over: int = 0
    seated: bool = False

    @property
    def newest_generation(self) -> int:
        """Return the newest generation that the worker has entered, is to enter, or has passed over."""
        return max(self.generation, self.pending.generation if self.pending else 0, self.passed_over)

    @property
    def halted_at(self) -> int | None:
        """Return the final number of committed steps of a halted worker; None while it may still change."""
        return self.committed if self.halted and not self.busy else None

    def try_begin(self, step: int) -> Answer:
        """Answer the training loop, which stands at the boundary before `step`."""
        switch = self.try_switch(step)
        if switch is not None:
            return switch
        if self.halted:
            return Wait("a peer was lost or cut off: waiting for the generation that goes on without it")
        if self.generation == 0:
            return Wait("waiting to be taken in")
        if not self.seated:
            return Wait("waiting until the others have entered the generation without this worker")
        if self.promise is not None and step >= self.promise.step:
            return Wait(f"promised not to begin step {self.promise.step} before the change is decided")
        self.begun = max(self.begun, step)
        return BEGIN

    def try_switch(self, step: int) -> Switch | None:
        """Answer a training loop that will begin no step any more: what it is to enter, if anything."""
        if self.pending is None or not self._is_due(self.pending, step):
            return None
        self.busy = True
        return Switch(self.pending)

    def _is_due(self, topology: Topology, step: int) -> bool:
        # A newcomer has no step to finish first. After a failure everybody enters from where he stands:
        # who is a step behind is sent the state.
        return self.generation == 0 or topology.mode.repairs or step >= (topology.switch_step or 0)

    def offer_promise(self, proposal: ProposalId, step: int) -> int | None:
        """Promise not to begin `step`; return None, or the step already begun if it is too late."""
        if self.begun >= step:
            return self.begun
        self.promise = Promise(proposal, step)
        return None

    def withdraw(self) -> None:
        """Forget the promise: its proposal is gone."""
        self.promise = None

    def halt(self) -> None:
        """Stop committing in this generation, and pass over one that is still to be entered."""
        self.halted = True
        if self.pending is not None:
            self.passed_over = max(self.passed_over, self.pending.generation)
            self.pending = None

    def begin_commit(self) -> bool:
        """Ask to commit the step in flight; False means that it must be dropped and repeated."""
        if self.halted:
            return False
        self.busy = True
        return True

    def end_commit(self) -> None:
        """Record that the step in flight is committed."""
        self.busy = False
        self.committed += 1
        self.gathered = 0

    def end_gather(self) -> None:
        """Record that this worker has what all members gave to a gathering; it began like a commit."""
        self.busy = False
        self.gathered += 1

    def accept(self, topology: Topology) -> None:
        """Take note of a committed generation; the training loop enters it at its switch step."""
        if topology.generation <= self.newest_generation:
            return
        self.promise = None
        if self.halted and not topology.mode.repairs:
            self.passed_over = topology.generation
        else:
            self.pending = topology

    def entered(self, topology: Topology, *, seated: bool = True, has_state: bool = True) -> None:
        """Record that the worker now holds the state of the switch step of `topology` and has its link.

        A worker that leaves with this generation is not `seated` in it; after a failure it may be a step
        behind, and nobody sends it the state then: it has none that counts.

        If it was halted meanwhile it stays halted, in the new generation.
        """
        self.busy = False
        self.generation = topology.generation
        self.committed = topology.switch_step or 0
        if topology.mode.repairs:
            self.gathered = topology.gathered  # who has been through fewer is told what they brought
        self.begun = self.committed - 1
        self.has_state = has_state
        self.seated = seated
        if self.pending is topology:
            self.pending = None
            self.halted = False

    def switch_failed(self, *, has_state: bool) -> None:
        """Record that entering a generation failed; say whether the worker's old state is still whole."""
        self.busy = False
        self.has_state = has_state
