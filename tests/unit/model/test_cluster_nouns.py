"""Nouns of the cluster refuse what makes no sense, and say what to do."""

import pytest

from elastane.model.cluster import ANY_DEVICE, LINEAR, Cluster, JobSpec, Node, Profile, SpeedPoint, Workload
from elastane.model.errors import ConfigError


def make_job(**other: object) -> JobSpec:
    return JobSpec(**{"id": "a", "submit_s": 0.0, "requested": 2, "work_s": 10.0, **other})


def test_one_pool_holds_all_devices_when_placement_has_no_effect() -> None:
    cluster = Cluster.of(3, 8)
    assert cluster.capacity == 24
    assert cluster.pools == (Node(name="all", devices=24, device_type=ANY_DEVICE),)


def test_pools_by_node_and_by_type() -> None:
    nodes = (
        Node(name="a", devices=4, device_type="v100"),
        Node(name="b", devices=2, device_type="k80"),
        Node(name="c", devices=4, device_type="v100"),
    )
    assert Cluster(nodes=nodes, pooling="node").pools == nodes
    by_type = Cluster(nodes=nodes, pooling="type").pools
    assert [(pool.name, pool.devices) for pool in by_type] == [("v100", 8), ("k80", 2)]
    assert Cluster(nodes=nodes).pools[0].device_type == ANY_DEVICE


def test_an_elastic_job_may_hold_its_limits_and_a_rigid_one_only_its_request() -> None:
    elastic = make_job(min_devices=1, max_devices=8)
    rigid = make_job(min_devices=1, max_devices=8, elasticity="rigid")
    assert (elastic.smallest, elastic.largest) == (1, 8)
    assert (rigid.smallest, rigid.largest) == (2, 2)
    assert make_job().largest == 2


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"requested": 0}, "requests 0 devices"),
        ({"min_devices": 3}, "minimum of 3"),
        ({"max_devices": 1}, "max_devices 1 is below the 2 requested"),
        ({"work_s": 0.0}, "0.0 s of work"),
        ({"work_s": float("nan")}, "nan s of work"),
        ({"submit_s": float("inf")}, "submitted at inf s"),
    ],
)
def test_a_job_that_cannot_be_is_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_job(**wrong)


def test_clusters_and_profiles_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="0 devices"):
        Node(name="n", devices=0)
    with pytest.raises(ConfigError, match="at least one node"):
        Cluster(nodes=())
    with pytest.raises(ConfigError, match="0 nodes"):
        Cluster.of(0, 8)
    with pytest.raises(ConfigError, match="no measured point"):
        Profile(name="p", points=())
    with pytest.raises(ConfigError, match="no speed"):
        Profile(name="p", points=(SpeedPoint(devices=1, samples_per_s=0.0),))


def test_a_workload_is_sorted_and_its_ids_and_profiles_are_known() -> None:
    first, second = make_job(), make_job(id="b", submit_s=5.0)
    assert Workload(name="w", jobs=(first, second)).profiles == {"linear": LINEAR}
    with pytest.raises(ConfigError, match="'b' is out of order"):
        Workload(name="w", jobs=(make_job(submit_s=9.0), second))
    with pytest.raises(ConfigError, match="'a' occurs twice"):
        Workload(name="w", jobs=(first, make_job(submit_s=1.0)))
    with pytest.raises(ConfigError, match="unknown profile 'x'"):
        Workload(name="w", jobs=(make_job(profile="x"),))


def test_a_profile_knows_its_largest_measured_size() -> None:
    assert LINEAR.max_devices == 4096
