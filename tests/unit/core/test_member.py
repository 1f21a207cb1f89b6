"""What a worker does, for every picture of the job and every place where it can stand."""

from dataclasses import replace

import pytest
from protocol_records import (
    FINISHED,
    PREPARING,
    READY,
    TRAINING,
    dismissed,
    exited,
    record,
    topology,
    view,
)

from elastane.core.gate import ProposalId, StepGate
from elastane.core.member import (
    Accept,
    Acknowledge,
    Candidate,
    Connect,
    DropCandidate,
    Halt,
    LinkPhase,
    LocalState,
    OfferPromise,
    Quit,
    ReportBroken,
    may_finish,
    may_save,
    react,
)
from elastane.model.ids import WorkerId
from elastane.model.records import Connected, Failed, JobPhase, JobStatus, Leave, Promised, Refused
from elastane.model.topology import Mode, Topology

A = WorkerId("a")
ONE = topology("a", "b")
HERE = LocalState(worker=A, ready=True, registered=True)


def gate(**more: object) -> StepGate:
    return StepGate(
        **{"generation": 1, "committed": 5, "begun": 5, "has_state": True, "seated": True, **more}
    )


def proposal(*names: str, mode: Mode = Mode.PLANNED, **more: object) -> Topology:
    return topology(*names, generation=2, attempt=7, mode=mode, reason="why", **more)


def candidate(phase: LinkPhase = LinkPhase.CONNECTED, why: str = "") -> Candidate:
    return Candidate(proposal=ProposalId(2, 7), phase=phase, why=why)


BOTH = (record("a"), record("b"))


def status(phase: JobPhase) -> JobStatus:
    return JobStatus(phase=phase, message="so be it")


# --- quitting --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("picture", "standing", "order"),
    [
        (view(*BOTH, current=ONE, dismissed=dismissed("a")), gate(), Quit("slow", clean=False)),
        (view(*BOTH, current=ONE, dismissed=dismissed("a")), StepGate(), Quit("slow")),
        (
            view(*BOTH, current=ONE, exits=exited("a")),
            gate(),
            Quit("the agent has already counted this process as ended", clean=False),
        ),
        (
            view(record("b"), current=ONE),
            gate(),
            Quit("the lease was lost: the others go on without this worker", clean=False),
        ),
        (
            view(*BOTH, current=ONE, status=status(JobPhase.FAILED)),
            gate(),
            Quit("the job failed: so be it", clean=False),
        ),
        (
            view(*BOTH, current=topology("b", generation=2)),
            gate(),
            Quit("a newer generation was formed without this worker", clean=False),
        ),
        (
            view(*BOTH, current=ONE, status=status(JobPhase.STOPPED)),
            gate(),
            Quit("the job has stopped without this worker", clean=False),
        ),
        (
            view(*BOTH, current=ONE, status=status(JobPhase.FINISHED)),
            gate(halted=True),
            Quit("the job has finished, and this worker has lost the others on the way", clean=False),
        ),
        (
            view(record("a", READY), record("b"), current=topology("b"), leaving={A: Leave.NOW}),
            StepGate(),
            Quit("asked to leave before it took part"),
        ),
        (
            view(record("a", READY), current=ONE, status=status(JobPhase.FINISHED)),
            StepGate(),
            Quit("the job has finished and needs this worker no more"),
        ),
        (
            view(record("a", generation=2), record("b", generation=2), current=proposal("b", leaving=(A,))),
            gate(generation=2, seated=False),
            Quit("all others have entered the generation without this worker"),
        ),
        (
            view(*BOTH, current=topology("b", generation=3)),
            gate(generation=2, seated=False),
            Quit("all others have entered the generation without this worker"),
        ),
    ],
)
def test_a_worker_quits(picture: object, standing: StepGate, order: Quit) -> None:
    assert react(picture, HERE, standing) == (order,)


