"""What every caller checks before it carries out a plan, how policies are named, and what a view derives."""

import dataclasses
import math

import numpy as np
import pytest
from policy_records import PROFILES, ask, make_record, make_view, sizes

from elastane.model.cluster import Allocation, Change, Cluster, Node, Plan
from elastane.model.errors import ConfigError, PlanError
from elastane.policy.afs import AfsL, AfsP
from elastane.policy.base import check_plan
from elastane.policy.registry import POLICIES, make_policy
from elastane.policy.resize import ask_later, resize_to
from elastane.policy.snapshot import NEVER, build_view
from elastane.policy.tiresias import Tiresias
from elastane.policy.view import View


def make_pooled_view() -> View:
    """Return a view of two machines of four: job 0 holds two of the first, job 1 waits."""
    cluster = Cluster.of(2, 4, pooling="node")
    records = [make_record("a", (2, 0), requested=2), make_record("b", requested=2)]
    return build_view(cluster, records, PROFILES, 1000.0)


def check(view: View, *changes: Change) -> None:
    check_plan(Plan(changes=changes), view.jobs, {0: 0, 1: 1}, view.pool_free)


def test_a_plan_that_fits_is_accepted() -> None:
    view = make_pooled_view()
    check(
        view,
        Change(0, Allocation(devices=4, pools=((0, 1), (1, 3))), "moves"),
        Change(1, Allocation(devices=4, pools=((0, 3), (1, 1))), "starts"),
    )
    check(view, Change(0, Allocation(devices=0), "leaves"), Change(1, Allocation(devices=8), "starts"))


@pytest.mark.parametrize(
    ("allocation", "message"),
    [
        (Allocation(devices=5, pools=((1, 5),)), "hands out 1 devices more than pool 1 has"),
        (Allocation(devices=3, pools=((1, 2),)), "do not add up to 3 devices"),
        (Allocation(devices=2, pools=((0, 3), (1, -1))), "do not add up to 2 devices"),
        (Allocation(devices=9), "may run on 1 to 8"),
        (Allocation(devices=7), "hands out 1 devices more than the cluster has"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused(allocation: Allocation, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        check(make_pooled_view(), Change(1, allocation, "test"))


def test_no_device_is_handed_out_twice_over_several_changes() -> None:
    with pytest.raises(PlanError, match="2 devices more than pool 1 has"):
        check(
            make_pooled_view(),
            Change(0, Allocation(devices=3, pools=((1, 3),)), "moves"),
            Change(1, Allocation(devices=3, pools=((1, 3),)), "starts"),
        )


def test_every_policy_is_made_by_its_name_and_describes_itself() -> None:
    for name, kind in POLICIES.items():
        policy = make_policy(name)
        assert (policy.name, type(policy)) == (name, kind)
        assert dataclasses.is_dataclass(policy)
        assert kind.__doc__
    assert len(POLICIES) == 15


def test_settings_replace_defaults_and_unknown_ones_are_named() -> None:
    assert make_policy("tiresias", limits=(5.0, 9.0)) == Tiresias(limits=(5.0, 9.0))
    with pytest.raises(ConfigError, match=r"no policy is called 'lottery'; known: fifo, fifo-skip, "):
        make_policy("lottery")
    with pytest.raises(ConfigError, match=r"'tiresias' does not take \['quanta'\]; its settings: limits"):
        make_policy("tiresias", quanta=3)
    with pytest.raises(ConfigError, match="its settings: none"):
        make_policy("fifo", limits=())


@pytest.mark.parametrize("kind", [AfsL, AfsP])
def test_policies_with_rounds_keep_everything_between_them(kind: type[AfsL]) -> None:
    plan = ask(kind(interval_s=300.0), [make_record("a")], 8, now=1000.0)
    assert plan == Plan(ask_again_s=1200.0)
    assert sizes(ask(kind(interval_s=500.0), [make_record("a", max_devices=2)], 8)) == {0: 2}


def test_a_resize_names_its_kind_of_change() -> None:
    records = [make_record(name, held) for name, held in (("a", 2), ("b", 2), ("c", 2), ("d", 0), ("e", 1))]
    view = make_view(records, 16)
    changes = resize_to(view, view.live, np.array([0, 1, 3, 4, 1]), "why")
    assert [(change.job, change.allocation.devices, change.reason) for change in changes] == [
        (0, 0, "preempted: why"),
        (1, 1, "shrunk: why"),
        (2, 3, "grown: why"),
        (3, 4, "started: why"),
    ]


def test_the_next_round_is_strictly_later() -> None:
    assert ask_later(600.0, 600.0).ask_again_s == 1200.0
    assert ask_later(599.0, 600.0).ask_again_s == 600.0
    assert ask_later(600.0, 0.0).ask_again_s == math.inf


def test_a_view_derives_service_and_run_time_up_to_now() -> None:
    view = make_view([make_record("a", 3, service=30.0, ran_s=10.0), make_record("b", service=5.0)], 8)
    view.refresh(1020.0, 5)
    assert view.attained(view.live).tolist() == [90.0, 5.0]
    assert view.ran_s(view.live).tolist() == [30.0, 0.0]
    assert (view.running.tolist(), view.waiting.tolist(), view.free, view.capacity) == ([0], [1], 5, 8)


def test_a_view_knows_types_orders_and_limits() -> None:
    nodes = (Node(name="f", devices=2, device_type="fast"), Node(name="s", devices=2, device_type="slow"))
    records = [
        make_record("late", (1, 0), started_s=50.0, profile="concave"),
        make_record("early", (0, 2), started_s=10.0, min_devices=1, requested=2, max_devices=4, priority=3),
        make_record("never", deadline_s=5000.0, submit_s=20.0),
    ]
    view = build_view(Cluster(nodes=nodes, pooling="type"), records, PROFILES, 100.0)
    jobs = view.jobs
    assert view.pool_types == ("fast", "slow")
    assert view.pool_free.tolist() == [1, 0]
    assert jobs.start_order.tolist() == [1, 0, NEVER]
    assert (jobs.smallest.tolist(), jobs.largest.tolist()) == ([1, 1, 1], [8, 4, 8])
    assert jobs.priority.tolist() == [0, 3, 0]
    assert jobs.deadline_s.tolist() == [math.inf, math.inf, 5000.0]
    assert jobs.changed_s.tolist() == [0.0, 0.0, 20.0]
    assert view.speedup(view.live, np.array([3, 2, 99])).tolist() == pytest.approx([2.4, 2.0, 8.0])


def test_an_empty_cluster_is_a_view_too() -> None:
    view = build_view(Cluster.of(1, 8), [], PROFILES, 0.0)
    assert (len(view.live), view.free) == (0, 8)
