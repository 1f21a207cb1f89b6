"""The JSON of etcd's gateway as records. Pure; what they mean to the store is etcd_keys.py's.

Names and defaults are those of etcd's API (etcd.io/docs, "etcd API Reference"). The gateway writes bytes as
base64, 64-bit numbers as strings, and leaves out what is zero; msgspec reads all three.
"""

from typing import TypeVar

import msgspec

T = TypeVar("T")


class Empty(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Ask or answer nothing more than the call itself does."""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """Tell the revision of the member that answered."""

    revision: int = 0


class KeyValue(msgspec.Struct, frozen=True, kw_only=True):
    """Hold one key as it stands; deleted ones have but a key and a mod revision."""

    key: bytes = b""
    value: bytes = b""
    create_revision: int = 0
    mod_revision: int = 0
    lease: int = 0


class RangeRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Ask for one key, or for all from `key` up to `range_end`."""

    key: bytes
    range_end: bytes = b""
    limit: int = 0
    keys_only: bool = False


class RangeReply(msgspec.Struct, frozen=True, kw_only=True):
    """Answer a RangeRequest."""

    header: Header = Header()
    kvs: tuple[KeyValue, ...] = ()


class CompareMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State one condition; exactly one of the four values belongs to `target`."""

    key: bytes
    target: str
    result: str = "EQUAL"
    create_revision: int | None = None
    mod_revision: int | None = None
    value: bytes | None = None
    lease: int | None = None


class PutMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Ask for a write."""

    key: bytes
    value: bytes = b""
    lease: int = 0


class DeleteMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Ask for the deletion of one key, or of all from `key` up to `range_end`."""

    key: bytes
    range_end: bytes = b""


class Operation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Be one write of a transaction."""

    request_put: PutMessage | None = None
    request_delete_range: DeleteMessage | None = None


class TxnRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Ask for writes on conditions."""

    compare: tuple[CompareMessage, ...] = ()
    success: tuple[Operation, ...] = ()


class TxnReply(msgspec.Struct, frozen=True, kw_only=True):
    """Answer a TxnRequest."""

    header: Header = Header()
    succeeded: bool = False


class GrantRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Ask for a lease of whole seconds."""

    ttl_s: int = msgspec.field(name="TTL")


class LeaseRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Name a lease to renew or to revoke."""

    lease: int = msgspec.field(name="ID")


class LeaseReply(msgspec.Struct, frozen=True, kw_only=True):
    """Tell a lease and its seconds; none are left of one that is gone."""

    lease: int = msgspec.field(name="ID", default=0)
    ttl_s: int = msgspec.field(name="TTL", default=0)


class RenewReply(msgspec.Struct, frozen=True, kw_only=True):
    """Answer a renewal, which is a stream of one message."""

    result: LeaseReply = LeaseReply()


class AuthenticateRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Ask for a token."""

    name: str
    password: str


class AuthenticateReply(msgspec.Struct, frozen=True, kw_only=True):
    """Give a token."""

    token: str = ""


class StatusReply(msgspec.Struct, frozen=True, kw_only=True):
    """Tell about the member that answered."""

    version: str = "unknown"
    leader: int = 0
    db_bytes: int = msgspec.field(name="dbSize", default=0)
    errors: tuple[str, ...] = ()


class WatchCreate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Describe a watch."""

    key: bytes
    range_end: bytes
    start_revision: int
    progress_notify: bool = False


class WatchRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Ask for a watch."""

    create_request: WatchCreate


class EventMessage(msgspec.Struct, frozen=True, kw_only=True):
    """Tell one change."""

    type: str = "PUT"
    kv: KeyValue


class WatchReply(msgspec.Struct, frozen=True, kw_only=True):
    """Be one message of a watch: its creation, events, mere progress, or its end."""

    header: Header = Header()
    created: bool = False
    canceled: bool = False
    compact_revision: int = 0
    cancel_reason: str = ""
    events: tuple[EventMessage, ...] = ()


class ErrorReply(msgspec.Struct, frozen=True, kw_only=True):
    """Tell a failure; streams of etcd before 3.6 call the code differently."""

    code: int = 2  # gRPC's UNKNOWN
    grpc_code: int | None = None
    message: str = ""


class StreamLine(msgspec.Struct, frozen=True, kw_only=True):
    """Be one line of a watch's answer."""

    result: WatchReply | None = None
    error: ErrorReply | None = None


def decode(data: bytes, kind: type[T]) -> T:
    """Return a reply. Raises msgspec.MsgspecError for anything else."""
    return msgspec.json.decode(data, type=kind, strict=False)
