"""Which errand comes next, and what follows from one that the store has answered, refused or not answered."""

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs
from protocol_records import JOB, KEYS, record, topology, view

from elastane.core.duty import (
    PUBLISH_AFTER_S,
    Duty,
    Errand,
    Outcome,
    ReadRecord,
    RenewLease,
    TakeLead,
    Waiting,
    WriteAck,
    WriteDecision,
    WriteRecord,
)
from elastane.core.gate import ProposalId
from elastane.core.leader import LeaderSettings
from elastane.core.member import Acknowledge, Connect, LinkPhase, Quit
from elastane.core.stance import GaveUp, Stance
from elastane.core.view import JobView, encode
from elastane.model.errors import LeaseLostError
from elastane.model.records import Activity, ActivityKind, Connected, Promised, WorkerPhase
from elastane.model.topology import Mode

TTL_S = 3.0
DONE = Outcome(succeeded=True, revision=20)
REFUSED = Outcome(succeeded=False)
CURRENT = topology("a", "b")


def make(**more: Any) -> Duty[Any]:
    """Return the duty of worker a, who is in generation 1 and asks for a lease at 100 s."""
    stance: Stance[Any] = Stance(record("a", **more), lambda: None, lambda: None)
    stance.note(ActivityKind.RUNS, "step 0", 100.0)
    stance.gate.generation, stance.gate.seated, stance.gate.has_state = 1, True, True
    duty: Duty[Any] = Duty(JOB, stance, TTL_S, LeaderSettings())
    duty.begin(100.0)
    return duty


def registered(**more: Any) -> Duty[Any]:
    """Return such a duty whose record was written at revision 5."""
    duty = make(**more)
    finish(duty, WriteRecord(duty.stance.record, 0), Outcome(succeeded=True, revision=5))
    return duty


def finish(duty: Duty[Any], errand: Errand, outcome: Outcome = DONE, asked_at_s: float = 100.0) -> Any:
    return duty.done(errand, outcome, asked_at_s, asked_at_s + 0.1)


def job(*, leader: str | None = "b", **more: Any) -> JobView:
    return view(record("a"), record("b"), leader=leader, current=CURRENT, **more)


# --- upkeep ----------------------------------------------------------------------------------------


def test_a_new_lease_begins_without_a_record_under_it() -> None:
    duty = registered()
    duty.begin(200.0)
    assert duty.next_upkeep(200.0) == WriteRecord(duty.stance.record, 0)
    finish(duty, WriteRecord(duty.stance.record, 0), REFUSED, asked_at_s=200.0)
    duty.begin(210.0)
    assert duty.next_upkeep(210.0) == WriteRecord(duty.stance.record, 0)


def test_a_new_worker_writes_its_record_where_there_is_none() -> None:
    duty = make()
    assert duty.next_upkeep(100.0) == WriteRecord(duty.stance.record, 0)
    assert not duty.stance.local.registered
    finish(duty, WriteRecord(duty.stance.record, 0))
    assert duty.stance.local.registered
    assert duty.next_upkeep(100.0) is None


def test_the_lease_counts_from_before_its_renewal_was_asked_for() -> None:
    duty = registered()
    assert duty.lease_until_s == 103.0
    assert duty.next_upkeep(100.9) is None
    assert duty.next_upkeep(101.0) == RenewLease()
    finish(duty, RenewLease(), asked_at_s=101.0)
    assert duty.lease_until_s == 104.0


def test_a_record_is_written_over_what_was_there_last() -> None:
    duty = registered()
    duty.stance.announce_finished()
    assert duty.next_upkeep(100.5) == WriteRecord(duty.stance.record, 5)


def test_a_record_that_was_written_in_doubt_is_read_before_it_is_written_again() -> None:
    duty = registered()
    duty.stance.announce_finished()
    finish(duty, WriteRecord(duty.stance.record, 5), REFUSED)
    assert duty.next_upkeep(100.5) == ReadRecord()
    finish(duty, ReadRecord(), Outcome(succeeded=True, revision=7))
    assert duty.next_upkeep(100.5) == WriteRecord(duty.stance.record, 7)


def test_a_record_that_is_gone_means_that_the_worker_was_given_up() -> None:
    duty = registered()
    with pytest.raises(LeaseLostError, match="the record of a is gone"):
        finish(duty, ReadRecord(), REFUSED)


