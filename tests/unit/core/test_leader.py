"""What the leader writes next, for every stage of a change."""

from dataclasses import replace

import pytest
from msgspec import structs
from protocol_records import (
    FINISHED,
    JOB,
    KEYS,
    PREPARING,
    READY,
    TRAINING,
    dismissed,
    exited,
    record,
    sight,
    topology,
    view,
)

from elastane.core.gate import ProposalId
from elastane.core.leader import (
    Decision,
    LeaderSettings,
    choose_switch_step,
    decide,
    may_lead,
    proposal_stage,
)
from elastane.core.view import JobView, encode
from elastane.model.ids import WorkerId
from elastane.model.records import (
    Ack,
    Connected,
    Dismissal,
    Failed,
    JobPhase,
    JobStatus,
    MemberRecord,
    Promised,
    Recovery,
    Refused,
)
from elastane.model.topology import Mode, Topology

A, B, C, D = (WorkerId(w) for w in "abcd")
SETTINGS = LeaderSettings()
AB = topology("a", "b")
STARTING = JobStatus(phase=JobPhase.STARTING, earlier_generations=4)
ENDS = (KEYS.proposal, KEYS.acks)


def decided(picture: JobView, **seen: object) -> Decision:
    return decide(JOB, picture, sight(**seen), SETTINGS)


def next_(*names: str, mode: Mode = Mode.PLANNED, **more: object) -> Topology:
    return topology(*names, generation=2, attempt=7, mode=mode, reason="why", **more)


def joining(acks: dict[WorkerId, Ack] | None = None, **more: object) -> JobView:
    """Return a picture in which c is to join a, and a leads."""
    proposal = next_("a", "c", **more)
    return view(record("a"), record("c", READY), current=topology("a"), proposal=proposal, acks=acks or {})


def repairing(acks: dict[WorkerId, Ack] | None = None, *, spare: bool = False, **more: object) -> JobView:
    """Return a picture in which a and b go on without c, perhaps with d."""
    names = ("a", "b", "d") if spare else ("a", "b")
    proposal = next_(*names, **{"mode": Mode.RECOVERY, **more})
    spares = (record("d", READY),) if spare else ()
    current = topology("a", "b", "c")
    return view(
        record("a"), record("b"), *spares, wanted=3, current=current, proposal=proposal, acks=acks or {}
    )


def withdrawn(reason: str, **puts: Dismissal) -> Decision:
    dismissals = {KEYS.dismissal(WorkerId(w)): encode(d) for w, d in puts.items()}
    return Decision(puts=dismissals, deletes=ENDS, event="withdrawn", reason=reason, fields={"generation": 2})


def described(t: Topology) -> dict[str, object]:
    return {
        "generation": t.generation,
        "mode": t.mode.value,
        "members": {m.worker: list(m.vranks) for m in t.members},
        "leaving": list(t.leaving),
    }


def committed(picture: JobView, step: int, *suppliers: WorkerId, gathered: int = 0) -> Decision:
    assert picture.proposal is not None
    done = structs.replace(picture.proposal, switch_step=step, gathered=gathered, suppliers=suppliers)
    training = structs.replace(picture.status, phase=JobPhase.TRAINING)
    return Decision(
        puts={KEYS.current: encode(done), KEYS.status: encode(training)},
        deletes=ENDS,
        unchanged={KEYS.status: encode(picture.status)},
        event="committed",
        reason="why",
        fields={**described(done), "switch_step": step},
    )


# --- nothing to do, and the end --------------------------------------------------------------------


def test_nothing_is_written_when_all_is_as_it_should_be() -> None:
    assert decided(view(record("a"), record("b"), current=AB)) == Decision()


def test_ready_workers_that_nobody_wants_any_more_are_dismissed() -> None:
    picture = view(record("a"), record("b"), record("c", READY), current=topology("a", "b"))
    reason = "2 workers are wanted, and so many train"
    assert decide(JOB, picture, sight(), SETTINGS) == Decision(
        puts={KEYS.dismissal(WorkerId("c")): encode(Dismissal(reason=reason))},
        event="dismissed",
        reason=reason,
        fields={"workers": [WorkerId("c")]},
    )


