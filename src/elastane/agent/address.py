"""Under which address the workers of other nodes reach those of this machine.

Asked of the kernel: the source address of a route to the store, which all nodes reach. Host names are not
used: they often stand for the loopback address, or for one that others cannot resolve.
"""

import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

from elastane.model.errors import ConfigError

LOOPBACK = "127.0.0.1"
_EMBEDDED = ("sqlite", "memory")
_ELSEWHERE = ("192.0.2.1", 9)
"""An address of TEST-NET-1 (RFC 5737): asked for a route, never sent anything."""


def find_address(store_url: str, nodes: int = 1) -> str:
    """Return this machine's address: loopback for a job that cannot leave it.

    Args:
        store_url: the job's store; one in a file cannot be reached from other machines.
        nodes: on how many nodes the job is to run.

    Raises:
        ConfigError: the job is for several nodes, and there is no way from here to any other.
    """
    if urlsplit(store_url).scheme in _EMBEDDED:
        return LOOPBACK
    found = [address for host in _hosts(store_url) if (address := find_source(*host)) is not None]
    outward = [address for address in found if not is_loopback(address)]
    if outward:
        return outward[0]
    elsewhere = find_source(*_ELSEWHERE)
    if elsewhere is not None:
        return elsewhere
    if nodes > 1:
        raise ConfigError(
            "this machine has no route to others, so it is not known under which address they reach it; "
            "say it with --address"
        )
    return LOOPBACK


def find_source(host: str, port: int) -> str | None:
    """Return the address that this machine uses towards another one; None if there is no route."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0][0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((host, port))  # asks for a route; a datagram socket sends nothing for it
            return str(probe.getsockname()[0])
    except OSError:
        return None


def check_address(address: str) -> None:
    """Raise ConfigError unless `address` is one of this machine's own."""
    try:
        family, _, _, _, place = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind(place)
    except OSError as error:
        raise ConfigError(
            f"--address {address}: this machine cannot listen there ({error.strerror or error}); "
            "name one of its own addresses (`ip address`)"
        ) from error


def is_loopback(address: str) -> bool:
    """Tell whether only this machine itself can reach an address."""
    return address.startswith("127.") or address == "::1"


def _hosts(store_url: str) -> Iterator[tuple[str, int]]:
    """Yield the (host, port) pairs of "scheme://user:password@host:port,host:port/name?options"."""
    rest = store_url.partition("://")[2].partition("/")[0].partition("?")[0].rpartition("@")[2]
    for member in rest.split(","):
        place = urlsplit(f"//{member}")
        if place.hostname:
            yield place.hostname, place.port or 0
