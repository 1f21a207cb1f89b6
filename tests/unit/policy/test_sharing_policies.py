"""Policies that choose every job's size: even, easyscale, afs, optimus, elastane."""

import math

import numpy as np
import pytest
from policy_records import PROFILES, ask, make_record, make_view, sizes

from elastane.model.cluster import Allocation, Cluster, Node, Profile, SpeedPoint
from elastane.model.errors import ConfigError
from elastane.policy.afs import AfsL, AfsP
from elastane.policy.easyscale import EasyScale
from elastane.policy.elastane import Elastane
from elastane.policy.even import Even, compute_even_shares
from elastane.policy.optimus import Optimus
from elastane.policy.price import Weighing, compute_ideal_sizes
from elastane.policy.snapshot import build_view

RESTED = {"changed_s": 0.0, "started_s": 0.0}


def test_even_shares_keep_to_limits_and_hand_on_what_is_left() -> None:
    least, most = np.array([1, 1, 1]), np.array([8, 2, 8])
    assert compute_even_shares(9, least, most).tolist() == [4, 2, 3]
    assert compute_even_shares(3, least, most).tolist() == [1, 1, 1]
    assert compute_even_shares(99, least, most).tolist() == [8, 2, 8]
    assert compute_even_shares(8, np.array([4, 1]), np.array([8, 8])).tolist() == [4, 4]


def test_even_shares_agree_with_handing_out_one_device_at_a_time() -> None:
    generator = np.random.default_rng(3)
    for _ in range(200):
        count = int(generator.integers(1, 7))
        least = generator.integers(1, 4, count)
        most = least + generator.integers(0, 6, count)
        devices = int(least.sum() + generator.integers(0, 20))
        shares = least.copy()
        for _ in range(devices - int(least.sum())):
            able = np.flatnonzero(shares < most)
            if len(able):
                shares[able[np.argmin(shares[able])]] += 1
        assert compute_even_shares(devices, least, most).tolist() == shares.tolist()


def test_even_places_a_new_job_on_the_machine_with_fewest_jobs() -> None:
    cluster = Cluster.of(2, 4, pooling="node")
    records = [
        make_record("a", (2, 0), **RESTED),
        make_record("b", (2, 0), **RESTED),
        make_record("c", (0, 4), **RESTED),
        make_record("new"),
    ]
    plan = Even().plan(build_view(cluster, records, PROFILES, 1000.0), 1000.0)
    assert {c.job: c.allocation for c in plan.changes} == {
        2: Allocation(devices=2, pools=((1, 2),)),
        3: Allocation(devices=2, pools=((1, 2),)),
    }


def test_even_does_not_grow_a_job_beyond_its_best_size() -> None:
    assert sizes(ask(Even(), [make_record("a", profile="concave")], 8)) == {0: 4}


def test_even_keeps_later_jobs_behind_one_that_does_not_fit() -> None:
    records = [
        make_record("a", 4, min_devices=4, requested=4, **RESTED),
        make_record("wide", requested=6, min_devices=6),
        make_record("thin"),
    ]
    assert sizes(ask(Even(), records, 8)) == {0: 8}


def test_optimus_cuts_the_most_remaining_time() -> None:
    records = [
        make_record("long", left_s=1000.0, profile="concave"),
        make_record("short", left_s=100.0, profile="concave"),
    ]
    assert sizes(ask(Optimus(), records, 4)) == {0: 3, 1: 1}
    assert sizes(ask(Optimus(), records, 1)) == {0: 1}


def test_optimus_waits_for_its_next_round() -> None:
    plan = ask(Optimus(interval_s=600.0), [make_record("a")], 4, now=1000.0)
    assert (plan.changes, plan.ask_again_s) == ((), 1200.0)
    assert sizes(ask(Optimus(interval_s=500.0), [make_record("a", max_devices=2)], 4)) == {0: 2}


def test_afs_with_known_lengths_gives_to_the_shorter_unless_the_longer_gains_more() -> None:
    # On two devices each holds one. The third: the short one gains 0.1 / 1, the long one 1 / 2 of its next
    # speed. The fourth: again the long one, which gains 1 / 3.
    records = [
        make_record("short", left_s=10.0, profile="flat"),
        make_record("long", left_s=1000.0, profile="linear"),
    ]
    assert sizes(ask(AfsL(), records, 4)) == {0: 1, 1: 3}
    alike = [make_record("long", left_s=1000.0), make_record("short", left_s=10.0)]
    assert sizes(ask(AfsL(), alike, 4)) == {0: 1, 1: 3}
    assert sizes(ask(AfsL(), alike, 1)) == {1: 1}


