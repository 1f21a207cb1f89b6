"""What is shown of a job, for every situation that people look at."""

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from elastane.core.view import JobView
from elastane.model.ids import DeviceId, JobId, NodeId, WorkerId
from elastane.model.records import (
    Connected,
    ExitRecord,
    JobInfo,
    JobPhase,
    JobStatus,
    Leave,
    MemberRecord,
    ModelSignature,
    Promised,
    Spec,
    WorkerPhase,
)
from elastane.model.topology import Member, Mode, Topology, VrankRange
from elastane.observe.events import Event
from elastane.observe.metrics import MetricsRecord
from elastane.observe.snapshot import (
    Change,
    JobSnapshot,
    Join,
    Rates,
    WorkerSnapshot,
    compute_changes,
    compute_rates,
    compute_snapshot,
)

INFO = JobInfo(
    job=JobId("3f2a91bc"),
    name="digits",
    script="/work/digits.py",
    arguments=("--epochs", "3"),
    directory="/home/me/.elastane/jobs/3f2a91bc",
    created_at_s=1000.0,
)
A, B, C = WorkerId("a"), WorkerId("b"), WorkerId("c")


def member(worker: WorkerId, phase: WorkerPhase = WorkerPhase.TRAINING, **fields: Any) -> MemberRecord:
    values: dict[str, Any] = {
        "node": NodeId("n0"),
        "device": DeviceId(f"cpu:{ord(worker) - ord('a')}"),
        "pid": 100,
        "virtual_workers": 4,
        "generation": 2 if phase is WorkerPhase.TRAINING else 0,
        "committed_step": 40 if phase is WorkerPhase.TRAINING else 0,
        "step_time_s": 0.02 if phase is WorkerPhase.TRAINING else 0.0,
    }
    return MemberRecord(worker=worker, phase=phase, **{**values, **fields})


def topology(generation: int, *workers: WorkerId, mode: Mode = Mode.PLANNED, **fields: Any) -> Topology:
    width = 4 // len(workers)
    members = tuple(
        Member(worker=worker, vranks=VrankRange(i * width, (i + 1) * width))
        for i, worker in enumerate(workers)
    )
    return Topology(generation=generation, mode=mode, members=members, **fields)


def record(
    step: int, generation: int = 2, step_time_s: float = 0.02, samples: int = 64, at_s: float = 2000.0
) -> MetricsRecord:
    return MetricsRecord(
        step=step,
        epoch=1,
        at_s=at_s,
        generation=generation,
        workers=2,
        step_time_s=step_time_s,
        samples=samples,
        values={"loss": 0.5},
    )


def event(kind: str, at_s: float = 2000.0, **fields: Any) -> Event:
    return Event(at_s=at_s, kind=kind, source="a", fields=fields)


SIGNATURE = ModelSignature(virtual_workers=4, entries=())
TRAINING = JobView(
    revision=9,
    spec=Spec(wanted=2),
    status=JobStatus(phase=JobPhase.TRAINING),
    signature=SIGNATURE,
    leader=A,
    members={A: member(A), B: member(B, committed_step=41)},
    current=topology(2, A, B),
    agents=frozenset({NodeId("n0")}),
)


def show(view: JobView, *events: Event) -> JobSnapshot:
    return compute_snapshot(INFO, view, [], events)


def test_what_was_handed_out_after_the_last_step_is_shown_where_shards_are() -> None:
    handed = [structs.replace(record(41), shards=(5, 2, 3))]
    assert compute_snapshot(INFO, TRAINING, handed, ()).shards == (5, 2, 3)
    assert compute_snapshot(INFO, TRAINING, [record(41)], ()).shards is None


