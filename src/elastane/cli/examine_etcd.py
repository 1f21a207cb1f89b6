"""Examine an etcd that is to be a store: whether it answers, what it is, how fast, how short its leases.

Returns findings and raises nothing for an etcd that is merely unfit: that is the answer.
"""

import re

from elastane.cli.examine import SLOW_STORE_S, Finding, fail, measure_store, ok, warn
from elastane.model.errors import ConfigError, StoreError
from elastane.store.etcd_address import hide_credentials
from elastane.store.etcd_messages import StatusReply
from elastane.store.lease_limits import check_lease_ttl, find_lease_limits
from elastane.store.open import open_store

USUAL_LEASE_S = 3.0
"""The default of `elastane run --lease`."""
SOUND_PATCHES = {(3, 4): 21, (3, 5): 13}
"""Earlier ones may lose acknowledged writes when a member is killed, or events of watches: etcd's
CHANGELOG-3.4 under 3.4.21, CHANGELOG-3.5 under 3.5.3, 3.5.5 and 3.5.13."""


def examine_etcd(url: str) -> tuple[Finding, ...]:
    """Examine the etcd that a URL names; what was written is deleted again."""
    shown = hide_credentials(url)
    try:
        with open_store(url) as store:
            # Only now: `open_store` has told by then if the extra that this needs is missing.
            from elastane.store.etcd import EtcdStore  # noqa: PLC0415

            assert isinstance(store, EtcdStore)
            status, shortest_s = store.read_status(), store.measure_shortest_lease()
        latency_s = measure_store(url)
    except StoreError as error:
        return (
            fail("store", str(error), "see the message; docs/etcd.md tells how to run etcd for elastane"),
        )
    return (
        judge_status(shown, status),
        judge_latency(latency_s),
        judge_leases(url, shortest_s),
    )


def judge_status(shown: str, status: StatusReply) -> Finding:
    """Judge the version of an etcd and its alarms."""
    found = f"etcd {status.version} at {shown}, {status.db_bytes / 1e6:.1f} MB"
    if status.errors:
        return fail(
            "store", f"{found}: {', '.join(status.errors)}", "etcdctl alarm list; see etcd's maintenance"
        )
    series, patch = _parse_version(status.version)
    if patch < SOUND_PATCHES.get(series, 0):
        wanted = f"{series[0]}.{series[1]}.{SOUND_PATCHES[series]}"
        mend = f"update etcd to {wanted} or newer: this one can lose writes or events when it is killed"
        return warn("store", found, mend)
    return ok("store", found)


def judge_latency(latency_s: float) -> Finding:
    """Judge how long a write takes."""
    found = f"a write takes {latency_s * 1e3:.2g} ms"
    if latency_s > SLOW_STORE_S:
        return warn("store writes", found, "give etcd a faster disk, or a shorter way to it")
    return ok("store writes", found)


def judge_leases(url: str, shortest_s: int) -> Finding:
    """Judge the shortest lease: what the cluster gives, and what the request time-out leaves room for."""
    min_s = max(find_lease_limits(url).min_s, float(shortest_s))
    found = f"from {min_s:g} s (the cluster's shortest: {shortest_s} s)"
    try:
        check_lease_ttl(url, USUAL_LEASE_S)
    except ConfigError:
        return warn(
            "store leases", found, f"run jobs with --lease {min_s:g}, or give a smaller timeout= in the URL"
        )
    if shortest_s > USUAL_LEASE_S:
        mend = f"etcd's --election-timeout is long: deaths are noticed after {shortest_s} s at the soonest"
        return warn("store leases", found, mend)
    return ok("store leases", found)


def _parse_version(text: str) -> tuple[tuple[int, int], int]:
    """Return major and minor version, and the patch; zeros for what is no version."""
    match = re.match(r"(\d+)\.(\d+)\.(\d+)", text)
    major, minor, patch = map(int, match.groups()) if match else (0, 0, 0)
    return (major, minor), patch