def test_afs_without_lengths_gives_to_the_largest_relative_gain() -> None:
    records = [make_record("flat", profile="flat"), make_record("linear", profile="linear")]
    assert sizes(ask(AfsP(), records, 8)) == {0: 1, 1: 7}


def test_afs_without_lengths_serves_those_with_the_least_service_when_devices_are_short() -> None:
    records = [make_record("served", 1, service=9e5, **RESTED), make_record("new")]
    assert sizes(ask(AfsP(), records, 1)) == {0: 0, 1: 1}


def test_sharing_policies_stop_at_no_gain() -> None:
    flat = [make_record("a", profile="concave", max_devices=8)]
    for policy in (Optimus(), AfsL(), AfsP(), EasyScale(), Elastane()):
        assert sizes(ask(policy, flat, 8)) == {0: 4}


def test_easyscale_guarantees_minima_by_taking_back_what_others_hold_above_theirs() -> None:
    records = [
        make_record("large", 6, min_devices=2, requested=2, **RESTED),
        make_record("small", 2, min_devices=2, requested=2, **RESTED),
        make_record("owner", min_devices=3, requested=3),
    ]
    assert sizes(ask(EasyScale(), records, 8)) == {0: 3, 2: 3}


def test_easyscale_leaves_a_minimum_waiting_that_cannot_be_had() -> None:
    records = [make_record("a", 8, min_devices=8, requested=8, **RESTED), make_record("owner")]
    assert sizes(ask(EasyScale(), records, 8)) == {}


def test_easyscale_looks_past_a_step_that_whole_pieces_do_not_use() -> None:
    # Six pieces: 2 -> 3 devices take three rounds to two; 4 and 5 devices still two; 6 one.
    job = make_record("a", 3, requested=3, virtual_workers=6, max_devices=6, **RESTED)
    assert sizes(ask(EasyScale(), [job], 6)) == {0: 6}
    assert sizes(ask(EasyScale(), [job], 5)) == {}


def test_easyscale_at_most_doubles_in_one_grant_and_rests_between_changes() -> None:
    job = make_record("a", 2, requested=2, started_s=990.0, changed_s=990.0)
    plan = ask(EasyScale(cooldown_s=60.0), [job], 8)
    assert (sizes(plan), plan.ask_again_s) == ({}, 1060.0)


def test_easyscale_mixes_device_types_only_where_it_wastes_little() -> None:
    nodes = (Node(name="f", devices=1, device_type="any"), Node(name="s", devices=4, device_type="any"))
    cluster = Cluster(nodes=nodes, pooling="node")
    job = make_record("a", (1, 0), requested=1, virtual_workers=2, max_devices=8, **RESTED)
    plan = EasyScale().plan(build_view(cluster, [job], PROFILES, 1000.0), 1000.0)
    assert plan.changes[0].allocation == Allocation(devices=2, pools=((0, 1), (1, 1)))
    alone = EasyScale(unlike=False).plan(build_view(cluster, [job], PROFILES, 1000.0), 1000.0)
    assert alone.changes == ()


@pytest.mark.parametrize(("slow", "grown"), [(0.6, {0: 2}), (0.51, {})])
def test_easyscale_rejects_a_plan_that_wastes_more_than_thirty_per_cent(
    slow: float, grown: dict[int, int]
) -> None:
    # One piece on each: the fast device waits. Speed 2 x slow of 1 + slow: a quarter or a third is wasted.
    points = (
        SpeedPoint(devices=1, samples_per_s=1.0, device_type="fast"),
        SpeedPoint(devices=1, samples_per_s=slow, device_type="slow"),
    )
    nodes = (Node(name="f", devices=1, device_type="fast"), Node(name="s", devices=1, device_type="slow"))
    job = make_record("a", (0, 1), requested=1, virtual_workers=2, profile="p", **RESTED)
    profiles = {"p": Profile(name="p", points=points)}
    view = build_view(Cluster(nodes=nodes, pooling="type"), [job], profiles, 1000.0)
    assert sizes(EasyScale().plan(view, 1000.0)) == grown


def price(records: list, devices: int, weights: list[float], fairness: float = 0.0) -> list[int]:
    view = make_view(records, devices)
    weighing = Weighing(weight_of_level=np.array(weights), fairness=fairness)
    levels = np.arange(len(records)) if len(weights) > 1 else np.zeros(len(records), dtype=np.int64)
    return compute_ideal_sizes(view, view.live, levels, weighing).tolist()