def test_a_job_in_steady_training_is_shown_whole() -> None:
    events = (
        event("switched", generation=2, step=30, stop_s=0.01, workers=2, mode="planned", moved_bytes=5),
    )
    assert compute_snapshot(INFO, TRAINING, [record(40), record(41)], events) == JobSnapshot(
        job=JobId("3f2a91bc"),
        name="digits",
        script="/work/digits.py",
        arguments=("--epochs", "3"),
        directory="/home/me/.elastane/jobs/3f2a91bc",
        created_at_s=1000.0,
        phase=JobPhase.TRAINING,
        message="",
        wanted=2,
        minimum=1,
        stopping=False,
        virtual_workers=4,
        generation=2,
        training=2,
        step=42,
        epoch=1,
        values={"loss": 0.5},
        rates=Rates(steps_per_s=50.0, samples_per_s=3200.0),
        workers=(
            WorkerSnapshot(
                worker=A,
                phase="training",
                vranks=(0, 2),
                leader=True,
                node="n0",
                device="cpu:0",
                pid=100,
                generation=2,
                committed_step=40,
                step_time_s=0.02,
            ),
            WorkerSnapshot(
                worker=B,
                phase="training",
                vranks=(2, 4),
                node="n0",
                device="cpu:1",
                pid=100,
                generation=2,
                committed_step=41,
                step_time_s=0.02,
            ),
        ),
        activity=(),
        changes=(
            Change(generation=2, at_s=2000.0, mode="planned", step=30, workers=2, stop_s=0.01, moved_bytes=5),
        ),
        events=events,
    )


def test_a_job_that_has_just_been_created_shows_what_is_missing() -> None:
    snapshot = show(JobView(revision=1, spec=Spec(wanted=2), agents=frozenset({NodeId("n0")})))
    assert (snapshot.phase, snapshot.step, snapshot.workers, snapshot.training) == (
        JobPhase.STARTING,
        0,
        (),
        0,
    )
    assert snapshot.activity == ("2 workers are wanted, 0 are there",)


def test_an_ended_job_shows_its_last_numbers_and_no_workers() -> None:
    status = JobStatus(phase=JobPhase.FAILED, message="ValueError: no")
    snapshot = compute_snapshot(
        INFO, replace(TRAINING, status=status, spec=Spec(wanted=2, stop=True)), [record(7)], ()
    )
    assert (snapshot.step, snapshot.values, snapshot.message) == (41, {"loss": 0.5}, "ValueError: no")
    assert (snapshot.workers, snapshot.activity, snapshot.rates, snapshot.training) == ((), (), None, 0)
    assert snapshot.stopping is False


def test_a_newcomer_is_shown_after_the_members_with_what_it_does() -> None:
    view = replace(
        TRAINING,
        spec=Spec(wanted=3),
        members={**TRAINING.members, C: member(C, WorkerPhase.PREPARING)},
    )
    snapshot = show(view)
    assert [(w.worker, w.phase, w.vranks) for w in snapshot.workers] == [
        (A, "training", (0, 2)),
        (B, "training", (2, 4)),
        (C, "preparing", None),
    ]
    assert snapshot.activity == ("c is preparing on cpu:2",)


def test_a_worker_that_died_is_shown_as_lost_until_it_has_left_the_topology() -> None:
    view = replace(TRAINING, exits={B: ExitRecord(worker=B, code=-9)})
    snapshot = show(view)
    assert [(w.worker, w.phase) for w in snapshot.workers] == [(A, "training"), (B, "lost")]
    assert snapshot.training == 1
    assert snapshot.activity == ("2 workers are wanted, 1 are there",)


def test_a_leaver_is_shown_with_the_moment_of_its_leaving() -> None:
    for leave, words in ((Leave.NOW, "as soon as possible"), (Leave.SWAP, "when its replacement is ready")):
        snapshot = show(replace(TRAINING, spec=Spec(wanted=1, leaving={B: leave, C: leave})))
        assert snapshot.activity == (f"b leaves {words}",)
        assert [w.phase for w in snapshot.workers] == ["training", "leaving"]


def test_a_proposal_is_shown_with_who_answered_and_why() -> None:
    proposal = topology(3, A, C, leaving=(B,), switch_step=44, reason="b leaves, c is ready")
    view = replace(
        TRAINING,
        spec=Spec(wanted=2, leaving={B: Leave.SWAP}),
        members={**TRAINING.members, C: member(C, WorkerPhase.READY)},
        proposal=proposal,
        acks={A: Promised(step=44), C: Connected()},
    )
    assert show(view).activity == (
        "generation 3: +c -b, switch before step 44 (2 of 3 connected, 1 of 3 promised): "
        "b leaves, c is ready",
        "b leaves when its replacement is ready",
        "c is ready on cpu:2",
    )


def test_under_a_batch_policy_as_many_virtual_workers_are_shown_as_workers_train() -> None:
    shared = ModelSignature(virtual_workers=64, batch="FixedGlobal(64)", entries=())
    shown = show(replace(TRAINING, signature=shared))
    assert (shown.virtual_workers, shown.batch) == (2, "FixedGlobal(64)")
    assert show(replace(TRAINING, signature=shared, current=None)).virtual_workers == 0