def test_what_the_training_loop_does_for_long_is_published_and_taken_back() -> None:
    duty = registered()
    duty.stance.note(ActivityKind.EXCHANGES, "the gradients of step 7", 100.2)
    assert duty.next_upkeep(100.2 + PUBLISH_AFTER_S - 1.5) is None
    finish(duty, RenewLease(), asked_at_s=102.0)
    errand = duty.next_upkeep(100.2 + PUBLISH_AFTER_S)
    assert isinstance(errand, WriteRecord)
    assert errand.record.activity == duty.stance.doing.activity
    finish(duty, errand)
    duty.stance.note(ActivityKind.RUNS, "the optimizer's step", 102.3)
    errand = duty.next_upkeep(102.3)
    assert isinstance(errand, WriteRecord)
    assert errand.record.activity is None


def test_who_takes_part_in_no_generation_publishes_nothing() -> None:
    duty = registered()
    duty.stance.gate.generation = 0
    finish(duty, RenewLease(), asked_at_s=108.0)
    finish(duty, WriteRecord(duty.stance.record, 5))
    assert duty.next_upkeep(108.9) is None


# --- deeds -----------------------------------------------------------------------------------------


def proposed(**more: Any) -> JobView:
    return job(proposal=topology("a", "b", generation=2, attempt=9), **more)


def connected(duty: Duty[Any]) -> ProposalId:
    """Let the link of the proposal stand."""
    assert duty.follow(proposed(), 100.0) == (Connect(proposed().proposal),)  # type: ignore[arg-type]
    name = ProposalId(2, 9)
    duty.stance.keep_link(name, None, "")
    assert duty.stance.local.candidate is not None
    assert duty.stance.local.candidate.phase is LinkPhase.CONNECTED
    return name


def test_an_answer_that_could_not_be_written_is_written_again() -> None:
    duty = registered()
    name = connected(duty)
    ack = Acknowledge(name, Connected())
    assert duty.follow(proposed(), 100.1) == (ack,)
    assert duty.next_deed(100.1) == WriteAck(name, Connected())
    duty.failed("no route", 100.2)
    assert duty.follow(proposed(), 100.3) == (ack,)
    finish(duty, WriteAck(name, Connected()))
    assert duty.follow(proposed(), 100.4) == ()
    assert duty.next_deed(100.4) is None


def test_an_answer_is_written_again_where_another_one_has_come_late() -> None:
    duty = registered()
    name = connected(duty)
    duty.follow(proposed(), 100.1)
    finish(duty, WriteAck(name, Connected()), Outcome(succeeded=True, revision=12))
    late = {"a": Promised(step=3)}
    assert duty.follow(proposed(revision=11, acks=late), 100.2) == ()  # from before the last write
    assert duty.follow(proposed(revision=13, acks=late), 100.3) == (Acknowledge(name, Connected()),)


def test_a_worker_takes_the_lead_if_nobody_has_it_and_then_waits_to_see_it() -> None:
    duty = registered()
    duty.follow(job(leader=None), 100.0)
    assert duty.next_deed(100.0) == TakeLead()
    news = finish(duty, TakeLead(), Outcome(succeeded=True, revision=11))
    assert news.event == "leader"
    assert duty.next_deed(100.1) is None
    duty.follow(job(leader="a", revision=12), 100.2)
    assert duty.next_deed(100.2) is None  # it leads, and nothing is to be changed


def test_who_lost_the_election_waits_for_another_picture() -> None:
    duty = registered()
    duty.follow(job(leader=None), 100.0)
    assert finish(duty, TakeLead(), REFUSED) is None
    assert duty.next_deed(100.1) is None
    duty.follow(job(leader=None, revision=11), 100.2)
    assert duty.next_deed(100.2) == TakeLead()


def test_a_decision_holds_only_while_the_topologies_stand_as_they_were_seen() -> None:
    duty = registered()
    picture = job(leader="a", stop=True)
    duty.follow(picture, 100.0)
    errand = duty.next_deed(100.0)
    assert isinstance(errand, WriteDecision)
    assert errand.decision.event == "proposed"
    assert errand.guards == {KEYS.leader: b"a", KEYS.current: encode(CURRENT), KEYS.proposal: None}
    assert finish(duty, errand, Outcome(succeeded=True, revision=11)) == errand.decision
    assert duty.next_deed(100.1) is None


# --- the store out of reach ------------------------------------------------------------------------


def test_a_worker_bears_with_the_store_until_its_lease_has_run_out() -> None:
    duty = registered()
    assert duty.failed("no route", 101.0)
    assert not duty.failed("no route", 102.0)
    assert duty.fence(102.9) is None
    assert duty.fence(103.0) == Quit(
        "the store has been out of reach for 2.9 s, and the lease of 3 s has run out: the others may go on "
        "without this worker (no route)",
        clean=False,
    )