def test_the_price_gives_everybody_a_minimum_before_anybody_grows() -> None:
    records = [make_record("a", profile="flat"), make_record("b"), make_record("c")]
    assert price(records, 3, [1.0]) == [1, 1, 1]
    assert price(records, 2, [1.0]) == [1, 1, 0]


def test_the_price_follows_weights_and_slopes() -> None:
    records = [make_record("a", profile="concave"), make_record("b", profile="concave")]
    assert price(records, 6, [1.0, 1.0]) == [3, 3]
    # 0.8, 0.6, 0.4 against ten times less.
    assert price(records, 5, [10.0, 1.0]) == [4, 1]
    assert price(records, 99, [1.0, 1.0]) == [4, 4]


def test_the_price_serves_minima_whole_or_not_at_all() -> None:
    records = [make_record(name, min_devices=3, requested=3, max_devices=4) for name in "abc"]
    assert price(records, 8, [1.0]) == [3, 3, 0]
    rigid = [make_record(name, requested=3, elasticity="rigid") for name in "ab"]
    assert price(rigid, 5, [1.0]) == [3, 0]


def test_the_odd_devices_of_a_group_stay_where_they_are() -> None:
    records = [make_record("a", 3, **RESTED), make_record("b", 4, **RESTED)]
    assert price(records, 7, [1.0]) == [3, 4]


def test_elastane_serves_every_waiting_job_before_it_lets_any_grow() -> None:
    records = [make_record("large", 8, requested=8, service=1e6, **RESTED), make_record("new")]
    # Two jobs on eight devices count a sixteenth of alpha: weights 4 ** -0.1 a step apart, with square roots
    # of speeds: the new job gets three times as much.
    policy = Elastane(alpha=1.6, step=4.0, fairness=0.5)
    assert sizes(ask(policy, records, 8)) == {0: 2, 1: 6}


def test_elastane_favours_jobs_that_have_had_little() -> None:
    records = [make_record("served", service=1e7), make_record("fresh")]
    shares = sizes(ask(Elastane(alpha=0.5), records, 8))
    assert shares[1] > shares[0]
    assert sizes(ask(Elastane(alpha=0.0), records, 8)) == {0: 4, 1: 4}


def test_elastane_serves_higher_priority_as_if_it_had_had_less() -> None:
    records = [make_record("plain", service=1e5), make_record("urgent", service=1e5, priority=6)]
    shares = sizes(ask(Elastane(alpha=8.0), records, 8))
    assert shares[1] > shares[0]


def test_elastane_weighs_less_the_more_devices_there_are_for_each_job() -> None:
    records = [make_record("served", service=1e5, max_devices=64), make_record("fresh", max_devices=64)]
    crowded = sizes(ask(Elastane(alpha=1.0), records, 8))
    roomy = sizes(ask(Elastane(alpha=1.0), records, 32))
    assert crowded[1] / crowded[0] > 1.0
    assert roomy[1] / roomy[0] < crowded[1] / crowded[0]


def test_elastane_makes_no_small_changes_at_others_expense() -> None:
    records = [make_record("a", 5, **RESTED), make_record("b", 4, **RESTED)]
    assert sizes(ask(Elastane(slack=0.25, alpha=0.0), records, 9)) == {}
    uneven = [make_record("a", 7, **RESTED), make_record("b", 2, **RESTED)]
    assert sizes(ask(Elastane(slack=0.25, alpha=0.0), uneven, 9)) == {0: 5, 1: 4}


def test_elastane_lets_a_job_rest_before_it_grows_and_comes_back() -> None:
    records = [make_record("a", 2, started_s=990.0, changed_s=990.0)]
    plan = ask(Elastane(cooldown_s=60.0), records, 8)
    assert sizes(plan) == {}
    assert plan.ask_again_s == 1060.0


def test_elastane_asks_for_the_moment_at_which_a_weight_falls() -> None:
    records = [make_record("a", 8, service=100.0, **RESTED)]
    # W + c = 600 reaches 4 x 500 after 1400 / 8 s.
    assert ask(Elastane(step=4.0), records, 8).ask_again_s == pytest.approx(1175.0)
    assert ask(Elastane(), [], 8).ask_again_s == math.inf


def test_elastane_refuses_senseless_settings() -> None:
    for wrong in ({"alpha": -1.0}, {"base": 0.0}, {"step": 1.0}):
        with pytest.raises(ConfigError, match="needed are alpha >= 0"):
            Elastane(**wrong)
