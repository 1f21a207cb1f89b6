"""Read a cluster from the text a user types: `64x8`, `8x8:V100,4x8:P100`, `256`."""

from __future__ import annotations

import re
from typing import Literal

from elastane.model.cluster import ANY_DEVICE, Cluster, Node
from elastane.model.errors import ConfigError

_PART = re.compile(r"^(?:(\d+)x)?(\d+)(?::([A-Za-z0-9_.-]+))?$")
_MOST_DEVICES = 1_000_000


def parse_cluster(text: str, *, by_node: bool = False) -> Cluster:
    """Return the cluster of `text`: NODESxDEVICES, with `:TYPE` and further parts after commas.

    `256` alone is one machine of that many devices. Unlike types make one pool each; `by_node` makes every
    machine a pool, so that placement counts. Raises ConfigError for anything else.
    """
    nodes: list[Node] = []
    for part in text.split(","):
        match = _PART.match(part.strip())
        if match is None:
            raise ConfigError(
                f"cluster {text!r} is not understood at {part.strip()!r}; write NODESxDEVICES "
                "such as 64x8, with device types 8x8:V100,4x8:P100."
            )
        count, devices, kind = int(match.group(1) or 1), int(match.group(2)), match.group(3) or ANY_DEVICE
        if count < 1 or devices < 1 or count * devices > _MOST_DEVICES:
            raise ConfigError(
                f"cluster {text!r} has {count * devices:,} devices; give 1 to {_MOST_DEVICES:,}."
            )
        start = len(nodes)
        nodes += [Node(name=f"node{start + i}", devices=devices, device_type=kind) for i in range(count)]
    unlike = len({node.device_type for node in nodes}) > 1
    pooling: Literal["all", "type", "node"] = "node" if by_node else "type" if unlike else "all"
    return Cluster(nodes=tuple(nodes), pooling=pooling)


def describe_cluster(cluster: Cluster) -> str:
    """Return the cluster in words: "8 nodes x 8 devices" or a list of unlike groups."""
    groups: dict[tuple[int, str], int] = {}
    for node in cluster.nodes:
        key = (node.devices, node.device_type)
        groups[key] = groups.get(key, 0) + 1
    parts = [
        f"{count} node{'s' if count > 1 else ''} x {devices} {'devices' if kind == ANY_DEVICE else kind}"
        for (devices, kind), count in groups.items()
    ]
    return " + ".join(parts)
