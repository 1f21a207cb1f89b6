"""How a watch of etcd reads its stream, and how it goes on when the stream does not."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from fake_member import CLOSE, HANG, FakeMember, answer, fake_member, refuse, stream

from elastane.model.errors import (
    CompactedError,
    StoreAccessError,
    StoreError,
    StoreHandleError,
    StoreUnreachableError,
)
from elastane.store.base import DeleteEvent, Entry, Event, PutEvent
from elastane.store.etcd_address import Credentials, Endpoint, EtcdAddress
from elastane.store.etcd_client import EtcdClient
from elastane.store.etcd_keys import KeySpace
from elastane.store.etcd_watch import EtcdWatch
from elastane.store.guard import HandleGuard

LONG_S = 30.0
TOKEN = answer({"token": "abc"})


def reply(**fields: object) -> dict[str, object]:
    return {"result": fields}


def header(revision: int) -> dict[str, object]:
    return {"revision": str(revision)}


def created(revision: int = 0) -> dict[str, object]:
    return reply(header=header(revision), created=True)


def put_message(revision: int) -> dict[str, object]:
    """The message of a put of n/a = v."""
    kv = {"key": "bi9h", "value": "dg==", "create_revision": str(revision), "mod_revision": str(revision)}
    return reply(header=header(revision), events=[{"kv": kv}])


def put_event(revision: int) -> Event:
    return PutEvent(entry=Entry(key="a", value=b"v", create_revision=revision, mod_revision=revision))


@contextmanager
def watching(
    *script: bytes | str,
    after_revision: int = 0,
    newest_revision: int = 0,
    timeout_s: float = LONG_S,
    user: str = "",
) -> Iterator[tuple[EtcdWatch, FakeMember]]:
    with fake_member(*script) as member:
        address = EtcdAddress(
            endpoints=(Endpoint(host="127.0.0.1", port=member.port),),
            credentials=Credentials(user=user, password="secret") if user else None,
            timeout_s=timeout_s,
        )
        client = EtcdClient(address)
        client.newest_revision = newest_revision
        with EtcdWatch(client, KeySpace("n"), HandleGuard(address.url), "", after_revision) as watch:
            yield watch, member
        client.close()


def starts(member: FakeMember) -> list[object]:
    """The revisions that watches asked to begin at."""
    requests = [request.body["create_request"] for request in member.seen if request.path == "/v3/watch"]
    return [request["start_revision"] for request in requests if isinstance(request, dict)]


def test_the_request_names_the_whole_prefix_and_the_first_revision() -> None:
    with watching(stream(created(7), put_message(8)), after_revision=7) as (watch, member):
        assert watch.wait(LONG_S) == [put_event(8)]
        assert member.seen[0].body == {
            "create_request": {
                "key": "bi8=",
                "range_end": "bjA=",
                "start_revision": 8,
                "progress_notify": True,
            }
        }


def test_events_come_by_revision_and_key_however_they_were_sent() -> None:
    events = [
        {"type": "DELETE", "kv": {"key": key, "mod_revision": "3"}}
        for key in ("bi9j", "bi9i")  # n/c, n/b
    ]
    with watching(stream(created(), reply(header=header(3), events=events))) as (watch, _):
        assert watch.wait(LONG_S) == [DeleteEvent(key="b", revision=3), DeleteEvent(key="c", revision=3)]


def test_what_arrived_before_the_stream_broke_is_told_and_never_again() -> None:
    broken = stream(created(), put_message(2), put_message(3), end=True)
    with watching(broken, stream(created(3), put_message(4))) as (watch, member):
        events = watch.wait(LONG_S)
        while len(events) < 3:
            events += watch.wait(LONG_S)
        assert events == [put_event(2), put_event(3), put_event(4)]
        assert starts(member) == [1, 4]


def test_mere_progress_moves_the_place_where_the_next_stream_begins() -> None:
    progress = reply(header=header(90))
    with watching(stream(created(), progress, end=True), stream(created(90), put_message(91))) as (
        watch,
        member,
    ):
        assert watch.wait(LONG_S) == [put_event(91)]
        assert starts(member) == [1, 91]


def test_what_etcd_tells_twice_is_told_once() -> None:
    again = reply(header=header(50), events=put_message(2)["result"]["events"])  # type: ignore[index]
    script = stream(created(), put_message(2), put_message(3), again, put_message(3), put_message(4))
    with watching(script) as (watch, _):
        events = watch.wait(LONG_S)
        while len(events) < 3:
            events += watch.wait(LONG_S)
        assert events == [put_event(2), put_event(3), put_event(4)]


def test_the_revision_of_a_creation_moves_nothing_since_the_past_is_yet_to_come() -> None:
    with watching(stream(created(90), end=True), stream(created(90), put_message(5))) as (watch, member):
        assert watch.wait(LONG_S) == [put_event(5)]
        assert starts(member) == [1, 1]


@pytest.mark.parametrize(
    "step",
    [
        CLOSE,
        stream(created(), "not a record", end=True),
        stream({"error": {"grpc_code": 14, "message": "etcdserver: no leader"}}),
        stream({"error": {"code": 14, "message": "etcdserver: no leader"}}),
        refuse(14, "etcdserver: not ready"),
        answer("Bad Gateway", 502),
    ],
    ids=["closed", "unreadable", "error of etcd 3.5", "error of etcd 3.6", "refused", "no etcd"],
)
def test_a_stream_that_ends_for_a_passing_reason_is_opened_again(step: bytes | str) -> None:
    with watching(step, stream(created(), put_message(2))) as (watch, _):
        assert watch.wait(LONG_S) == [put_event(2)]


@pytest.mark.parametrize(
    ("step", "kind", "message"),
    [
        (
            stream(reply(created=True, canceled=True, cancel_reason="permission denied")),
            StoreAccessError,
            "may not",
        ),
        (stream({"error": {"grpc_code": 7, "message": "permission denied"}}), StoreAccessError, "may not"),
        (refuse(7, "permission denied"), StoreAccessError, "may not"),
        (stream(reply(canceled=True)), StoreError, "the watch was cancelled"),
    ],
)
def test_a_watch_that_is_refused_says_why(step: bytes, kind: type[StoreError], message: str) -> None:
    with watching(step) as (watch, _), pytest.raises(kind, match=message):
        watch.wait(LONG_S)


def test_a_refused_watch_logs_in_anew_once_since_its_login_may_have_run_out() -> None:
    denied = stream(reply(created=True, canceled=True, cancel_reason="permission denied"))
    script = (TOKEN, denied, answer({"token": "def"}), stream(created(), put_message(2)))
    with watching(*script, user="me") as (watch, member):
        assert watch.wait(LONG_S) == [put_event(2)]
        assert [request.token for request in member.seen] == ["", "abc", "", "def"]
    with (
        watching(TOKEN, denied, TOKEN, denied, user="me") as (watch, _),
        pytest.raises(StoreAccessError, match="may not read and write here"),
    ):
        watch.wait(LONG_S)


def test_a_compacted_past_is_told_after_what_had_arrived_and_for_ever() -> None:
    compacted = reply(canceled=True, compact_revision="50")
    with watching(stream(created(), put_message(2), compacted)) as (watch, _):
        assert watch.wait(LONG_S) == [put_event(2)]
        for look in (watch.poll, lambda: watch.wait(1)):
            with pytest.raises(CompactedError, match="after revision 2 were asked for, but those up to 50"):
                look()


def test_a_member_that_lags_behind_is_followed_and_a_store_that_lost_its_past_is_not() -> None:
    behind = stream(created(3), put_message(9))
    read = answer({"header": header(8)})
    with watching(behind, read, after_revision=8, newest_revision=8) as (watch, _):
        assert watch.wait(LONG_S) == [put_event(9)]
    read = answer({"header": header(3)})
    with watching(behind, read, after_revision=8, newest_revision=8) as (watch, _):
        for _ in range(2):
            with pytest.raises(CompactedError, match="the store went back from 8 to 3: it was replaced"):
                watch.wait(LONG_S)


def test_to_ask_for_what_is_yet_to_come_is_no_sign_of_a_lost_past() -> None:
    with watching(stream(created(3), put_message(9)), after_revision=8, newest_revision=3) as (watch, member):
        assert watch.wait(LONG_S) == [put_event(9)]
        assert [request.path for request in member.seen] == ["/v3/watch"]


def test_a_watch_that_nobody_accepts_is_blind_and_says_so_at_each_look() -> None:
    with watching(HANG, timeout_s=0.2) as (watch, _):
        looks: list[Callable[[], object]] = [
            lambda: watch.wait(LONG_S),
            watch.poll,
            lambda: watch.wait(LONG_S),
        ]
        for look in looks:
            with pytest.raises(
                StoreUnreachableError, match="the watch on '' has had no connection to etcd://"
            ):
                look()


def test_a_closed_watch_refuses_to_work() -> None:
    with watching(stream(created())) as (watch, _):
        watch.close()
        with pytest.raises(StoreHandleError, match="the watch on '' is closed"):
            watch.poll()
