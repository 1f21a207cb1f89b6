"""What etcd's refusals mean to somebody who trains models: the errors to raise, and which calls may go on.
Pure.
 Codes are gRPC's (grpc.io, "Status codes"), texts are etcd's (its package rpctypes). A code alone does not
tell a full disk from too much work, hence the texts.
"""

import re

from elastane.model.errors import (
    LeaseLostError,
    StoreAccessError,
    StoreAddressError,
    StoreBusyError,
    StoreCorruptError,
    StoreError,
    StoreFullError,
    StoreRequestError,
    StoreUnreachableError,
)
from elastane.store.etcd_address import PASSWORD_VARIABLE, USER_VARIABLE

CANCELLED, DEADLINE_EXCEEDED, NOT_FOUND, ABORTED, UNIMPLEMENTED, UNAVAILABLE = 1, 4, 5, 10, 12, 14

_PASSING_CODES = frozenset({CANCELLED, DEADLINE_EXCEEDED, ABORTED, UNAVAILABLE})
"""The member is starting, stopping, without a leader or slow: another one, or a later call, may do better."""

_LOGIN = f"set {USER_VARIABLE} and {PASSWORD_VARIABLE} in the environment"
_MEANINGS: tuple[tuple[str, type[StoreError], str], ...] = (
    ("lease not found", LeaseLostError, "the lease has expired or was revoked; stop acting on it"),
    ("user name is empty", StoreAccessError, f"it wants a user and a password; {_LOGIN}"),
    ("authentication failed", StoreAccessError, f"user or password is wrong; {_LOGIN}"),
    ("invalid auth token", StoreAccessError, f"it does not accept our login; {_LOGIN}"),
    (
        "permission denied",
        StoreAccessError,
        "the user may not read and write here; "
        "etcdctl role grant-permission ROLE --prefix=true readwrite NAMESPACE/",
    ),
    (
        "bad certificate",
        StoreAccessError,
        "its server certificate must also be valid for clients (clientAuth)",
    ),
    (
        "database space exceeded",
        StoreFullError,
        "its quota is full; compact and defragment it or raise --quota-backend-bytes, "
        "then etcdctl alarm disarm",
    ),
    ("request is too large", StoreRequestError, "raise --max-request-bytes to its default, or send less"),
    ("too many operations", StoreRequestError, "raise --max-txn-ops to its default (128)"),
    ("too large lease TTL", StoreRequestError, "ask for a shorter lease"),
    ("too many requests", StoreBusyError, "it is overloaded; look at its disk and its other users"),
    ("corrupt", StoreCorruptError, "its members disagree; see etcd's documentation on disaster recovery"),
)
_STALE_LOGIN = re.compile("invalid auth token|auth store is old|user name is empty")


class Refusal(Exception):
    """Carry what etcd, or its gateway, answered instead of a result."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    @property
    def is_stale_login(self) -> bool:
        """Return whether the request was turned away at the door, and a new login may help."""
        return _STALE_LOGIN.search(self.message) is not None

    @property
    def is_passing(self) -> bool:
        """Return whether this member could not answer now; whether the request took effect is unknown."""
        return self.code in _PASSING_CODES and "bad certificate" not in self.message

    @property
    def is_auth_off(self) -> bool:
        """Return whether a login was refused because the cluster knows no users."""
        return "authentication is not enabled" in self.message


def to_store_error(refusal: Refusal, url: str) -> StoreError:
    """Return the error to raise for what etcd answered; `url` holds no secret."""
    if refusal.code == UNIMPLEMENTED:
        return StoreAddressError(
            f"{url} answers, but is no etcd 3.4 or newer with its JSON gateway ({refusal.message}); check "
            "the port: it must be that of clients, or the one of --listen-client-http-urls where that is set"
        )
    for text, kind, meaning in _MEANINGS:
        if text in refusal.message:
            return kind(f"the store {url} refuses: {meaning} (etcd: {refusal.message})")
    if refusal.is_passing:
        return StoreUnreachableError(f"the store {url} cannot answer now (etcd: {refusal.message})")
    return StoreError(
        f"the store {url} failed in a way that is not expected; please report it "
        f"(etcd: {refusal.message}, code {refusal.code})"
    )