def test_nobody_is_dismissed_while_a_change_is_still_being_entered_or_the_job_stops() -> None:
    behind = view(record("a"), record("b"), record("c", READY), current=topology("a", "b", generation=2))
    stopping = view(
        record("a"), record("c", READY), current=topology(mode=Mode.STOP, leaving=(WorkerId("a"),)), stop=True
    )
    for picture in (behind, stopping):
        assert decide(JOB, picture, sight(), SETTINGS) == Decision()


@pytest.mark.parametrize(
    ("withdrawals", "wake_at_s"), [(1, None), (2, 99.99 + 0.05), (3, 99.99 + 0.1), (20, 99.99 + 2.0)]
)
def test_after_repeated_failures_the_next_attempt_waits_longer_and_longer(
    withdrawals: int, wake_at_s: float | None
) -> None:
    picture = view(record("a"), record("b"), wanted=1, current=topology("a", "b"))
    seen = sight(withdrawals=withdrawals, withdrawn_at_s=99.99)
    decision = decide(JOB, picture, seen, SETTINGS)
    assert (decision.event == "proposed", decision.wake_at_s) == (wake_at_s is None, wake_at_s)


def test_nothing_is_written_after_the_jobs_end() -> None:
    over = view(record("a"), current=AB, status=JobStatus(phase=JobPhase.FINISHED))
    assert decided(over) == Decision()


@pytest.mark.parametrize(
    ("picture", "phase", "why"),
    [
        (view(stop=True, status=STARTING), JobPhase.STOPPED, "stopped before training began"),
        (
            view(current=topology("a"), exits=exited("a"), stop=True),
            JobPhase.FAILED,
            "lost a (killed by signal 9), and no worker that holds the job's state is left",
        ),
    ],
)
def test_a_job_that_cannot_go_on_ends(picture: JobView, phase: JobPhase, why: str) -> None:
    status = structs.replace(picture.status, phase=phase, message=why)
    assert decided(picture) == Decision(
        puts={KEYS.status: encode(status)},
        unchanged={KEYS.status: encode(picture.status)},
        event=phase.value,
        reason=why,
    )


# --- proposing -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("picture", "generation", "reason"),
    [
        (
            view(record("a"), record("c", READY), current=topology("a")),
            2,
            "1 -> 2 workers, 2 wanted: c joins",
        ),
        (
            view(record("a", READY), record("c", READY), status=STARTING),
            5,
            "start with 2 of 2 wanted workers",
        ),
    ],
)
def test_a_change_is_proposed_under_the_next_number(picture: JobView, generation: int, reason: str) -> None:
    mode = Mode.PLANNED if picture.current else Mode.START
    proposal = structs.replace(
        topology("a", "c", generation=generation, mode=mode), attempt=10, reason=reason
    )
    assert decided(picture) == Decision(
        puts={KEYS.proposal: encode(proposal)},
        deletes=(KEYS.all_rendezvous,),
        event="proposed",
        reason=reason,
        fields=described(proposal),
    )


WAITS = "waiting for workers that are about to be ready"


@pytest.mark.parametrize(
    ("picture", "wake_at_s"),
    [
        (view(record("a", READY), status=STARTING), 109.0),
        (view(record("a", READY), status=STARTING, minimum=2), float("inf")),
        (
            view(record("a"), record("c", READY), record("d", PREPARING), wanted=3, current=topology("a")),
            99.25,
        ),
    ],
)
def test_a_ready_worker_waits_a_little_for_others(picture: JobView, wake_at_s: float) -> None:
    ready = {A: 99.0, C: 99.0}
    waiting = decide(JOB, picture, sight(99.1, ready_since_s=ready), SETTINGS)
    assert waiting == Decision(wake_at_s=wake_at_s, reason=WAITS)
    later = decide(JOB, picture, sight(200.0, ready_since_s=ready), SETTINGS)
    assert (later.event == "proposed") == (wake_at_s < 200.0)


@pytest.mark.parametrize(
    "picture",
    [
        view(record("a"), record("c", READY), wanted=3, current=topology("a")),  # nobody else is coming
        view(record("a"), record("b"), wanted=1, current=AB),  # nobody joins
        view(record("a"), record("b"), stop=True, current=AB),
        view(record("a"), record("c", READY), record("d", PREPARING), wanted=3, current=AB),  # b is lost
    ],
)
def test_nobody_is_waited_for_in_vain(picture: JobView) -> None:
    assert decided(picture).event == "proposed"


