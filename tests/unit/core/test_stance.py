"""Where a worker stands: what its two loops are told, and which links are given up when."""

from dataclasses import dataclass, field

import pytest
from protocol_records import record, topology

from elastane.core.gate import BEGIN, ProposalId, Switch, Wait
from elastane.core.member import (
    Accept,
    Acknowledge,
    Candidate,
    Connect,
    DropCandidate,
    Halt,
    LinkPhase,
    OfferPromise,
    Quit,
    ReportBroken,
)
from elastane.core.stance import EXIT_GRACE_S, Stance
from elastane.model.records import Activity, ActivityKind, Connected, Promised, Refused, WorkerPhase
from elastane.model.topology import Mode, Topology

ONE = topology("a", "b", generation=1, mode=Mode.START, switch_step=0, suppliers=("a",))
TWO = topology("a", "b", generation=2, mode=Mode.RECOVERY, switch_step=3, suppliers=("a",), attempt=9)


@dataclass
class Link:
    """A link that remembers what was asked of it."""

    abandoned: list[str] = field(default_factory=list)
    closed: int = 0

    def abandon(self, reason: str, /) -> None:
        self.abandoned.append(reason)

    def close(self) -> None:
        self.closed += 1


class Bells:
    def __init__(self) -> None:
        self.woken = self.notified = 0

    def wake(self) -> None:
        self.woken += 1

    def notify(self) -> None:
        self.notified += 1


@pytest.fixture
def bells() -> Bells:
    return Bells()


@pytest.fixture
def stance(bells: Bells) -> Stance[Link]:
    """Return a worker that waits to be taken in."""
    made: Stance[Link] = Stance(record("a", WorkerPhase.PREPARING, generation=0), bells.wake, bells.notify)
    made.announce_ready(4, 0)
    return made


def enter(stance: Stance[Link], generation: Topology) -> Link:
    """Let the worker build a link for a generation and enter it."""
    link = Link()
    stance.carry_out(Connect(generation), 0.0)
    stance.keep_link(ProposalId.of(generation), link, "")
    stance.carry_out(Accept(generation), 0.0)
    assert stance.ask(stance.gate.committed, 0.0) == Switch(generation)
    stance.entered(generation)
    return link


def test_a_worker_that_is_ready_says_so_and_wakes_its_control_loop(
    stance: Stance[Link], bells: Bells
) -> None:
    assert stance.record.phase is WorkerPhase.READY
    assert (stance.local.ready, stance.gate.committed, bells.woken) == (True, 0, 1)
    assert stance.ask(0, 1.0) == Wait("waiting to be taken in")
    assert stance.doing.activity.kind is ActivityKind.STANDS


def test_a_step_is_begun_committed_and_counted(stance: Stance[Link]) -> None:
    enter(stance, ONE)
    assert stance.ask(0, 1.0) == BEGIN
    assert stance.begin_commit() is True
    stance.end_commit(0.25, 2.0)
    stance.refresh_progress()
    assert (stance.record.committed_step, stance.record.step_time_s) == (1, 0.25)


def test_the_link_of_the_generation_before_is_closed_after_the_first_commit_in_the_new_one(
    stance: Stance[Link],
) -> None:
    old = enter(stance, ONE)
    stance.gate.halt()
    enter(stance, TWO)
    assert old.closed == 0
    stance.begin_commit()
    stance.end_commit(0.1, 0.0)
    assert old.closed == 1


def test_a_broken_commit_halts_once_and_tells_the_leader(stance: Stance[Link], bells: Bells) -> None:
    link = enter(stance, ONE)
    stance.begin_commit()
    assert stance.commit_failed("b is gone") == 1
    assert (stance.gate.halted_at, stance.record.broken, link.abandoned) == (0, 1, ["b is gone"])
    assert stance.commit_failed("again") == 0
    assert stance.begin_commit() is False


def test_a_gathering_is_through_like_a_commit_and_a_halted_worker_then_says_where_it_stands(
    stance: Stance[Link], bells: Bells
) -> None:
    enter(stance, ONE)
    assert stance.begin_commit() is True
    stance.gate.halt()
    before = bells.woken
    stance.end_gather(7.0)
    assert (stance.gate.halted_at, stance.gate.gathered, bells.woken) == (0, 1, before + 1)
    assert (stance.doing.activity.what, stance.doing.since_s) == ("the script between two steps", 7.0)
    assert stance.begin_commit() is False


def test_a_switch_that_fails_gives_up_the_generation_that_was_to_be_entered(stance: Stance[Link]) -> None:
    enter(stance, ONE)
    stance.carry_out(Connect(TWO), 0.0)
    link = Link()
    stance.keep_link(ProposalId.of(TWO), link, "")
    stance.carry_out(Accept(TWO), 0.0)
    stance.ask(0, 0.0)
    assert stance.switch_failed(TWO, "b is gone", has_state=True) == 2
    assert (stance.gate.passed_over, stance.record.broken, link.abandoned) == (2, 2, ["b is gone"])
    assert stance.switch_failed(TWO, "again", has_state=True) == 0


