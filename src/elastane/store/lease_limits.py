"""How long a lease may be in each kind of store, for settings to be checked before anything starts. Pure.
 A lease is renewed after a third of its time. On one machine only a busy processor can delay that. Across a
network a call may take the whole request time-out, and the next one too, and both must fit into the other two
thirds.
"""

from dataclasses import dataclass

from elastane.model.errors import ConfigError
from elastane.store.etcd_address import PASSWORD_VARIABLE, is_etcd, parse_address

MIN_LOCAL_S = 0.5
"""A shorter lease would be lost to nothing but a busy machine."""
MIN_ETCD_S = 2.0
"""etcd's shortest lease at its default election time-out of 1 s: three halves of it, in whole seconds."""
TIMEOUTS_PER_LEASE = 3
MAX_LEASE_S = 9_000_000_000
"""etcd's MaxLeaseTTL; other stores have no bound of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseLimits:
    """Hold the shortest and the longest lease, and why it may not be shorter."""

    min_s: float
    max_s: float = MAX_LEASE_S
    reason: str


def find_lease_limits(url: str) -> LeaseLimits:
    """Return the limits of the store that a URL names. Raises StoreAddressError for an etcd URL that is
    wrong.

    A cluster with longer election time-outs rounds short leases up to its own minimum.
    """
    if not is_etcd(url):
        return LeaseLimits(min_s=MIN_LOCAL_S, reason="a busy machine would lose it")
    # No password is needed to know the time-out, so none has to be there.
    timeout_s = parse_address(url, {PASSWORD_VARIABLE: ""}).timeout_s
    if TIMEOUTS_PER_LEASE * timeout_s > MIN_ETCD_S:
        reason = (
            f"it must outlast {TIMEOUTS_PER_LEASE} request time-outs of {timeout_s:g} s (timeout= in the URL)"
        )
        return LeaseLimits(min_s=TIMEOUTS_PER_LEASE * timeout_s, reason=reason)
    return LeaseLimits(min_s=MIN_ETCD_S, reason="etcd has none that is shorter")


def check_lease_ttl(url: str, ttl_s: float) -> None:
    """Raise ConfigError unless the store that a URL names can keep a lease of `ttl_s` seconds."""
    limits = find_lease_limits(url)
    if not limits.min_s <= ttl_s <= limits.max_s:
        raise ConfigError(
            f"a lease of {ttl_s:g} s cannot be kept in this store; choose from {limits.min_s:g} s to "
            f"{limits.max_s} s (shorter: {limits.reason})"
        )