def test_a_worker_that_has_finished_goes_on_when_it_loses_the_others() -> None:
    picture = view(*BOTH, current=ONE, status=status(JobPhase.FINISHED))
    assert react(picture, replace(HERE, finished=True), gate(halted=True)) == (ReportBroken(1),)


def test_a_newcomer_that_is_being_taken_in_does_not_leave_before() -> None:
    picture = view(record("a", READY), record("b"), current=topology("b"), leaving={A: Leave.NOW})
    about_to_enter = gate(generation=0, seated=False, has_state=False, pending=topology("a", "b"))
    assert react(picture, HERE, about_to_enter) == ()


def test_a_worker_that_has_not_registered_misses_no_record() -> None:
    assert react(view(record("b"), current=ONE), replace(HERE, registered=False), gate()) == ()


def test_a_worker_that_trains_goes_on_when_the_job_has_finished() -> None:
    assert react(view(*BOTH, current=ONE, status=status(JobPhase.FINISHED)), HERE, gate()) == ()


@pytest.mark.parametrize(
    ("picture", "pending"),
    [
        (view(*BOTH, current=proposal("b", leaving=(A,))), None),  # b has yet to enter
        (view(record("a"), current=proposal("b", leaving=(A,))), None),  # b was lost before it entered
        (view(*BOTH, current=proposal(mode=Mode.STOP, leaving=(A, WorkerId("b")))), None),
        (view(*BOTH, current=None), None),
        (view(record("a"), record("b", generation=2), current=proposal("b", leaving=(A,))), topology("a")),
    ],
)
def test_a_leaver_stays_while_its_state_may_be_needed(picture: object, pending: Topology | None) -> None:
    assert react(picture, HERE, gate(generation=2, seated=False, pending=pending)) == ()


# --- the current generation ------------------------------------------------------------------------


def test_a_new_generation_is_accepted_once() -> None:
    two = topology("a", "b", generation=2)
    picture = view(*BOTH, current=two)
    assert react(picture, HERE, gate()) == (Accept(two),)
    assert react(picture, HERE, gate(pending=two)) == ()
    assert react(picture, HERE, gate(generation=2)) == ()


def test_a_generation_of_others_is_not_accepted() -> None:
    assert react(view(record("a", READY), record("b"), current=topology("b")), HERE, StepGate()) == ()


@pytest.mark.parametrize("mode", [Mode.PLANNED, Mode.STOP])
def test_a_halted_worker_reports_a_planned_generation_as_broken(mode: Mode) -> None:
    two = (
        proposal("b", mode=mode, leaving=(A,)) if mode is Mode.PLANNED else proposal(mode=mode, leaving=(A,))
    )
    picture = view(*BOTH, current=two)
    halted = replace(HERE, broken=1)
    assert react(picture, halted, gate(halted=True)) == (Accept(two), ReportBroken(2))
    assert react(picture, halted, gate(halted=True, passed_over=2)) == (ReportBroken(2),)
    assert react(picture, replace(HERE, broken=2), gate(halted=True, passed_over=2)) == ()


def test_a_halted_worker_waits_for_the_recovery_that_it_has_accepted() -> None:
    two = proposal("a", mode=Mode.RECOVERY, switch_step=5)
    picture = view(*BOTH, current=two)
    assert react(picture, HERE, gate(halted=True)) == (Accept(two),)
    assert react(picture, HERE, gate(halted=True, pending=two)) == ()


def test_a_worker_halted_by_a_recovery_that_was_withdrawn_asks_for_another() -> None:
    assert react(view(*BOTH, current=ONE), HERE, gate(halted=True)) == (ReportBroken(1),)


# --- proposals -------------------------------------------------------------------------------------


def test_a_link_is_built_for_each_attempt() -> None:
    picture = view(*BOTH, current=ONE, proposal=proposal("a", "b"))
    older = replace(candidate(), proposal=ProposalId(2, 6))
    for local in (HERE, replace(HERE, candidate=older)):
        assert react(picture, local, gate()) == (Connect(picture.proposal),)
    connecting = replace(HERE, candidate=candidate(LinkPhase.CONNECTING))
    assert react(picture, connecting, gate()) == ()