def test_a_proposal_that_only_moves_virtual_workers_says_so() -> None:
    assert show(replace(TRAINING, proposal=topology(3, A, B))).activity == (
        "generation 3: virtual workers move",
    )


def test_a_stop_that_was_asked_for_is_shown() -> None:
    snapshot = show(replace(TRAINING, spec=Spec(wanted=2, stop=True)))
    assert snapshot.stopping
    assert snapshot.activity == ("stopping: all workers leave at the next boundary and the state is saved",)


def test_a_job_that_nobody_runs_says_so() -> None:
    assert show(replace(TRAINING, agents=frozenset())).activity == (
        "no agent runs this job: its workers stop and save before long, and nobody replaces them",
    )


def test_waiting_is_shown_until_something_has_moved() -> None:
    waiting = event("waiting", worker="b", since_s=2.0, reason="the state to be moved")
    leads = event("leader", worker="a")
    assert show(TRAINING, waiting, leads).activity == ("b waits: the state to be moved",)
    assert show(TRAINING, waiting, event("switched", generation=2)).activity == ()
    assert compute_snapshot(INFO, TRAINING, [record(41, at_s=2000.1)], [waiting, leads]).activity == ()


@pytest.mark.parametrize(
    ("metrics", "rates"),
    [
        ([], None),
        ([record(0, step_time_s=0.0)], None),
        ([record(0, step_time_s=0.5)], Rates(steps_per_s=2.0, samples_per_s=128.0)),
        # The first step of a generation holds the stop time and does not count.
        (
            [record(0, 1), record(1, 2, 3.0), record(2), record(3)],
            Rates(steps_per_s=50.0, samples_per_s=3200.0),
        ),
        # Only the last ten seconds count.
        (
            [record(0), record(1, step_time_s=100.0), record(2, step_time_s=4.0)]
            + [record(step, step_time_s=4.0) for step in (3, 4)],
            Rates(steps_per_s=0.25, samples_per_s=16.0),
        ),
        ([record(0), record(1, samples=0)], Rates(steps_per_s=50.0, samples_per_s=None)),
    ],
)
def test_throughput(metrics: list[MetricsRecord], rates: Rates | None) -> None:
    computed = compute_rates(metrics)
    if rates is None or computed is None:
        assert computed == rates
    else:
        assert computed.steps_per_s == pytest.approx(rates.steps_per_s)
        assert computed.samples_per_s == pytest.approx(rates.samples_per_s)


def test_a_change_is_put_together_from_the_events_of_all_workers() -> None:
    events = [
        event("agent_started", devices=["cpu:0"]),
        event("committed", 10.0, generation=2, switch_step=30, reason="c is ready"),
        event(
            "switched", 11.0, generation=2, step=30, stop_s=0.02, workers=3, mode="planned", moved_bytes=10
        ),
        event(
            "switched", 11.1, generation=2, step=30, stop_s=0.05, workers=3, mode="planned", moved_bytes=10
        ),
        event("joined", 11.2, worker="c", generation=2, step=30, latency_s=0.8),
        event("left", 11.3, worker="b", generation=2, step=30),
        event("committed", 12.0, generation=3, switch_step=50, reason="b is gone"),
    ]
    assert compute_changes(events) == (
        Change(
            generation=2,
            at_s=11.1,
            mode="planned",
            reason="c is ready",
            step=30,
            workers=3,
            stop_s=0.05,
            moved_bytes=10,
            joined=(Join(worker=C, latency_s=0.8),),
            left=(B,),
        ),
        Change(generation=3, at_s=12.0, reason="b is gone", step=50),
    )


def test_generations_of_a_resumed_job_are_not_mixed_with_those_of_its_first_run() -> None:
    run = [event("agent_started"), event("committed", 10.0, generation=1, switch_step=0, reason="start")]
    again = [event("agent_started"), event("committed", 20.0, generation=1, switch_step=40, reason="resumed")]
    assert [(change.generation, change.step) for change in compute_changes([*run, *again])] == [
        (1, 0),
        (1, 40),
    ]


def test_events_of_another_version_do_no_harm() -> None:
    assert compute_changes([event("switched"), event("joined", generation="two"), event("unheard")]) == ()
