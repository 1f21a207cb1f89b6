"""How a client of etcd chooses members, repeats or does not repeat, logs in, and explains failures."""

import socket
import threading
import time
from collections.abc import Callable

import pytest
from fake_member import CLOSE, GARBAGE, HANG, FakeMember, Seen, answer, fake_member, refuse

from elastane.model.errors import (
    StoreAccessError,
    StoreAddressError,
    StoreBusyError,
    StoreCorruptError,
    StoreError,
    StoreFullError,
    StoreRequestError,
    StoreUnreachableError,
)
from elastane.store import etcd_http
from elastane.store.etcd_address import Credentials, Endpoint, EtcdAddress
from elastane.store.etcd_client import EtcdClient
from elastane.store.etcd_messages import Empty, StatusReply

OK = answer({"version": "3.5.0"})
DEAD_PORT = 1  # tcpmux: nobody listens there
PATIENT_S = 30.0
BRISK_S = 0.3


def make_client(*members: FakeMember | int, timeout_s: float = PATIENT_S, user: str = "") -> EtcdClient:
    ports = [member if isinstance(member, int) else member.port for member in members]
    return EtcdClient(
        EtcdAddress(
            endpoints=tuple(Endpoint(host="127.0.0.1", port=port) for port in ports),
            credentials=Credentials(user=user, password="secret") if user else None,
            timeout_s=timeout_s,
        )
    )


def ask(client: EtcdClient, *, repeatable: bool = True) -> str:
    return client.call("/v3/test", Empty(), StatusReply, repeatable=repeatable).version


def paths(member: FakeMember) -> list[str]:
    return [request.path for request in member.seen]


def test_one_connection_serves_call_after_call() -> None:
    with fake_member(OK) as member:
        client = make_client(member)
        assert [ask(client) for _ in range(3)] == ["3.5.0"] * 3
        assert (len(member._links), client.epoch) == (1, 0)
        assert member.seen == [Seen(path="/v3/test", token="", body={})] * 3


# --- which member ---


@pytest.mark.parametrize("repeatable", [True, False], ids=["read", "transaction"])
def test_a_member_that_takes_no_connection_is_passed_over_by_every_call(repeatable: bool) -> None:
    with fake_member(OK) as member:
        client = make_client(DEAD_PORT, member)
        assert ask(client, repeatable=repeatable) == "3.5.0"
        assert client.epoch == 1
        assert ask(client, repeatable=repeatable) == "3.5.0"
        assert client.epoch == 1, "it stays with the member that answered"


@pytest.mark.parametrize("step", [CLOSE, GARBAGE, HANG, answer("", 503), refuse(14, "no leader")])
def test_a_read_goes_on_to_the_next_member_whatever_happened(step: bytes | str) -> None:
    with fake_member(step) as first, fake_member(OK) as second:
        assert ask(make_client(first, second, timeout_s=2.0)) == "3.5.0"
        assert (len(first.seen), len(second.seen)) == (1, 1)


@pytest.mark.parametrize("step", [CLOSE, GARBAGE, HANG, answer("", 503), refuse(14, "no leader")])
def test_a_transaction_that_may_have_been_seen_is_not_sent_again(step: bytes | str) -> None:
    with fake_member(step) as first, fake_member(OK) as second:
        client = make_client(first, second, timeout_s=BRISK_S)
        with pytest.raises(StoreUnreachableError, match="may or may not have taken effect"):
            ask(client, repeatable=False)
        assert (len(first.seen), len(second.seen)) == (1, 0)
        assert ask(client, repeatable=False) == "3.5.0", "the next one goes to the next member"


def test_a_transaction_gets_all_the_time_for_its_answer() -> None:
    """Half of it is kept for other members only where they could be asked."""
    with fake_member(HANG) as first, fake_member(OK) as second:
        client = make_client(first, second, timeout_s=BRISK_S)
        begun_s = time.monotonic()
        with pytest.raises(StoreUnreachableError):
            ask(client, repeatable=False)
        assert time.monotonic() - begun_s >= BRISK_S


@pytest.mark.parametrize("repeatable", [True, False], ids=["read", "transaction"])
def test_a_connection_that_was_closed_while_idle_costs_nothing(repeatable: bool) -> None:
    with fake_member(OK) as member:
        client = make_client(member)
        ask(client)
        member._links[0].shutdown(2)
        assert ask(client, repeatable=repeatable) == "3.5.0"
        assert client.epoch == 0