def test_members_halt_for_a_repair_and_newcomers_do_not() -> None:
    repair = proposal("a", "c", mode=Mode.RECOVERY)
    picture = view(record("a"), record("c", READY), current=ONE, proposal=repair)
    assert react(picture, HERE, gate()) == (Halt("why"), Connect(repair))
    spare = LocalState(worker=WorkerId("c"), ready=True, registered=True)
    assert react(picture, spare, StepGate()) == (Connect(repair),)
    assert react(picture, spare, StepGate(pending=ONE)) == (Halt("why"), Connect(repair))


def test_a_newcomer_that_sees_its_generation_and_the_loss_in_it_at_once_halts() -> None:
    repair = proposal("a", mode=Mode.RECOVERY)
    picture = view(record("a", READY), current=ONE, proposal=repair)
    assert react(picture, HERE, StepGate()) == (Accept(ONE), Halt("why"), Connect(repair))


def test_a_link_is_dropped_with_its_proposal() -> None:
    local = replace(HERE, candidate=candidate())
    gone = (DropCandidate("the proposal was withdrawn"),)
    assert react(view(*BOTH, current=ONE), local, gate()) == gone
    assert react(view(*BOTH, current=ONE, proposal=proposal("b")), local, gate()) == gone
    assert react(view(record("a", READY)), local, StepGate()) == gone


def test_the_link_of_a_committed_generation_is_kept() -> None:
    two = proposal("a", "b", switch_step=9)
    local = replace(HERE, candidate=candidate())
    picture = view(*BOTH, current=two)
    assert react(picture, local, gate(pending=two)) == ()
    assert react(picture, local, gate(generation=2)) == ()
    assert react(view(*BOTH, current=ONE), local, gate(pending=two)) == ()


def test_the_outcome_of_connecting_is_acknowledged_once() -> None:
    picture = view(*BOTH, current=ONE, proposal=proposal("a", "b"))
    name = ProposalId(2, 7)
    for link, ack in (
        (candidate(), Connected()),
        (candidate(LinkPhase.FAILED, "no route"), Failed(why="no route")),
    ):
        local = replace(HERE, candidate=link)
        assert react(picture, local, gate()) == (Acknowledge(name, ack),)
        assert react(picture, replace(local, acked=(name, ack)), gate()) == ()


def test_members_are_asked_for_a_promise_and_newcomers_are_not() -> None:
    asks = proposal("a", "c", switch_step=9)
    picture = view(record("a"), record("c", READY), current=topology("a"), proposal=asks)
    local = replace(HERE, candidate=candidate())
    assert react(picture, local, gate()) == (OfferPromise(ProposalId(2, 7), 9),)
    spare = LocalState(worker=WorkerId("c"), ready=True, registered=True, candidate=candidate())
    assert react(picture, spare, StepGate()) == (Acknowledge(ProposalId(2, 7), Connected()),)


@pytest.mark.parametrize(
    ("acked", "answers"),
    [
        ((ProposalId(2, 7), Promised(step=9)), ()),
        ((ProposalId(2, 7), Refused(at=9)), ()),
        ((ProposalId(2, 7), Refused(at=8)), (OfferPromise(ProposalId(2, 7), 9),)),
        ((ProposalId(2, 7), Connected()), (OfferPromise(ProposalId(2, 7), 9),)),
        ((ProposalId(2, 6), Promised(step=9)), (OfferPromise(ProposalId(2, 7), 9),)),
    ],
)
def test_a_promise_is_offered_until_it_is_answered(acked: object, answers: object) -> None:
    picture = view(*BOTH, current=ONE, proposal=proposal("a", "b", switch_step=9))
    assert react(picture, replace(HERE, candidate=candidate(), acked=acked), gate()) == answers


