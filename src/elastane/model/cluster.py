"""Nouns of the shared cluster: devices, jobs, speed profiles, allocations and plans.

Both worlds speak them: the live daemon and the simulator hand the same nouns to the same policies.
Nothing here computes a schedule or a speed; `elastane.perf` turns a profile into a curve and
`elastane.policy` turns a view of jobs into a plan. Times are seconds on the caller's clock.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from elastane.model.errors import ConfigError

Elasticity = Literal["elastic", "rigid"]

ANY_DEVICE = "any"
"""Device type of clusters and profiles in which all devices are alike."""


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """Describe one machine: its name, how many devices it has, and their type."""

    name: str
    devices: int
    device_type: str = ANY_DEVICE

    def __post_init__(self) -> None:
        if self.devices < 1:
            raise ConfigError(f"node {self.name!r} has {self.devices} devices; give at least 1")


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """Describe all machines; `pooling` says which devices are interchangeable.

    `all`: one pool, placement has no effect. `type`: one pool for each device type. `node`: one pool
    for each machine, so that a job's speed depends on the number of machines it is spread over.
    """

    nodes: tuple[Node, ...]
    pooling: Literal["all", "type", "node"] = "all"

    def __post_init__(self) -> None:
        if not self.nodes:
            raise ConfigError("a cluster needs at least one node")

    @property
    def capacity(self) -> int:
        """Return the number of devices in the whole cluster."""
        return sum(node.devices for node in self.nodes)

    @property
    def pools(self) -> tuple[Node, ...]:
        """Return the pools as (name, devices, type); the order is that of the nodes."""
        if self.pooling == "node":
            return self.nodes
        if self.pooling == "all":
            types = {node.device_type for node in self.nodes}
            kind = types.pop() if len(types) == 1 else ANY_DEVICE
            return (Node(name="all", devices=self.capacity, device_type=kind),)
        counts: dict[str, int] = {}
        for node in self.nodes:
            counts[node.device_type] = counts.get(node.device_type, 0) + node.devices
        return tuple(Node(name=kind, devices=n, device_type=kind) for kind, n in counts.items())

    @classmethod
    def of(
        cls,
        nodes: int,
        devices: int,
        *,
        device_type: str = ANY_DEVICE,
        pooling: Literal["all", "type", "node"] = "all",
    ) -> Cluster:
        """Return a cluster of `nodes` equal machines with `devices` devices each."""
        if nodes < 1:
            raise ConfigError(f"a cluster of {nodes} nodes cannot run anything; give at least 1")
        members = (Node(name=f"node{i}", devices=devices, device_type=device_type) for i in range(nodes))
        return cls(nodes=tuple(members), pooling=pooling)


class SpeedPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Hold one measurement: the whole job's speed on `devices` of one type over `nodes` machines."""

    devices: int
    samples_per_s: float
    device_type: str = ANY_DEVICE
    nodes: int = 1


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the measured speed of one kind of job against the number, type and spread of its devices.

    Any unit of progress does (samples or steps), as long as it is the same in all points. Between and
    beyond the points `elastane.perf.curve` interpolates. `source` says where the figures come from.
    """

    name: str
    points: tuple[SpeedPoint, ...]
    source: str = ""

    def __post_init__(self) -> None:
        if not self.points:
            raise ConfigError(f"profile {self.name!r} has no measured point; give at least one")
        for point in self.points:
            if point.devices < 1 or not point.samples_per_s > 0 or math.isinf(point.samples_per_s):
                raise ConfigError(
                    f"profile {self.name!r}: {point.samples_per_s} samples/s on {point.devices} devices is "
                    "no speed; devices must be >= 1 and the speed positive and finite"
                )

    @property
    def max_devices(self) -> int:
        """Return the largest measured number of devices."""
        return max(point.devices for point in self.points)


LINEAR = Profile(
    name="linear",
    points=(SpeedPoint(devices=1, samples_per_s=1.0), SpeedPoint(devices=4096, samples_per_s=4096.0)),
    source="ideal scaling; for traces that say nothing about speed",
)
"""Profile of a job that runs k times as fast on k devices."""


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Say what a user asked for.

    `work_s` is the whole work, in seconds of running on `requested` devices, packed, of the reference type
    (the first of the profile): a trace's duration is then exact whatever the profile is. An elastic job
    may run on `min_devices`..`max_devices`, a rigid one on `requested` only. A `priority` above 0 is more
    urgent. `deadline_s` is absolute. `virtual_workers` > 0 is the fixed number of logical workers that
    must be split over unlike devices in whole pieces.
    """

    id: str
    submit_s: float
    requested: int
    work_s: float
    profile: str = "linear"
    min_devices: int = 1
    max_devices: int = 0
    elasticity: Elasticity = "elastic"
    tenant: str = ""
    priority: int = 0
    deadline_s: float | None = None
    virtual_workers: int = 0

    def __post_init__(self) -> None:
        if self.requested < 1 or not 1 <= self.min_devices <= self.requested:
            raise ConfigError(
                f"job {self.id!r} requests {self.requested} devices with a minimum of {self.min_devices}; "
                "needed: 1 <= min_devices <= requested"
            )
        if self.max_devices and self.max_devices < self.requested:
            raise ConfigError(
                f"job {self.id!r}: max_devices {self.max_devices} is below the {self.requested} requested"
            )
        if not (self.work_s > 0 and math.isfinite(self.work_s) and math.isfinite(self.submit_s)):
            raise ConfigError(
                f"job {self.id!r} has {self.work_s} s of work submitted at {self.submit_s} s; both must be "
                "finite and the work positive"
            )

    @property
    def smallest(self) -> int:
        """Return the fewest devices the job may hold while it runs."""
        return self.requested if self.elasticity == "rigid" else self.min_devices

    @property
    def largest(self) -> int:
        """Return the most devices the job may hold (`max_devices` 0: as many as requested)."""
        return self.requested if self.elasticity == "rigid" else self.max_devices or self.requested


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the jobs of one trace in order of submission, with the profiles that they name."""

    name: str
    jobs: tuple[JobSpec, ...]
    profiles: dict[str, Profile] = msgspec.field(default_factory=lambda: {LINEAR.name: LINEAR})

    def __post_init__(self) -> None:
        seen: set[str] = set()
        previous = -math.inf
        for job in self.jobs:
            if job.id in seen:
                raise ConfigError(f"workload {self.name!r}: job id {job.id!r} occurs twice")
            if job.profile not in self.profiles:
                raise ConfigError(
                    f"workload {self.name!r}: job {job.id!r} names unknown profile {job.profile!r}"
                )
            if job.submit_s < previous:
                raise ConfigError(
                    f"workload {self.name!r}: job {job.id!r} is out of order; sort by submit time"
                )
            seen.add(job.id)
            previous = job.submit_s


class Allocation(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the devices granted to a job: how many, and how many from each pool by pool number.

    An empty `pools` leaves the choice of pools to the caller, who packs the job on as few as possible.
    """

    devices: int
    pools: tuple[tuple[int, int], ...] = ()


NOTHING = Allocation(devices=0)
"""Allocation of a job that waits."""


class Change(msgspec.Struct, frozen=True, gc=False):
    """Give one job another allocation, and say why. `job` is the number the view knows the job by."""

    job: int
    allocation: Allocation
    reason: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what a policy proposes: the changes, and when it wants to be asked again at the latest.

    Jobs that are not mentioned keep what they hold. `ask_again_s` is an absolute time; infinity: at the next
    arrival or completion. `notes` are numbers (by job) that the caller keeps and shows at the next call.
    """

    changes: tuple[Change, ...] = ()
    ask_again_s: float = math.inf
    notes: tuple[tuple[int, float], ...] = ()


KEEP = Plan()
"""Plan that changes nothing."""
