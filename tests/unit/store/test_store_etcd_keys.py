"""How the store's requests are written in etcd's words, and its answers read."""

import msgspec
import pytest

from elastane.model.errors import StoreRequestError
from elastane.store.base import (
    MAX_OPERATIONS,
    Absent,
    Compare,
    CreateRevisionIs,
    DeleteEvent,
    DeleteKey,
    DeletePrefix,
    Entry,
    Exists,
    LeaseId,
    LeaseIs,
    ModRevisionIs,
    Put,
    PutEvent,
    ValueIs,
)
from elastane.store.etcd_keys import KeySpace
from elastane.store.etcd_messages import EventMessage, KeyValue, RangeReply, decode

KEYS = KeySpace("n")
K = "bi9r"  # base64 of "n/k"


def to_json(compares: list[Compare]) -> list[dict[str, object]]:
    sent = msgspec.json.decode(msgspec.json.encode(KEYS.transaction(compares, [], [])))
    compared = sent.get("compare", [])
    assert isinstance(compared, list)
    return compared


@pytest.mark.parametrize(
    ("compare", "messages"),
    [
        (ModRevisionIs(key="k", revision=5), [{"key": K, "target": "MOD", "mod_revision": 5}]),
        (ModRevisionIs(key="k", revision=0), [{"key": K, "target": "MOD", "mod_revision": 0}]),
        (CreateRevisionIs(key="k", revision=5), [{"key": K, "target": "CREATE", "create_revision": 5}]),
        (ValueIs(key="k", value=b"v"), [{"key": K, "target": "VALUE", "value": "dg=="}]),
        (LeaseIs(key="k", lease=LeaseId(7)), [{"key": K, "target": "LEASE", "lease": 7}]),
        (
            LeaseIs(key="k", lease=None),
            [
                {"key": K, "target": "LEASE", "lease": 0},
                {"key": K, "target": "CREATE", "result": "GREATER", "create_revision": 0},
            ],
        ),
        (
            Exists(key="k"),
            [{"key": K, "target": "CREATE", "result": "GREATER", "create_revision": 0}],
        ),
        (Absent(key="k"), [{"key": K, "target": "CREATE", "create_revision": 0}]),
    ],
)
def test_each_compare_has_its_words(compare: Compare, messages: list[dict[str, object]]) -> None:
    assert to_json([compare]) == messages


def test_puts_and_deletes_have_their_words() -> None:
    request = KEYS.transaction(
        [],
        [Put(key="k", value=b"v", lease=LeaseId(7)), Put(key="k", value=b"")],
        [DeleteKey(key="k"), DeletePrefix(prefix="k")],
    )
    assert msgspec.json.decode(msgspec.json.encode(request)) == {
        "success": [
            {"request_put": {"key": K, "value": "dg==", "lease": 7}},
            {"request_put": {"key": K}},
            {"request_delete_range": {"key": K}},
            {"request_delete_range": {"key": K, "range_end": "bi9s"}},
        ]
    }


def test_compares_that_take_two_each_are_counted_twice() -> None:
    compares = [LeaseIs(key="k", lease=None)] * (MAX_OPERATIONS // 2)
    assert len(to_json(list(compares))) == MAX_OPERATIONS
    with pytest.raises(StoreRequestError, match="takes 129 compares in etcd, at most 128"):
        KEYS.transaction([*compares, Exists(key="k")], [], [])


@pytest.mark.parametrize(
    ("prefix", "bounds"),
    [
        ("", (b"n/", b"n0")),
        ("job/", (b"n/job/", b"n/job0")),
        ("\U0010ffff", (b"n/\xf4\x8f\xbf\xbf", b"n/\xf4\x8f\xbf\xc0")),
    ],
)
def test_a_prefix_reaches_to_the_first_key_beyond(prefix: str, bounds: tuple[bytes, bytes]) -> None:
    assert KEYS.bounds(prefix) == bounds


def test_what_etcd_leaves_out_is_zero_and_its_numbers_may_be_text() -> None:
    reply = decode(
        b'{"header":{"revision":"9"},"kvs":[{"key":"bi9r","create_revision":"4","mod_revision":"5","lease":'
        b'"7587838275","version":"2"}],"count":"1"}',
        RangeReply,
    )
    assert (reply.header.revision, [KEYS.entry(kv) for kv in reply.kvs]) == (
        9,
        [Entry(key="k", value=b"", create_revision=4, mod_revision=5, lease=LeaseId(7587838275))],
    )
    assert decode(b'{"header":{"revision":"9"}}', RangeReply).kvs == ()


def test_events_are_puts_unless_they_say_otherwise() -> None:
    kv = KeyValue(key=b"n/k", value=b"v", create_revision=4, mod_revision=5)
    assert KEYS.event(EventMessage(kv=kv)) == PutEvent(
        entry=Entry(key="k", value=b"v", create_revision=4, mod_revision=5)
    )
    gone = KeyValue(key=b"n/k", mod_revision=6)
    assert KEYS.event(EventMessage(type="DELETE", kv=gone)) == DeleteEvent(key="k", revision=6)
