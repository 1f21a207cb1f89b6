"""Tiresias and Gittins: queues, demotion at the exact moment, promotion, order inside a queue."""

import math

import numpy as np
import pytest
from policy_records import ask, make_record, sizes

from elastane.model.errors import ConfigError
from elastane.policy.gittins import Gittins, compute_gittins_index
from elastane.policy.levels import compute_levels
from elastane.policy.tiresias import Tiresias

LIMITS = (100.0, 1000.0)


def test_a_job_moves_down_when_its_service_reaches_the_limit() -> None:
    service = np.array([0.0, 99.9, 100.0 - 1e-9, 100.0, 999.0, 1000.0, 1e9])
    assert compute_levels(service, LIMITS).tolist() == [0, 0, 1, 1, 1, 2, 2]


def test_a_new_job_preempts_one_that_has_had_more() -> None:
    records = [make_record("old", 4, requested=4, service=150.0), make_record("new", requested=4)]
    plan = ask(Tiresias(limits=LIMITS), records, 4)
    assert sizes(plan) == {0: 0, 1: 4}
    assert plan.changes[0].reason == "preempted: least attained service"


def test_the_policy_asks_for_the_exact_moment_of_the_next_demotion() -> None:
    records = [
        make_record("a", 2, requested=2, service=40.0),  # (100 - 40) / 2 = 30 s
        make_record("b", 4, requested=4, service=500.0),  # (1000 - 500) / 4 = 125 s
        make_record("c", 1, requested=1, service=5000.0),
    ]
    assert ask(Tiresias(limits=LIMITS), records, 8).ask_again_s == 1030.0
    assert ask(Tiresias(limits=LIMITS), records[2:], 8).ask_again_s == math.inf


def test_a_job_that_starts_now_counts_for_the_next_demotion() -> None:
    assert ask(Tiresias(limits=LIMITS), [make_record("a", requested=4)], 8).ask_again_s == 1025.0


def test_inside_a_queue_running_jobs_keep_their_devices() -> None:
    records = [
        make_record("waits", requested=4, started_s=0.0, changed_s=500.0, service=50.0),
        make_record("runs", 4, requested=4, started_s=700.0, changed_s=700.0, service=90.0),
    ]
    assert sizes(ask(Tiresias(limits=LIMITS), records, 4)) == {}
    assert sizes(ask(Tiresias(limits=LIMITS, order="first-start"), records, 4)) == {0: 4, 1: 0}


def test_in_order_of_arrival_an_older_job_displaces_a_younger_one_that_runs() -> None:
    records = [make_record("older", requested=4), make_record("runs", 4, requested=4, service=90.0)]
    assert sizes(ask(Tiresias(limits=LIMITS), records, 4)) == {}
    assert sizes(ask(Tiresias(limits=LIMITS, order="arrival"), records, 4)) == {0: 4, 1: 0}


def test_a_job_that_moves_down_goes_behind_those_that_wait_in_its_new_queue() -> None:
    records = [
        make_record("just-down", 4, requested=4, service=100.0),
        make_record("waits", requested=4, started_s=0.0, changed_s=500.0, service=400.0),
    ]
    assert sizes(ask(Tiresias(limits=LIMITS), records, 4)) == {0: 0, 1: 4}


def test_waiting_jobs_that_do_not_fit_are_skipped() -> None:
    records = [make_record("wide", requested=8), make_record("runs", 4, requested=4, service=150.0)]
    assert sizes(ask(Tiresias(limits=LIMITS), records, 8)) == {0: 8, 1: 0}
    assert sizes(ask(Tiresias(limits=LIMITS), [*records, make_record("x", 4, requested=4)], 8)) == {}


def test_a_job_that_waited_long_enough_is_promoted_and_the_caller_remembers_it() -> None:
    policy = Tiresias(limits=LIMITS, promote_knob=2.0)
    # It ran 200 / 4 = 50 s, so it is due 100 s after 900.
    starved = make_record("starved", requested=4, started_s=0.0, changed_s=900.0, service=200.0)
    running = make_record("runs", 4, requested=4, service=150.0)
    plan = ask(policy, [running, starved], 4)
    assert sizes(plan) == {0: 0, 1: 4}
    assert plan.notes == ((1, 200.0),)
    assert ask(policy, [running, starved], 4, now=950.0).ask_again_s == 1000.0
    promoted = make_record("starved", requested=4, started_s=0.0, changed_s=900.0, service=230.0, note=200.0)
    assert sizes(ask(policy, [running, promoted], 4, now=901.0)) == {0: 0, 1: 4}


@pytest.mark.parametrize("limits", [(), (0.0, 5.0), (5.0, 5.0), (5.0, 3.0)])
def test_queue_limits_must_rise(limits: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="rising order"):
        Tiresias(limits=limits)


def test_gittins_index_from_its_definition() -> None:
    samples, quantum = (1.0, 2.0, 10.0), 3.0
    # At 0: P(S <= 3) = 2/3, E[min(S, 3)] = (1 + 2 + 3) / 3. At 2: P = 0 of (10). At 8: P = 1, E = 2.
    index = compute_gittins_index(np.array([0.0, 2.0, 8.0, 10.0, 50.0]), samples, quantum)
    np.testing.assert_allclose(index, [2 / 6, 0.0, 1 / 2, 0.0, 0.0])
    # At 4, of (5, 6, 50): two end within 3, and 1 + 2 + 3 is what the three will have taken.
    assert compute_gittins_index(np.array([4.0]), (5.0, 6.0, 50.0), 3.0).tolist() == [2 / 6]


def test_gittins_serves_the_job_most_likely_to_end_inside_a_queue() -> None:
    policy = Gittins(limits=(1e6,), samples=(50.0, 60.0, 5000.0), quantum=100.0)
    records = [
        make_record("past-the-short-ones", 4, requested=4, service=70.0),
        make_record("fresh", requested=4, service=0.0),
    ]
    assert sizes(ask(policy, records, 4)) == {0: 0, 1: 4}


def test_gittins_refuses_senseless_samples() -> None:
    for wrong in ({"samples": ()}, {"samples": (0.0,)}, {"quantum": 0.0}):
        with pytest.raises(ConfigError, match="all above 0"):
            Gittins(**wrong)