@pytest.mark.parametrize(
    ("begun", "ack"), [(-1, Promised(step=4)), (3, Promised(step=4)), (4, Refused(at=4))]
)
def test_an_offered_promise_is_given_or_refused(stance: Stance[Link], begun: int, ack: object) -> None:
    stance.gate.begun = begun
    name = ProposalId(2, 9)
    assert stance.carry_out(OfferPromise(name, 4), 0.0) == Acknowledge(name, ack)  # type: ignore[arg-type]


def test_what_reaches_beyond_the_stance_is_handed_out(stance: Stance[Link]) -> None:
    name = ProposalId.of(TWO)
    assert stance.carry_out(Connect(TWO), 0.0) == Connect(TWO)
    assert stance.local.candidate == Candidate(proposal=name, phase=LinkPhase.CONNECTING)
    ack = Acknowledge(name, Connected())
    assert stance.carry_out(ack, 0.0) == ack
    assert stance.carry_out(DropCandidate("gone"), 0.0) == DropCandidate("gone")
    assert stance.local.candidate is None
    assert stance.carry_out(Halt("b is gone"), 0.0) is None
    assert stance.carry_out(ReportBroken(1), 0.0) is None
    assert (stance.gate.halted, stance.record.broken) == (True, 1)


def test_an_order_to_quit_is_news_once_and_answers_every_question(stance: Stance[Link]) -> None:
    order = Quit("enough")
    assert stance.carry_out(order, 7.0) == order
    assert stance.carry_out(Quit("once more"), 8.0) is None
    assert stance.quit_by_s == 7.0 + EXIT_GRACE_S
    assert (stance.ask(0, 9.0), stance.ask_switch(0), stance.begin_commit()) == (order, order, order)


def test_an_order_to_quit_that_is_not_clean_abandons_all_links(stance: Stance[Link]) -> None:
    running = enter(stance, ONE)
    stance.carry_out(Connect(TWO), 0.0)
    candidate = Link()
    stance.keep_link(ProposalId.of(TWO), candidate, "")
    stance.tell_to_quit(Quit("the lease ran out", clean=False), 0.0)
    assert running.abandoned == ["the lease ran out"]
    assert candidate.abandoned == ["the lease ran out"]


def test_a_link_that_comes_too_late_is_closed(stance: Stance[Link]) -> None:
    stance.carry_out(Connect(TWO), 0.0)
    late = Link()
    stance.keep_link(ProposalId.of(ONE), late, "")
    assert late.closed == 1
    stance.keep_link(ProposalId.of(TWO), None, "nobody there")
    assert stance.local.candidate == Candidate(
        proposal=ProposalId.of(TWO), phase=LinkPhase.FAILED, why="nobody there"
    )


def test_another_candidate_closes_what_was_built_for_the_one_before(stance: Stance[Link]) -> None:
    stance.carry_out(Connect(ONE), 0.0)
    link = Link()
    stance.keep_link(ProposalId.of(ONE), link, "")
    stance.carry_out(Connect(TWO), 0.0)
    assert (link.closed, stance.links) == (1, {})


def test_a_worker_that_leaves_gives_all_links_back(stance: Stance[Link]) -> None:
    running = enter(stance, ONE)
    stance.close()
    stance.close()
    assert running.closed == 1


def test_saying_the_same_twice_does_not_begin_it_anew(stance: Stance[Link]) -> None:
    stance.note(ActivityKind.EXCHANGES, "the gradients of step 3", 5.0, patience_s=15.0)
    stance.note(ActivityKind.EXCHANGES, "the gradients of step 3", 9.0, patience_s=15.0)
    assert (stance.doing.since_s, stance.doing.patience_s) == (5.0, 15.0)
    serial = stance.doing.activity.serial
    stance.note(ActivityKind.RUNS, "the optimizer's step", 9.5)
    assert stance.doing.activity == Activity(
        kind=ActivityKind.RUNS, what="the optimizer's step", serial=serial + 1
    )


def test_what_is_published_stands_in_the_record(stance: Stance[Link]) -> None:
    stance.gate.committed = 6
    stance.publish(stance.doing.activity)
    assert (stance.record.activity, stance.record.committed_step) == (stance.doing.activity, 6)
    stance.publish(None)
    assert stance.record.activity is None


def test_the_end_of_training_is_announced(stance: Stance[Link]) -> None:
    stance.announce_finished()
    assert (stance.local.finished, stance.record.phase) == (True, WorkerPhase.FINISHED)


def test_a_commit_after_a_halt_wakes_the_control_loop(stance: Stance[Link], bells: Bells) -> None:
    enter(stance, ONE)
    stance.begin_commit()
    stance.carry_out(Halt("b is gone"), 0.0)
    before = bells.woken
    stance.end_commit(0.1, 1.0)
    assert bells.woken == before + 1
