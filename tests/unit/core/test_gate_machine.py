"""A training loop and a control loop that do whatever they may, in any order: the gate keeps its word."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from protocol_records import topology

from elastane.core.gate import BEGIN, ProposalId, StepGate, Switch
from elastane.model.topology import Mode, Topology


class GateMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.gate = StepGate()
        self.entering: Topology | None = None
        self.in_step = False
        self.committing = False
        self.entered: list[int] = []
        self.told: int | None = None
        self.next_generation = 1

    # --- the training loop --------------------------------------------------------------------------

    @precondition(lambda self: not self.in_step and self.entering is None)
    @rule()
    def come_to_a_boundary(self) -> None:
        promise, halted = self.gate.promise, self.gate.halted
        answer = self.gate.try_begin(self.gate.committed)
        if isinstance(answer, Switch):
            self.entering = answer.topology
        elif answer == BEGIN:
            assert not halted
            assert self.gate.seated
            assert promise is None or self.gate.committed < promise.step
            self.in_step = True

    @precondition(lambda self: self.in_step and not self.committing)
    @rule()
    def begin_commit(self) -> None:
        halted = self.gate.halted
        self.committing = self.gate.begin_commit()
        assert self.committing is not halted
        self.in_step = self.committing

    @precondition(lambda self: self.committing)
    @rule(breaks=st.booleans())
    def end_commit(self, breaks: bool) -> None:
        if breaks:
            self.gate.busy = False
            self.gate.halt()
        else:
            self.gate.end_commit()
        self.in_step = self.committing = False

    @precondition(lambda self: self.entering is not None)
    @rule(breaks=st.booleans(), seated=st.booleans())
    def enter(self, breaks: bool, seated: bool) -> None:
        target, self.entering = self.entering, None
        assert target is not None
        if breaks:
            self.gate.switch_failed(has_state=self.gate.has_state)
            self.gate.halt()
        else:
            self.gate.entered(target, seated=seated)
            self.entered.append(target.generation)
            self.told = None

    # --- the control loop ---------------------------------------------------------------------------

    @rule(ahead=st.integers(0, 3))
    def promise(self, ahead: int) -> None:
        step = self.gate.committed + ahead
        begun = self.gate.offer_promise(ProposalId(self.next_generation, 0), step)
        assert (begun is None) == (self.gate.begun < step)

    @rule()
    def withdraw(self) -> None:
        self.gate.withdraw()

    @rule()
    def halt(self) -> None:
        self.gate.halt()

    @rule(mode=st.sampled_from([Mode.PLANNED, Mode.RECOVERY]), ahead=st.integers(0, 2))
    def accept(self, mode: Mode, ahead: int) -> None:
        step = max(self.gate.committed, self.gate.begun + 1) + (ahead if mode is Mode.PLANNED else 0)
        if mode is Mode.PLANNED and self.gate.pending is not None:
            return  # one switch at a time
        if mode is Mode.RECOVERY:
            self.gate.halt()
        self.gate.accept(topology("a", generation=self.next_generation, mode=mode, switch_step=step))
        self.next_generation += 1

    @invariant()
    def generations_are_entered_in_rising_order(self) -> None:
        assert self.entered == sorted(set(self.entered))

    @invariant()
    def what_a_halted_worker_says_is_final(self) -> None:
        if self.told is not None:
            assert self.gate.halted_at in (None, self.told)
            assert self.gate.committed == self.told or not self.gate.halted
        self.told = self.gate.halted_at


TestGate = GateMachine.TestCase
TestGate.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