@pytest.mark.parametrize(
    ("mode", "standing", "ack"),
    [
        (Mode.RECOVERY, gate(halted=True), Connected(halted_at=5)),
        (Mode.RECOVERY, gate(halted=True, gathered=2), Connected(halted_at=5, gathered=2)),
        (Mode.RECOVERY, gate(halted=True, has_state=False, gathered=2), Connected()),
        (Mode.RECOVERY, gate(halted=True, busy=True), None),
        (Mode.RECOVERY, StepGate(), Connected()),
        (Mode.START, StepGate(committed=3), Connected(halted_at=3)),
        (Mode.START, gate(halted=True, has_state=False), Connected(halted_at=5)),
        (Mode.RESTORE, StepGate(committed=3), Connected()),
    ],
)
def test_a_repair_is_told_where_the_worker_stands_for_good(
    mode: Mode, standing: StepGate, ack: Connected | None
) -> None:
    current = ONE if standing.generation else None
    picture = view(record("a"), record("b"), current=current, proposal=proposal("a", "b", mode=mode))
    answers = react(picture, replace(HERE, candidate=candidate(), broken=1), standing)
    assert answers == ((Acknowledge(ProposalId(2, 7), ack),) if ack else ())


def test_a_worker_that_has_loaded_the_newest_checkpoint_says_so_when_all_begin_anew() -> None:
    me = record("a", READY, restored_after=1)
    restart = proposal("a", "c", mode=Mode.RESTORE)
    picture = view(me, record("c", READY), current=topology("b"), exits=exited("b"), proposal=restart)
    answers = react(picture, replace(HERE, candidate=candidate()), StepGate(committed=3))
    assert answers == (Acknowledge(ProposalId(2, 7), Connected(halted_at=3)),)


# --- the end ---------------------------------------------------------------------------------------


def test_the_first_living_leaver_saves_when_all_have_come() -> None:
    stop = proposal(mode=Mode.STOP, leaving=(A, WorkerId("b")))
    here, there = record("a", generation=2), record("b", generation=2)
    at_stop = gate(generation=2, seated=False)
    assert may_save(view(here, there, current=stop), A, at_stop)
    assert not may_save(view(here, there, current=stop), WorkerId("b"), at_stop)
    assert may_save(view(there, current=stop), WorkerId("b"), at_stop)
    assert not may_save(view(here, record("b"), current=stop), A, at_stop)
    assert not may_save(view(here, there, current=stop), A, gate(generation=2, halted=True))
    assert not may_save(view(here, there, current=stop), A, gate(generation=1))
    assert not may_save(view(here, there, current=ONE), A, gate())
    assert not may_save(view(here), A, gate())


def test_who_has_finished_goes_when_nobody_trains_any_more() -> None:
    me = record("a", FINISHED)
    assert may_finish(view(me, record("b", FINISHED), record("c", READY), record("d", PREPARING)), A)
    assert not may_finish(view(me, record("b", TRAINING)), A)
    assert may_finish(view(me, record("b", TRAINING), exits=exited("b")), A)
    assert may_finish(view(record("a", TRAINING)), A)
    assert may_finish(view(me, record("b", TRAINING, 2), current=topology("a", generation=2)), A)
    assert may_finish(view(me, record("b", TRAINING), status=status(JobPhase.FINISHED)), A)


def test_who_has_finished_does_not_wait_for_one_that_has_left_with_this_generation() -> None:
    me, gone = record("a", FINISHED, generation=2), WorkerId("b")
    assert may_finish(
        view(me, record("b", TRAINING, generation=2), current=proposal("a", leaving=(gone,))), A
    )
    # The switch is still to come: b may have missed the end of the last step before it.
    still_there = view(me, record("b", TRAINING, generation=1), current=proposal("a", leaving=(gone,)))
    assert not may_finish(still_there, A)
