"""Elastic-Tiresias: R1 under pressure, R2 into idle devices, floors, and peace between the two."""

import pytest
from policy_records import ask, make_record, sizes

from elastane.policy.elastic_tiresias import ElasticTiresias
from elastane.policy.snapshot import JobRecord

LIMITS = (100.0, 1000.0)
RESTED = {"changed_s": 0.0, "started_s": 0.0}


def make_policy(**settings: object) -> ElasticTiresias:
    return ElasticTiresias(**{"limits": LIMITS, "waiting_trigger": 2, **settings})


def queue(count: int, **facts: object) -> list[JobRecord]:
    """Return jobs of the second queue that wait behind the running ones."""
    facts = {"requested": 4, "service": 150.0, "started_s": 1.0, "changed_s": 900.0, **facts}
    return [make_record(f"w{i}", **facts) for i in range(count)]


def test_r2_gives_idle_devices_to_the_largest_gain_one_at_a_time() -> None:
    records = [
        make_record("flat", 1, profile="flat", **RESTED),
        make_record("concave", 1, profile="concave", **RESTED),
    ]
    # Gains: concave 0.8, 0.6, 0.4; flat 0.1; then nobody gains, and 2 of 8 stay idle.
    assert sizes(ask(make_policy(), records, 8)) == {0: 2, 1: 4}
    assert sizes(ask(make_policy(), records, 4)) == {1: 3}


def test_r2_counts_a_waiting_job_by_its_minimum_and_serves_it_first() -> None:
    records = [
        make_record("runs", 4, profile="concave", requested=4, max_devices=8, service=500.0, **RESTED),
        make_record("waits", requested=8, profile="concave"),
    ]
    # The new job requests more than there is; it gets its minimum and then grows, gain by gain.
    plan = ask(make_policy(), records, 6)
    assert sizes(plan) == {1: 2}
    assert plan.changes[0].reason == "least attained service"


def test_r1_shrinks_only_when_more_than_n_jobs_wait() -> None:
    running = make_record("runs", 4, requested=4, profile="concave", service=150.0, **RESTED)
    assert sizes(ask(make_policy(), [running, *queue(2)], 4)) == {}
    # Floor: half the speed of 4 devices is 1.4, reached by 2; two of the three get one device each.
    assert sizes(ask(make_policy(), [running, *queue(3)], 4)) == {0: 2, 1: 1, 2: 1}


def test_r1_spares_the_top_queue() -> None:
    running = make_record("runs", 4, requested=4, profile="concave", service=50.0, **RESTED)
    assert sizes(ask(make_policy(), [running, *queue(3)], 4)) == {}


def test_r1_takes_from_whom_loses_least() -> None:
    records = [
        make_record("linear", 4, requested=4, service=150.0, **RESTED),
        make_record("flat", 4, requested=4, profile="flat", service=150.0, **RESTED),
        *queue(3),
    ]
    # Flat has 1.1 on 4, 3 and 2 devices and 1.0 on one: above half of 1.1, so it may give three.
    assert sizes(ask(make_policy(), records, 8)) == {1: 1, 2: 1, 3: 1, 4: 1}


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"floor": "throughput", "floor_share": 0.5}, 2),
        ({"floor": "gpus", "floor_share": 0.5}, 2),
        ({"floor": "throughput", "floor_share": 0.3}, 1),
        ({"floor": "gpus", "floor_share": 0.7}, 3),
        ({"floor": "throughput", "floor_share": 0.7}, 3),
    ],
)
def test_both_readings_of_the_floor(settings: dict[str, object], kept: int) -> None:
    running = make_record("runs", 4, requested=4, profile="concave", service=150.0, **RESTED)
    plan = ask(make_policy(**settings), [running, *queue(5, requested=1)], 4)
    assert sizes(plan)[0] == kept


def test_the_floor_is_never_below_the_jobs_own_minimum() -> None:
    running = make_record("runs", 4, requested=4, min_devices=3, profile="concave", service=150.0, **RESTED)
    assert sizes(ask(make_policy(), [running, *queue(5)], 4))[0] == 3


def test_both_readings_of_r1() -> None:
    running = make_record("runs", 8, requested=8, service=150.0, **RESTED)
    waiting = queue(3, requested=4)
    # Three devices are needed for the minima; the floor of a linear job on 8 is 4.
    as_needed = sizes(ask(make_policy(r1="as-needed"), [running, *waiting], 8))
    to_floor = sizes(ask(make_policy(r1="to-floor"), [running, *waiting], 8))
    assert as_needed == {0: 5, 1: 1, 2: 1, 3: 1}
    # The device that nobody waits for goes to the first of those that started: its gain ties with no one's.
    assert to_floor == {0: 4, 1: 2, 2: 1, 3: 1}


def test_what_was_lent_is_taken_back_before_anybody_is_preempted() -> None:
    records = [
        make_record("grown", 6, requested=2, service=150.0, **RESTED),
        make_record("runs", 2, requested=2, service=160.0, **RESTED),
        make_record("new", requested=3),
    ]
    assert sizes(ask(make_policy(), records, 8)) == {0: 3, 2: 3}


def test_a_job_that_changed_just_now_does_not_grow_and_is_looked_at_again() -> None:
    records = [make_record("fresh", 1, profile="concave", started_s=990.0, changed_s=990.0)]
    plan = ask(make_policy(cooldown_s=60.0), records, 8)
    assert sizes(plan) == {}
    assert plan.ask_again_s == 1060.0


def test_rigid_jobs_are_neither_shrunk_nor_grown() -> None:
    rigid = make_record("rigid", 4, requested=4, elasticity="rigid", service=150.0, **RESTED)
    assert sizes(ask(make_policy(), [rigid, *queue(3)], 4)) == {}
    assert sizes(ask(make_policy(), [rigid], 8)) == {}
