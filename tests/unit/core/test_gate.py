"""Which step may begin, when to switch, what may be committed: the gate in every state."""

from dataclasses import replace

from msgspec import structs
from protocol_records import topology

from elastane.core.gate import BEGIN, Promise, ProposalId, StepGate, Switch, Wait
from elastane.model.topology import Mode

PROPOSAL = ProposalId(2, 7)


def gate(**more: object) -> StepGate:
    standing = {"generation": 1, "committed": 5, "begun": 4, "has_state": True, "seated": True}
    return StepGate(**{**standing, **more})


def planned(step: int = 8, generation: int = 2) -> object:
    return topology("a", "b", generation=generation, switch_step=step)


def recovery(generation: int = 2) -> object:
    return topology("a", generation=generation, mode=Mode.RECOVERY, switch_step=5)


def test_a_step_begins_when_nothing_is_in_the_way() -> None:
    g = gate()
    assert g.try_begin(5) == BEGIN
    assert g == gate(begun=5)


def test_a_worker_in_no_generation_waits() -> None:
    assert StepGate().try_begin(0) == Wait("waiting to be taken in")


def test_a_halted_worker_waits() -> None:
    why = "a peer was lost or cut off: waiting for the generation that goes on without it"
    assert gate(halted=True).try_begin(5) == Wait(why)


def test_a_worker_without_a_seat_waits() -> None:
    why = "waiting until the others have entered the generation without this worker"
    assert gate(seated=False).try_begin(5) == Wait(why)


def test_a_promise_holds_back_its_step_and_later_ones_only() -> None:
    g = gate()
    assert g.offer_promise(PROPOSAL, 6) is None
    assert g == gate(promise=Promise(PROPOSAL, 6))
    assert g.try_begin(5) == BEGIN
    assert g.try_begin(6) == Wait("promised not to begin step 6 before the change is decided")
    g.withdraw()
    assert g.try_begin(6) == BEGIN


def test_a_promise_for_a_begun_step_is_refused() -> None:
    g = gate(begun=6)
    assert g.offer_promise(PROPOSAL, 6) == 6
    assert g.promise is None


def test_a_planned_generation_is_entered_at_its_switch_step() -> None:
    g = gate(promise=Promise(PROPOSAL, 6))
    g.accept(planned(6))
    assert g == gate(pending=planned(6))
    assert g.try_begin(5) == BEGIN
    assert g.try_begin(6) == Switch(planned(6))
    assert g.busy


def test_a_newcomer_enters_at_once() -> None:
    g = StepGate()
    g.accept(planned(6))
    assert g.try_begin(0) == Switch(planned(6))


def test_a_repair_is_entered_from_wherever_one_stands() -> None:
    for mode in (Mode.RECOVERY, Mode.START):
        target = topology("a", generation=2, mode=mode, switch_step=9)
        g = gate(halted=True)
        g.accept(target)
        assert g.try_begin(5) == Switch(target)


def test_after_the_last_step_only_switches_are_answered() -> None:
    g = gate()
    assert g.try_switch(5) is None
    g.accept(planned(8))
    assert g.try_switch(5) is None
    assert g.try_switch(8) == Switch(planned(8))


def test_entering_brings_the_count_of_the_switch_step() -> None:
    target = recovery()
    g = gate(halted=True, pending=target, busy=True, has_state=False)
    g.entered(target)
    assert g == gate(generation=2)


def test_gatherings_are_counted_from_the_last_commit_on() -> None:
    g = gate()
    for count in (1, 2):
        assert g.begin_commit()
        assert g.halted_at is None
        g.end_gather()
        assert g == gate(gathered=count)
    assert g.begin_commit()
    g.end_commit()
    assert g == gate(committed=6)


def test_a_gathering_under_way_is_finished_before_the_counts_of_a_halted_worker_are_final() -> None:
    g = gate()
    assert g.begin_commit()
    g.halt()
    assert g.halted_at is None
    g.end_gather()
    assert (g.halted_at, g.gathered) == (5, 1)
    assert not g.begin_commit()


def test_who_enters_a_recovery_has_been_through_what_the_furthest_has_gathered() -> None:
    target = structs.replace(recovery(), gathered=2)
    g = gate(halted=True, pending=target, busy=True, gathered=1)
    g.entered(target)
    assert g == gate(generation=2, gathered=2)
    change = planned(5, generation=3)
    g.accept(change)
    g.entered(change)
    assert g == gate(generation=3, gathered=2)  # between the same two steps


def test_a_worker_that_was_halted_while_it_entered_stays_halted() -> None:
    target = planned(8)
    g = gate(pending=target, busy=True)
    g.halt()
    g.entered(target)
    assert g == gate(generation=2, committed=8, begun=7, halted=True, passed_over=2)


def test_a_leaver_gives_up_its_seat_and_perhaps_its_state() -> None:
    target = planned(8)
    g = gate(pending=target, busy=True)
    g.entered(target, seated=False, has_state=False)
    assert g == gate(generation=2, committed=8, begun=7, seated=False, has_state=False)


def test_a_failed_switch_tells_what_is_left_of_the_state() -> None:
    g = gate(busy=True)
    g.switch_failed(has_state=False)
    assert g == gate(has_state=False)


def test_old_generations_are_not_accepted() -> None:
    g = gate(generation=3)
    g.accept(planned(generation=3))
    assert g == gate(generation=3)


def test_a_halted_worker_passes_over_a_planned_generation_and_never_enters_it() -> None:
    g = gate(halted=True)
    g.accept(planned())
    assert g == gate(halted=True, passed_over=2)
    g.accept(planned())
    assert g.pending is None
    assert g.newest_generation == 2


def test_halting_gives_up_a_generation_that_is_still_to_be_entered() -> None:
    g = gate(pending=planned(), passed_over=1)
    g.halt()
    assert g == gate(halted=True, passed_over=2)


def test_the_newest_generation_counts_the_pending_one() -> None:
    assert gate(pending=planned(generation=4)).newest_generation == 4


def test_a_commit_counts_only_when_it_has_ended() -> None:
    g = gate()
    assert g.begin_commit()
    assert g == gate(busy=True)
    g.halt()
    assert g.halted_at is None
    g.end_commit()
    assert (g.halted_at, g.committed) == (6, 6)


def test_nothing_is_committed_after_a_halt() -> None:
    g = gate(halted=True)
    before = replace(g)
    assert not g.begin_commit()
    assert g == before
    assert gate().halted_at is None
