"""Builders for the views that policy tests ask about: short to write, real columns."""

from elastane.model.cluster import LINEAR, Cluster, JobSpec, Plan, Profile, SpeedPoint
from elastane.policy.base import Policy
from elastane.policy.snapshot import JobRecord, build_view
from elastane.policy.view import View


def make_profile(name: str, speeds: list[float]) -> Profile:
    """Return the profile whose speed on 1, 2, ... devices is `speeds`."""
    points = (SpeedPoint(devices=i, samples_per_s=speed) for i, speed in enumerate(speeds, start=1))
    return Profile(name=name, points=tuple(points))


PROFILES = {
    "linear": LINEAR,
    # Gains 1, 0.8, 0.6, 0.4, then nothing.
    "concave": make_profile("concave", [1.0, 1.8, 2.4, 2.8, 2.8, 2.8, 2.8, 2.8]),
    "flat": make_profile("flat", [1.0, 1.1, 1.1, 1.1, 1.1, 1.1, 1.1, 1.1]),
}


def make_record(name: str, held: int | tuple[int, ...] = 0, **facts: object) -> JobRecord:
    """Return a record of a job; facts of its spec and of its state are told apart by name."""
    state_names = ("started_s", "changed_s", "service", "ran_s", "left_s", "note")
    state = {key: facts.pop(key) for key in state_names if key in facts}
    spec = {"id": name, "submit_s": 0.0, "requested": 1, "work_s": 100.0, "max_devices": 8, **facts}
    pools = held if isinstance(held, tuple) else (held,)
    if sum(pools):
        state.setdefault("started_s", spec["submit_s"])
    return JobRecord(spec=JobSpec(**spec), held=pools, **state)


def make_view(
    records: list[JobRecord], devices: int, *, now: float = 1000.0, policy: Policy | None = None
) -> View:
    """Return the view of `records` on one pool of `devices`."""
    clairvoyant = policy is not None and policy.clairvoyant
    return build_view(Cluster.of(1, devices), records, PROFILES, now, clairvoyant=clairvoyant)


def ask(policy: Policy, records: list[JobRecord], devices: int, *, now: float = 1000.0) -> Plan:
    """Return the plan of `policy` for `records` on one pool of `devices`."""
    return policy.plan(make_view(records, devices, now=now, policy=policy), now)


def sizes(plan: Plan) -> dict[int, int]:
    """Return the devices that a plan gives, by job number."""
    return {change.job: change.allocation.devices for change in plan.changes}
