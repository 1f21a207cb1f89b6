"""What the events of a job say about the cost of each join."""

from collections.abc import Mapping

import pytest

from elastane.model.ids import WorkerId
from elastane.observe.events import Event
from elastane.observe.joins import (
    JoinOutcome,
    JoinPhase,
    JoinReport,
    JoinSummary,
    compute_joins,
    summarise_joins,
)

W1, W2 = WorkerId("w1"), WorkerId("w2")
TOLD = {"spawn": 0.01, "import": 0.02, "device": 0.0, "build": 0.03, "warm_up": 0.04}
ALL = {**TOLD, "connect": 0.1, "agree": 0.2, "transfer": 0.1}


def event(kind: str, at_s: float, source: str = "w1", **fields: object) -> Event:
    return Event(at_s=at_s, kind=kind, source=source, fields=fields)


def joined(worker: str, at_s: float, generation: int, phases: Mapping[str, float] = ALL) -> Event:
    return event(
        "joined", at_s, worker=worker, generation=generation, step=3, latency_s=0.5, phases=dict(phases)
    )


def life(worker: str, begun_s: float, start: str = "warm") -> list[Event]:
    return [
        event("worker_starting", begun_s, "agent n0", worker=worker, device="cpu:1", reason="wanted"),
        event("worker_started", begun_s + 0.01, "agent n0", worker=worker, pid=7, start=start),
        event("worker_ready", begun_s + 0.1, worker=worker, step=0, phases=TOLD),
    ]


def phases(told: Mapping[str, float]) -> dict[JoinPhase, float]:
    return {JoinPhase(name): seconds for name, seconds in told.items()}


def test_a_join_is_told_with_its_phases_and_what_was_moved_for_it() -> None:
    events = [
        event("agent_started", 0.0, "agent n0"),
        *life("w1", 1.0),
        joined("w1", 2.0, 4),
        event("switched", 2.01, generation=4, moved_bytes=300),
    ]
    assert compute_joins(events) == (
        JoinReport(
            worker=W1,
            device="n0/cpu:1",
            start="warm",
            outcome=JoinOutcome.JOINED,
            asked_at_s=1.5,
            phases=phases(ALL),
            latency_s=0.5,
            generation=4,
            moved_bytes=300,
        ),
    )


def test_a_join_under_way_has_the_phases_so_far() -> None:
    (report,) = compute_joins(life("w1", 1.0, "cold"))
    assert report == JoinReport(
        worker=W1, device="n0/cpu:1", start="cold", asked_at_s=1.0, phases=phases(TOLD)
    )


@pytest.mark.parametrize("kind", ["worker_exited", "worker_start_failed"])
def test_a_worker_that_ends_before_it_took_part_is_gone_and_one_that_ends_later_is_not(kind: str) -> None:
    events = [*life("w1", 1.0), *life("w2", 1.0), joined("w2", 2.0, 2)]
    events += [event(kind, 3.0, "agent n0", worker=worker) for worker in ("w1", "w2")]
    assert [(r.worker, r.outcome) for r in compute_joins(events)] == [
        (W1, JoinOutcome.GONE),
        (W2, JoinOutcome.JOINED),
    ]


def test_agents_that_start_between_a_switch_and_its_joins_take_nothing_from_what_was_moved() -> None:
    events = [
        event("agent_started", 0.0, "agent n0"),
        *life("w1", 1.0),
        event("switched", 2.0, generation=2, moved_bytes=5),
        event("agent_started", 2.0, "agent n1"),  # a node that begins to serve, or an agent that died
        joined("w1", 2.0, 2),
        event("agent_started", 10.0, "agent n0"),  # the job was stopped and goes on
        *life("w2", 11.0),
        event("switched", 12.0, generation=3, moved_bytes=7),
        joined("w2", 12.0, 3),
    ]
    assert [report.moved_bytes for report in compute_joins(events)] == [5, 7]


def test_events_of_a_version_that_told_no_phases_give_reports_without() -> None:
    events = [
        event("worker_started", 1.0, "agent n0", worker="w1", start="warm"),
        event("worker_ready", 1.5, worker="w1", step=0),
        event("joined", 2.0, worker="w1", generation=1, step=0, latency_s=None),
    ]
    (report,) = compute_joins(events)
    assert (report.outcome, report.phases, report.latency_s) == (JoinOutcome.JOINED, {}, None)
    assert report.asked_at_s == 1.0


def test_other_events_are_no_joins() -> None:
    assert compute_joins([event("committed", 1.0, members={}), event("worker_exited", 2.0)]) == ()


def test_the_summary_has_medians_of_those_that_came_to_their_end() -> None:
    slow = {**ALL, "agree": 1.2}
    events = [
        *life("w1", 1.0),
        *life("w2", 1.0, "cold"),
        *life("w3", 1.0),
        *life("w4", 1.0),
        joined("w1", 2.0, 2),
        joined("w2", 2.0, 2, slow),
        joined("w3", 2.0, 2, slow),
    ]
    summary = summarise_joins(compute_joins(events))
    assert summary == JoinSummary(joined=3, warm=2, cold=1, latency_s=0.5, phases=phases(slow))
    assert summary.costliest is JoinPhase.AGREE


def test_nothing_is_summarised_where_nobody_joined() -> None:
    summary = summarise_joins(compute_joins(life("w1", 1.0)))
    assert summary == JoinSummary(joined=0, warm=0, cold=0, latency_s=None, phases={})
    assert summary.costliest is None
