"""Clusters as users type them."""

from __future__ import annotations

import pytest

from elastane.model.cluster import Cluster, Node
from elastane.model.errors import ConfigError
from elastane.sim.cluster_text import describe_cluster, parse_cluster


def test_nodes_times_devices_is_one_pool_of_equal_devices() -> None:
    cluster = parse_cluster("2x8")
    assert cluster == Cluster(
        nodes=(Node(name="node0", devices=8), Node(name="node1", devices=8)), pooling="all"
    )
    assert describe_cluster(cluster) == "2 nodes x 8 devices"


def test_a_bare_number_is_one_machine() -> None:
    assert parse_cluster("256").capacity == 256


def test_unlike_types_make_a_pool_each() -> None:
    cluster = parse_cluster("2x8:V100, 1x4:P100")
    assert [(pool.name, pool.devices) for pool in cluster.pools] == [("V100", 16), ("P100", 4)]
    assert describe_cluster(cluster) == "2 nodes x 8 V100 + 1 node x 4 P100"


def test_by_node_makes_every_machine_a_pool() -> None:
    assert len(parse_cluster("3x4", by_node=True).pools) == 3


@pytest.mark.parametrize(
    "text", ["", "x8", "8x", "8x8x8", "eight", "8x8:", "8x8;4x4", "-8x8", "8.5x8", "0x8", "8x0"]
)
def test_other_texts_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match=r"64x8|1 to 1,000,000"):
        parse_cluster(text)


def test_absurd_sizes_are_refused() -> None:
    with pytest.raises(ConfigError, match="devices; give 1 to 1,000,000"):
        parse_cluster("9999999x9999999")