def test_a_loss_replaces_a_planned_proposal_at_once() -> None:
    picture = replace(joining(), current=AB, exits=exited("b"))
    decision = decided(picture)
    assert decision.event == "proposed"
    assert decision.deletes == (KEYS.all_rendezvous, KEYS.acks)
    assert decision.fields["mode"] == "recovery"


# --- connecting ------------------------------------------------------------------------------------


def test_links_are_waited_for() -> None:
    expected = Decision(wake_at_s=105.0, reason="waiting for c to connect")
    assert decided(joining({A: Connected()}), proposed_at_s=95.0) == expected


def test_a_proposal_is_withdrawn_when_a_peer_goes() -> None:
    gone = replace(joining(), members={A: record("a")})
    assert decided(gone) == withdrawn("c went away before the change was complete")


def test_a_newcomer_that_cannot_be_connected_is_dismissed() -> None:
    dismissal = Dismissal(reason="could not be connected to the others (c: no route)", unreachable=True)
    failed = joining({A: Connected(), C: Failed(why="no route")})
    assert decided(failed) == withdrawn("the change was given up (c: no route)", c=dismissal)


def test_a_newcomer_is_dismissed_for_a_fault_of_a_member_too() -> None:
    dismissal = Dismissal(reason="could not be connected to the others (a: no route)", unreachable=True)
    failed = joining({A: Failed(why="no route")})
    assert decided(failed) == withdrawn("the change was given up (a: no route)", c=dismissal)


def test_who_is_late_is_left_out() -> None:
    why = "c: not connected after 10 s"
    dismissal = Dismissal(reason=f"could not be connected to the others ({why})", unreachable=True)
    late = decided(joining({A: Connected()}), proposed_at_s=90.0)
    assert late == withdrawn(f"the change was given up ({why})", c=dismissal)


def test_at_the_start_only_who_is_at_fault_is_dismissed() -> None:
    picture = view(
        record("a", READY),
        record("b", READY),
        proposal=next_("a", "b", mode=Mode.START),
        acks={B: Failed(why="no route")},
        status=STARTING,
    )
    dismissal = Dismissal(reason="could not be connected to the others (b: no route)", unreachable=True)
    assert decided(picture) == withdrawn("the change was given up (b: no route)", b=dismissal)


@pytest.mark.parametrize("mode", [Mode.RECOVERY, Mode.START])
def test_survivors_that_cannot_reach_each_other_try_once_more(mode: Mode) -> None:
    picture = repairing(mode=mode)
    assert picture.current is not None
    entered = {w: structs.replace(m, generation=0) for w, m in picture.members.items()}
    if mode is Mode.START:
        current = structs.replace(picture.current, mode=mode)
        picture = replace(picture, current=current, members=entered)
    again = structs.replace(picture.proposal, attempt=10, asked=1)
    why = "a: not connected after 10 s; b: not connected after 10 s"
    assert decided(picture, proposed_at_s=90.0) == Decision(
        puts={KEYS.proposal: encode(again)},
        deletes=(KEYS.all_rendezvous, KEYS.acks),
        event="proposed",
        reason=f"why; once more ({why})",
        fields=described(again),
    )


def test_survivors_that_still_cannot_reach_each_other_part() -> None:
    why = "a: not connected after 10 s; b: not connected after 10 s"
    dismissal = Dismissal(reason=f"could not be connected to the others ({why})", unreachable=True)
    expected = withdrawn(f"the change was given up ({why})", b=dismissal)
    assert decided(repairing(asked=1), proposed_at_s=90.0) == expected
    beside_a_spare = repairing({WorkerId("d"): Connected()}, spare=True, asked=1)
    assert decided(beside_a_spare, proposed_at_s=90.0) == expected


def test_who_holds_the_newest_state_is_never_given_up() -> None:
    why = "a: not connected after 10 s"
    dismissal = Dismissal(reason=f"could not be connected to the others ({why})", unreachable=True)
    picture = repairing({B: Connected()}, asked=1)
    behind = replace(picture, members={A: record("a", generation=2), B: record("b", generation=1)})
    expected = withdrawn(f"the change was given up ({why})", b=dismissal)
    assert decided(behind, proposed_at_s=90.0) == expected


