"""Which leases a store can keep, by its URL alone."""

import pytest

from elastane.model.errors import ConfigError, StoreAddressError
from elastane.store.etcd_address import DEFAULT_TIMEOUT_S
from elastane.store.lease_limits import MAX_LEASE_S, check_lease_ttl


@pytest.mark.parametrize(
    ("url", "min_s"),
    [
        ("sqlite:///a/store.db", 0.5),
        ("memory://a", 0.5),
        ("etcd://h", 3 * DEFAULT_TIMEOUT_S),
        ("etcds://h?timeout=2", 6.0),
        ("etcd://h?timeout=0.1", 2.0),
    ],
)
def test_leases_within_the_limits_are_taken_and_others_refused(url: str, min_s: float) -> None:
    check_lease_ttl(url, min_s)
    check_lease_ttl(url, MAX_LEASE_S)
    for ttl_s in (min_s - 0.01, MAX_LEASE_S + 1000, 0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match=f"choose from {min_s:g} s to 9000000000 s"):
            check_lease_ttl(url, ttl_s)


@pytest.mark.parametrize(
    ("url", "ttl_s", "message"),
    [
        ("etcd://h", 1, r"3 request time-outs of 1 s \(timeout= in the URL\)"),
        ("etcd://h?timeout=0.1", 1, "etcd has none that is shorter"),
        ("sqlite:///a", 0.1, "a busy machine would lose it"),
    ],
)
def test_the_reason_is_told(url: str, ttl_s: float, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_lease_ttl(url, ttl_s)


def test_the_user_needs_no_password_to_have_a_lease_checked() -> None:
    check_lease_ttl("etcd://me@h", 3)


def test_a_wrong_url_is_told_first() -> None:
    with pytest.raises(StoreAddressError):
        check_lease_ttl("etcd://h:port", 3)