def test_a_kept_connection_that_breaks_earns_its_member_a_second_turn_for_a_read() -> None:
    with fake_member(OK, CLOSE, OK) as member:
        client = make_client(member)
        assert [ask(client) for _ in range(2)] == ["3.5.0"] * 2
        assert (len(member.seen), client.epoch) == (3, 1)


def test_when_nobody_answers_each_member_is_named_with_its_reason() -> None:
    with fake_member(HANG) as silent:
        client = make_client(DEAD_PORT, silent, timeout_s=BRISK_S)
        with pytest.raises(StoreUnreachableError) as caught:
            ask(client)
    assert str(caught.value) == (
        f"the store etcd://127.0.0.1:1,127.0.0.1:{silent.port}/elastane?timeout=0.3 does not answer "
        f"(127.0.0.1:1: connection refused, 127.0.0.1:{silent.port}: it did not answer in time); "
        "check that etcd runs there, its address, and the network"
    )


def test_an_address_of_a_host_that_leads_nowhere_leaves_time_for_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Socket(socket.socket):
        """Connects to nothing but loopback, and waits for the rest as long as it may."""

        def connect(self, address: tuple[str, int]) -> None:
            if not address[0].startswith("127."):
                waited_s.append(self.gettimeout())
                raise TimeoutError
            super().connect(address)

    waited_s: list[float | None] = []
    with fake_member(OK) as member:
        found = [
            (socket.AF_INET, 0, 0, "", ("203.0.113.1", member.port)),  # RFC 5737: for documentation
            (socket.AF_INET, 0, 0, "", ("127.0.0.1", member.port)),
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: found)
        monkeypatch.setattr(socket, "socket", Socket)
        address = EtcdAddress(endpoints=(Endpoint(host="both", port=member.port),), timeout_s=PATIENT_S)
        assert ask(EtcdClient(address)) == "3.5.0"
    assert waited_s == [pytest.approx(PATIENT_S / 2, rel=0.1)]


def test_a_name_server_that_keeps_silent_does_not_keep_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()

    def look_up(host: str, port: object, *args: object, flags: int = 0, **kwargs: object) -> list[object]:
        if flags:
            raise socket.gaierror("no number")
        over.wait(PATIENT_S)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    address = EtcdAddress(endpoints=(Endpoint(host="slow.example", port=1),), timeout_s=BRISK_S)
    try:
        with pytest.raises(StoreUnreachableError, match="its name could not be looked up in time"):
            ask(EtcdClient(address))
    finally:
        over.set()


# --- users ---


TOKEN = answer({"token": "abc"})
STALE = refuse(16, "etcdserver: invalid auth token")


def test_a_user_logs_in_once_and_shows_the_token() -> None:
    with fake_member(TOKEN, OK) as member:
        client = make_client(member, user="me")
        assert [ask(client) for _ in range(2)] == ["3.5.0"] * 2
        assert member.seen == [
            Seen(path="/v3/auth/authenticate", token="", body={"name": "me", "password": "secret"}),
            Seen(path="/v3/test", token="abc", body={}),
            Seen(path="/v3/test", token="abc", body={}),
        ]


@pytest.mark.parametrize("repeatable", [True, False], ids=["read", "transaction"])
def test_a_login_that_has_run_out_is_made_anew_for_every_call(repeatable: bool) -> None:
    with fake_member(TOKEN, STALE, answer({"token": "def"}), OK) as member:
        client = make_client(member, user="me")
        assert ask(client, repeatable=repeatable) == "3.5.0"
        assert [request.token for request in member.seen] == ["", "abc", "", "def"]


def test_a_login_that_is_refused_again_and_again_is_an_access_error() -> None:
    with fake_member(TOKEN, STALE, TOKEN, STALE) as member, pytest.raises(StoreAccessError) as caught:
        ask(make_client(member, user="me"))
    assert "does not accept our login" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_transaction_that_broke_at_its_login_is_sent_to_the_next_member() -> None:
    with fake_member(CLOSE) as first, fake_member(TOKEN, OK) as second:
        assert ask(make_client(first, second, user="me"), repeatable=False) == "3.5.0"
        assert paths(first) == ["/v3/auth/authenticate"]


def test_where_etcd_knows_no_users_the_call_is_made_without() -> None:
    with fake_member(refuse(9, "etcdserver: authentication is not enabled"), OK) as member:
        client = make_client(member, user="me")
        assert [ask(client) for _ in range(2)] == ["3.5.0"] * 2
        assert paths(member) == ["/v3/auth/authenticate", "/v3/test", "/v3/test"]


