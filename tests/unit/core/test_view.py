"""How the records of a job are read into one picture."""

from protocol_records import FINISHED, JOB, KEYS, READY, dismissed, exited, record, topology, view

from elastane.core.view import JobView, build_view, encode
from elastane.model.ids import WorkerId
from elastane.model.records import Connected, JobPhase, JobStatus, ModelSignature, Slowdown, Spec
from elastane.model.topology import Mode

A, B = WorkerId("a"), WorkerId("b")


def test_a_job_without_a_spec_does_not_exist() -> None:
    assert build_view(JOB, 3, [(KEYS.status, encode(JobStatus(phase=JobPhase.FAILED)))]) is None


def test_a_fresh_job_has_nothing_but_its_spec() -> None:
    entries = [(KEYS.spec, encode(Spec(wanted=2)))]
    assert build_view(JOB, 3, entries) == JobView(revision=3, spec=Spec(wanted=2))


def test_all_records_are_read_and_only_the_present_proposals_acknowledgements() -> None:
    proposal = topology("a", "b", generation=2, attempt=7)
    expected = view(
        record("a"),
        current=topology("a"),
        proposal=proposal,
        acks={A: Connected()},
        exits=exited("c"),
        dismissed=dismissed("d"),
        signature=ModelSignature(virtual_workers=4, entries=(("w", "float32 [2]"),)),
        slowdowns={A: Slowdown(factor=1.5, for_s=60.0, drill="d")},
    )
    records = {
        KEYS.spec: expected.spec,
        KEYS.status: expected.status,
        KEYS.signature: expected.signature,
        KEYS.member(A): expected.members[A],
        KEYS.current: expected.current,
        KEYS.proposal: proposal,
        KEYS.ack(2, 7, A): Connected(),
        KEYS.ack(2, 6, B): Connected(),
        KEYS.exit(WorkerId("c")): expected.exits[WorkerId("c")],
        KEYS.dismissal(WorkerId("d")): expected.dismissed[WorkerId("d")],
        KEYS.slowdown(A): expected.slowdowns[A],
    }
    entries = [(key, encode(value)) for key, value in records.items()]
    assert build_view(JOB, 10, [*entries, (KEYS.leader, b"a")]) == expected
    assert expected.virtual_workers == 4


def test_a_record_that_did_not_change_is_the_same_object_in_the_next_view() -> None:
    spec = (KEYS.spec, encode(Spec(wanted=2)))
    before = build_view(JOB, 3, [spec, (KEYS.member(A), encode(record("a")))])
    after = build_view(
        JOB, 4, [spec, (KEYS.member(A), encode(record("a"))), (KEYS.member(B), encode(record("b")))]
    )
    assert before is not None
    assert after is not None
    assert after.members[A] is before.members[A]
    assert after.spec is before.spec
    assert set(before.members) == {A}


def test_a_worker_lives_while_its_record_stands_and_nobody_says_otherwise() -> None:
    assert view(record("a")).alive(A)
    assert not view().alive(A)
    assert not view(record("a"), exits=exited("a")).alive(A)
    assert not view(record("a"), dismissed=dismissed("a")).alive(A)


def test_under_a_batch_policy_the_number_of_virtual_workers_is_that_of_workers() -> None:
    fixed = view(signature=ModelSignature(virtual_workers=4, entries=()))
    assert (fixed.batch, fixed.count_virtual_workers(3)) == ("", 4)
    shared = view(signature=ModelSignature(virtual_workers=64, batch="FixedGlobal(64)", entries=()))
    assert (shared.batch, shared.count_virtual_workers(3)) == ("FixedGlobal(64)", 3)
    assert view(signature=None).batch == ""


def test_the_number_of_virtual_workers_is_not_known_before_the_signature() -> None:
    assert view(signature=None).virtual_workers == 0


def test_a_record_tells_whether_its_worker_has_entered_the_current_generation() -> None:
    picture = view(record("a", generation=2), record("b"), current=topology("a", "b", generation=2))
    assert picture.has_entered(A)
    assert not picture.has_entered(B)
    assert not picture.has_entered(WorkerId("c"))
    assert not view(record("a")).has_entered(A)


def test_a_generation_is_settled_when_all_that_live_have_entered_it() -> None:
    two = topology("a", "b", generation=2)
    stop = topology(generation=2, mode=Mode.STOP, leaving=(A, B))
    assert view().settled
    for current in (two, stop):
        assert view(record("a", generation=2), record("b", FINISHED, 2), current=current).settled
        assert view(record("a", generation=2), current=current).settled
        assert not view(record("a", generation=2), record("b"), current=current).settled
        assert not view(record("c", READY), current=current).settled