def test_a_survivor_that_alone_cannot_be_reached_is_given_up() -> None:
    why = "a: not connected after 10 s"
    dismissal = Dismissal(reason=f"could not be connected to the others ({why})", unreachable=True)
    picture = repairing({B: Connected(halted_at=5)}, asked=1)
    expected = withdrawn(f"the change was given up ({why})", a=dismissal)
    assert decided(picture, proposed_at_s=90.0) == expected


# --- committing ------------------------------------------------------------------------------------


def test_in_a_recovery_those_that_are_furthest_supply_the_state() -> None:
    picture = repairing({A: Connected(halted_at=5), B: Connected(halted_at=6)})
    assert decided(picture) == committed(picture, 6, B)
    spare = repairing(
        {A: Connected(halted_at=6), B: Connected(halted_at=6), WorkerId("d"): Connected()}, spare=True
    )
    assert decided(spare) == committed(spare, 6, A, B)


def test_of_those_at_one_step_who_has_gathered_more_is_further() -> None:
    ahead, behind = Connected(halted_at=6, gathered=2), Connected(halted_at=6, gathered=1)
    picture = repairing({A: behind, B: ahead})
    assert decided(picture) == committed(picture, 6, B, gathered=2)
    # A step counts for more than all that was gathered before it.
    picture = repairing({A: Connected(halted_at=7), B: ahead})
    assert decided(picture) == committed(picture, 7, A)


def test_at_the_start_one_supplies_the_state() -> None:
    picture = view(
        record("a", READY),
        record("b", READY),
        proposal=next_("a", "b", mode=Mode.START),
        acks={A: Connected(halted_at=3), B: Connected(halted_at=3)},
        status=STARTING,
    )
    assert decided(picture) == committed(picture, 3, A)


def sent_away(*names: str, why: str, with_proposal: bool = True) -> Decision:
    """Return the decision that dismisses these workers."""
    workers = [WorkerId(name) for name in names]
    return Decision(
        puts={KEYS.dismissal(w): encode(Dismissal(reason=why)) for w in workers},
        deletes=(KEYS.proposal, KEYS.acks) if with_proposal else (),
        event="dismissed",
        reason=why,
        fields={"workers": workers},
    )


def test_a_recovery_in_which_nobody_holds_the_state_makes_room_for_those_that_load_a_checkpoint() -> None:
    picture = repairing({A: Connected(), B: Connected()})
    assert decided(picture) == sent_away("a", "b", why="no worker that holds the job's state is left")


def test_newcomers_that_cannot_be_sent_the_state_any_more_are_dismissed() -> None:
    lost = {**exited("a"), **exited("b")}
    picture = view(record("c", READY), record("d", PREPARING), current=topology("a", "b"), exits=lost)
    why = "everybody that could have sent this worker the job's state was lost"
    assert decided(picture) == sent_away("c", why=why, with_proposal=False)


def test_newcomers_stay_if_one_of_them_has_loaded_the_newest_checkpoint() -> None:
    lost = {**exited("a"), **exited("b")}
    newcomers = record("c", READY), record("d", READY, restored_after=1)
    decision = decided(view(*newcomers, current=topology("a", "b"), exits=lost))
    assert decision.event == "proposed"
    assert decision.fields["members"] == {D: [0, 2], C: [2, 4]}


def test_a_restart_waits_a_moment_for_workers_that_are_about_to_be_ready() -> None:
    lost = {**exited("a"), **exited("b")}
    newcomers = record("c", READY, restored_after=1), record("d", PREPARING)
    picture = view(*newcomers, current=topology("a", "b"), exits=lost)
    waiting = decided(picture, ready_since_s={C: 99.9})
    assert (waiting.event, waiting.wake_at_s) == ("", 99.9 + SETTINGS.join_window_s)
    assert decided(picture, ready_since_s={C: 90.0}).event == "proposed"


def test_with_checkpoint_recovery_a_loss_sends_all_back() -> None:
    picture = view(record("b"), recovery=Recovery.CHECKPOINT, current=topology("a", "b"), exits=exited("a"))
    why = "lost a (killed by signal 9): all go back to a checkpoint"
    assert decided(picture) == sent_away("b", why=why, with_proposal=False)


