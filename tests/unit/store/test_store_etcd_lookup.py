"""How hosts are looked up while the name server answers, hangs, or knows nothing."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from elastane.store import etcd_lookup
from elastane.store.etcd_address import Endpoint
from elastane.store.etcd_http import Link, LinkFailed
from elastane.store.etcd_lookup import AddressBook

FOUND = [(socket.AF_INET, ("10.0.0.1", 2379))]
PATIENT_S = 30.0


class NameServer:
    """Answers when it is let go; counts who asks."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.go = threading.Event()
        self.error: Exception | None = None

    def __call__(self, host: str, port: int | None, **more: Any) -> list[Any]:
        if more.get("flags") == socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "it is a name")
        self.asked.append(host)
        assert self.go.wait(PATIENT_S)
        if self.error is not None:
            raise self.error
        return [(family, socket.SOCK_STREAM, 6, "", address) for family, address in FOUND]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServer]:
    made = NameServer()
    monkeypatch.setattr(socket, "getaddrinfo", made)
    yield made
    made.go.set()
    for thread in threading.enumerate():
        if thread.name == "etcd-address":
            thread.join(PATIENT_S)


def soon() -> float:
    return time.monotonic() + 0.01


def later() -> float:
    return time.monotonic() + PATIENT_S


def test_a_number_needs_no_name_server() -> None:
    book = AddressBook()
    assert book.look_up("127.0.0.1", 7, soon()) == [(socket.AF_INET, ("127.0.0.1", 7))]


def test_a_name_server_that_hangs_is_asked_once_however_often_one_tries(server: NameServer) -> None:
    book = AddressBook()
    for _ in range(5):
        with pytest.raises(TimeoutError, match="etcd could not be looked up in time"):
            book.look_up("etcd", 2379, soon())
    assert server.asked == ["etcd"]
    server.go.set()
    assert book.look_up("etcd", 2379, later()) == FOUND


def test_each_host_is_asked_for_by_itself_and_anew_once_there_was_an_answer(server: NameServer) -> None:
    book = AddressBook()
    for host in ("one", "two", "one"):
        with pytest.raises(TimeoutError):
            book.look_up(host, 2379, soon())
    assert sorted(server.asked) == ["one", "two"]
    server.go.set()
    for host in ("one", "two", "one", "one"):
        assert book.look_up(host, 2379, later()) == FOUND
    assert server.asked.count("one") >= 3


@pytest.mark.parametrize(
    "error", [socket.gaierror(-2, "Name or service not known"), UnicodeError("bad label")]
)
def test_a_name_that_is_not_known_is_told_to_all_who_asked(server: NameServer, error: Exception) -> None:
    server.error = error
    server.go.set()
    with pytest.raises(OSError, match=r"not known|bad label"):
        AddressBook().look_up("etcd", 2379, later())


def test_a_thread_that_cannot_be_started_is_an_error_of_the_search_and_the_next_one_begins_anew(
    server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.go.set()
    book = AddressBook()
    with monkeypatch.context() as scarce:

        def refuse(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        scarce.setattr(threading.Thread, "start", refuse)
        with pytest.raises(OSError, match="can't start new thread"):
            book.look_up("etcd", 2379, later())
    assert book.look_up("etcd", 2379, later()) == FOUND


def test_a_forked_child_asks_anew_though_its_parent_was_in_the_middle(server: NameServer) -> None:
    with pytest.raises(TimeoutError):
        etcd_lookup.book.look_up("etcd", 2379, soon())
    child = os.fork()
    if child == 0:
        code = 2
        try:
            server.go.set()
            code = 0 if etcd_lookup.book.look_up("etcd", 2379, later()) == FOUND else 1
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (TimeoutError("late"), "could not be looked up in time"),
        (OSError("no such host"), "its name is unknown"),
    ],
)
def test_a_member_whose_name_is_not_found_was_certainly_not_asked(
    monkeypatch: pytest.MonkeyPatch, error: OSError, told: str
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(etcd_lookup.book, "look_up", fail)
    with pytest.raises(LinkFailed, match=told) as failure:
        Link(Endpoint(host="etcd", port=2379), None, soon())
    assert not failure.value.sent