def test_a_worker_that_reaches_the_store_again_goes_on() -> None:
    duty = registered()
    duty.failed("no route", 101.0)
    finish(duty, RenewLease(), asked_at_s=102.9)
    assert (duty.trouble, duty.fence(104.0)) == ("", None)


def test_a_late_renewal_is_no_reason_to_go_while_the_store_answers() -> None:
    assert registered().fence(104.0) is None


def test_a_worker_that_does_not_leave_in_time_is_overdue_unless_it_has_begun_to() -> None:
    duty = registered()
    duty.stance.tell_to_quit(Quit("enough"), 100.0)
    assert (duty.is_overdue(105.0), duty.is_overdue(105.1)) == (False, True)
    duty.stance.leaving = True
    assert not duty.is_overdue(105.1)


# --- waits -----------------------------------------------------------------------------------------


def waiting_job(duty: Duty[Any], other: Activity | None) -> JobView:
    own = structs.replace(duty.stance.record, activity=duty.stance.doing.activity)
    return view(own, record("b", activity=other), leader="b", current=CURRENT)


def test_a_long_wait_is_explained_once_and_again_when_it_is_known_for_whom() -> None:
    duty = registered()
    duty.stance.note(ActivityKind.EXCHANGES, "the gradients of step 7", 100.0, patience_s=15.0)
    duty.follow(waiting_job(duty, None), 101.0)
    assert duty.explain_wait(101.0) is None
    first = Waiting(why="the gradients of step 7", since_s=100.0, late=(), until_s=115.0)
    assert (duty.explain_wait(102.0), duty.explain_wait(102.1)) == (first, None)
    duty.follow(waiting_job(duty, Activity(kind=ActivityKind.RUNS)), 103.0)
    assert duty.explain_wait(103.0) == replace(first, late=("b",), until_s=700.0)  # type: ignore[arg-type]


def test_a_wait_for_a_decision_has_no_end_that_is_known() -> None:
    duty = registered()
    duty.stance.note(ActivityKind.STANDS, "a decision", 100.0)
    assert duty.explain_wait(102.0) == Waiting(why="a decision", since_s=100.0)


def test_who_runs_waits_for_nobody() -> None:
    duty = registered()
    duty.stance.note(ActivityKind.RUNS, "step 7", 100.0)
    assert duty.explain_wait(200.0) is None


def test_a_link_over_which_all_wait_for_each_other_is_given_up_after_its_patience() -> None:
    duty = registered()
    duty.stance.note(ActivityKind.EXCHANGES, "the gradients of step 7", 100.0, patience_s=15.0)
    silent = waiting_job(duty, Activity(kind=ActivityKind.EXCHANGES))
    assert duty.follow(silent, 104.0) == ()
    assert duty.follow(silent, 118.9) == ()
    why = "all wait for each other, and nothing has come for 15 s: the link is cut"
    assert duty.follow(silent, 119.0) == (GaveUp(1, why),)
    assert (duty.stance.gate.halted, duty.stance.record.broken) == (True, 1)
    assert duty.follow(silent, 150.0) == ()


@pytest.mark.parametrize("serial", [0, 1])
def test_patience_begins_anew_when_a_peer_goes_on(serial: int) -> None:
    duty = registered()
    duty.stance.note(ActivityKind.EXCHANGES, "the gradients of step 7", 100.0, patience_s=15.0)
    duty.follow(waiting_job(duty, Activity(kind=ActivityKind.EXCHANGES)), 104.0)
    later = waiting_job(duty, Activity(kind=ActivityKind.EXCHANGES, serial=serial))
    assert bool(duty.follow(later, 119.0)) is (serial == 0)


def test_who_went_on_meanwhile_does_not_give_up_its_link() -> None:
    duty = registered()
    duty.stance.note(ActivityKind.EXCHANGES, "the gradients of step 7", 100.0)
    silent = waiting_job(duty, Activity(kind=ActivityKind.EXCHANGES))
    duty.stance.note(ActivityKind.EXCHANGES, "the gradients of step 8", 104.0)
    assert duty.follow(silent, 104.0) == ()
    assert not duty.stance.gate.halted


def test_a_stop_is_followed_whatever_was_silent_before() -> None:
    duty = registered()
    stopping = view(record("a"), record("b"), current=topology("a", "b", generation=2, mode=Mode.PLANNED))
    assert duty.follow(stopping, 100.0) == ()
    assert duty.stance.gate.pending == stopping.current
    assert duty.stance.record.phase is WorkerPhase.TRAINING