@pytest.mark.parametrize(
    ("members", "current"),
    [
        ((record("b", FINISHED),), topology("a", "b")),
        ((record("b", READY),), topology("a", "b", mode=Mode.START)),
    ],
)
def test_with_checkpoint_recovery_nobody_goes_back_at_the_very_end_or_before_the_first_step(
    members: tuple[MemberRecord, ...], current: Topology
) -> None:
    picture = view(*members, recovery=Recovery.CHECKPOINT, current=current, exits=exited("a"))
    assert decided(picture).event == "proposed"


CONNECTED = {A: Connected(), C: Connected()}


@pytest.mark.parametrize(
    ("seen", "step"),
    [
        ({"newest_step": 5}, 6),
        ({"newest_step": 5, "step_time_s": 0.03}, 9),
    ],
)
def test_the_switch_step_is_chosen_when_all_are_connected(seen: dict[str, object], step: int) -> None:
    picture = joining(CONNECTED)
    asks = structs.replace(picture.proposal, switch_step=step, asked=1)
    expected = Decision(
        puts={KEYS.proposal: encode(asks)}, reason=f"all connected: switch before step {step}"
    )
    assert decided(picture, **seen) == expected


def test_after_a_refusal_a_later_step_is_chosen() -> None:
    picture = joining({A: Refused(at=9), C: Connected()}, switch_step=8, asked=2)
    asks = structs.replace(picture.proposal, switch_step=13, asked=3)
    expected = Decision(puts={KEYS.proposal: encode(asks)}, reason="all connected: switch before step 13")
    assert decided(picture, newest_step=5, step_time_s=0.1) == expected


def test_promises_are_waited_for() -> None:
    waits = Decision(reason="waiting for promises for step 8")
    for ack in (Connected(), Promised(step=7), Refused(at=7)):
        assert decided(joining({A: ack, C: Connected()}, switch_step=8, asked=1)) == waits


def test_a_planned_change_is_committed_when_all_have_promised() -> None:
    picture = joining({A: Promised(step=8), C: Connected()}, switch_step=8, asked=1)
    assert decided(picture) == committed(picture, 8, A)


def test_a_stop_needs_no_links() -> None:
    stop = next_(mode=Mode.STOP, leaving=(A, B), switch_step=8, asked=1)
    picture = view(record("a"), record("b"), current=AB, proposal=stop, stop=True)
    assert decided(picture) == Decision(reason="waiting for promises for step 8")
    promised = replace(picture, acks={A: Promised(step=8), B: Promised(step=8)})
    assert decided(promised) == committed(promised, 8, A, B)


@pytest.mark.parametrize(
    ("newest", "step_time_s", "allowance_s", "step"),
    [(5, 0.0, 0.1, 6), (5, 1.0, 0.1, 6), (5, 0.05, 0.1, 7), (5, 0.04, 0.1, 8)],
)
def test_the_switch_step_leaves_the_allowance(
    newest: int, step_time_s: float, allowance_s: float, step: int
) -> None:
    assert choose_switch_step(newest, step_time_s, allowance_s) == step


# --- standing for election, keeping time -----------------------------------------------------------


@pytest.mark.parametrize(
    ("picture", "may"),
    [
        (view(record("a", READY)), True),
        (view(record("a", PREPARING)), False),
        (view(), False),
        (view(record("a", READY), dismissed=dismissed("a")), False),
        (view(record("a", TRAINING), record("b"), current=AB), True),
        (view(record("a", READY), record("b"), current=topology("b")), False),
        (view(record("a", READY), current=topology("b")), True),
        (view(record("a"), current=AB, status=JobStatus(phase=JobPhase.FINISHED)), False),
    ],
)
def test_members_may_lead_and_others_where_no_member_lives(picture: JobView, may: bool) -> None:
    assert may_lead(picture, A) == may


def test_a_stage_is_told_from_the_next_one() -> None:
    assert proposal_stage(view()) is None
    assert proposal_stage(joining()) == (ProposalId(2, 7), False)
    assert proposal_stage(joining(switch_step=8)) == (ProposalId(2, 7), True)