# --- refusals ---


@pytest.mark.parametrize(
    ("step", "kind", "message"),
    [
        (answer("404 page not found", 404), StoreAddressError, "answers, but is no etcd 3.4 or newer"),
        (refuse(12, "unknown method"), StoreAddressError, "check the port"),
        (refuse(7, "etcdserver: permission denied"), StoreAccessError, "role grant-permission"),
        (refuse(3, "etcdserver: user name is empty"), StoreAccessError, "wants a user and a password"),
        (refuse(3, "etcdserver: authentication failed"), StoreAccessError, "user or password is wrong"),
        (refuse(14, "remote error: tls: bad certificate"), StoreAccessError, "valid for clients"),
        (refuse(8, "etcdserver: mvcc: database space exceeded"), StoreFullError, "alarm disarm"),
        (refuse(8, "etcdserver: too many requests"), StoreBusyError, "overloaded"),
        (refuse(3, "etcdserver: request is too large"), StoreRequestError, "--max-request-bytes"),
        (refuse(3, "etcdserver: too many operations in txn request"), StoreRequestError, "--max-txn-ops"),
        (refuse(15, "etcdserver: corrupt cluster"), StoreCorruptError, "its members disagree"),
        (refuse(13, "surprise"), StoreError, r"not expected; please report it \(etcd: surprise, code 13\)"),
        (answer("[1, 2"), StoreError, "answered what cannot be read"),
    ],
)
def test_a_refusal_is_told_with_what_to_do_and_not_tried_elsewhere(
    step: bytes, kind: type[StoreError], message: str
) -> None:
    with fake_member(step) as member, fake_member(OK) as other:
        with pytest.raises(kind, match=message) as caught:
            ask(make_client(member, other))
        assert type(caught.value) is kind
        assert other.seen == []


def test_a_connection_serves_on_after_a_refusal() -> None:
    with fake_member(refuse(8, "etcdserver: too many requests"), OK) as member:
        client = make_client(member)
        with pytest.raises(StoreBusyError):
            ask(client)
        assert ask(client) == "3.5.0"
        assert len(member._links) == 1


# --- time ---


@pytest.mark.parametrize(
    "call",
    [
        ask,
        lambda client: ask(client, repeatable=False),
        lambda client: client.open_stream("/v3/watch", Empty()),
    ],
    ids=["read", "transaction", "stream behind a login"],
)
def test_no_call_outlasts_its_time_however_many_members_are_silent(
    call: Callable[[EtcdClient], object],
) -> None:
    with fake_member(HANG) as first, fake_member(HANG) as second, fake_member(HANG) as third:
        client = make_client(first, second, third, timeout_s=BRISK_S, user="me")
        begun_s = time.monotonic()
        with pytest.raises(StoreUnreachableError):
            call(client)
        assert time.monotonic() - begun_s < PATIENT_S


class SlowConnection:
    """A socket whose connection took all but a second of the time that there was."""

    def __init__(self) -> None:
        self.timeout_s: float | None = 30.0
        self.is_closed = False

    def settimeout(self, timeout_s: float | None) -> None:
        self.timeout_s = timeout_s

    def close(self) -> None:
        self.is_closed = True


class NotedHandshake:
    """A TLS context that notes how long the handshake may take, and then gives up."""

    def __init__(self) -> None:
        self.timeout_s: float | None = None

    def wrap_socket(self, wrapped: SlowConnection, *, server_hostname: str) -> None:
        self.timeout_s = wrapped.timeout_s
        raise TimeoutError(f"{server_hostname} is slow")


@pytest.mark.parametrize(("left_s", "allowed_s"), [(1.0, 1.0), (-1.0, etcd_http.MIN_WAIT_S)])
def test_the_handshake_of_tls_has_what_the_connection_left_of_the_time(
    monkeypatch: pytest.MonkeyPatch, left_s: float, allowed_s: float
) -> None:
    connection, tls = SlowConnection(), NotedHandshake()
    monkeypatch.setattr(etcd_http, "_connect", lambda *_: connection)
    monkeypatch.setattr(etcd_http.time, "monotonic", lambda: 100.0)
    with pytest.raises(etcd_http.LinkFailed, match="did not answer in time"):
        etcd_http.Link(Endpoint(host="etcd", port=1), tls, 100.0 + left_s)  # type: ignore[arg-type]
    assert (tls.timeout_s, connection.is_closed) == (allowed_s, True)
