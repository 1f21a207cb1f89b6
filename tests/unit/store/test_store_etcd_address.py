"""What an etcd URL means, what is refused, and that no secret leaves it."""

from pathlib import Path

import pytest

from elastane.model.errors import StoreAddressError
from elastane.store.etcd_address import (
    PASSWORD_VARIABLE,
    USER_VARIABLE,
    Credentials,
    Endpoint,
    EtcdAddress,
    TlsFiles,
    hide_credentials,
    parse_address,
    split_credentials,
)

ONE = (Endpoint(host="h", port=2379),)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("etcd://h", EtcdAddress(endpoints=ONE)),
        ("etcd://h/", EtcdAddress(endpoints=ONE)),
        ("etcd://h:7/a/b/", EtcdAddress(endpoints=(Endpoint(host="h", port=7),), namespace="a/b")),
        (
            "etcd://h1:1,h2:2,[::1]:3/n%20s",
            EtcdAddress(
                endpoints=(
                    Endpoint(host="h1", port=1),
                    Endpoint(host="h2", port=2),
                    Endpoint(host="::1", port=3),
                ),
                namespace="n s",
            ),
        ),
        ("etcds://h", EtcdAddress(endpoints=ONE, tls=TlsFiles())),
        ("etcd://h?ca=/c.pem", EtcdAddress(endpoints=ONE, tls=TlsFiles(ca=Path("/c.pem")))),
        (
            "etcds://h?cert=a&key=b&timeout=2.5",
            EtcdAddress(endpoints=ONE, tls=TlsFiles(cert=Path("a"), key=Path("b")), timeout_s=2.5),
        ),
        (
            "etcd://me:p%40ss%3A@h",
            EtcdAddress(endpoints=ONE, credentials=Credentials(user="me", password="p@ss:")),
        ),
    ],
)
def test_a_url_says_where_and_how(url: str, address: EtcdAddress) -> None:
    assert parse_address(url, {}) == address


@pytest.mark.parametrize(
    "url", ["etcd://h:7/a", "etcds://h:1,[::1]:3/n%20s?ca=/c.pem&cert=/a&key=/b&timeout=2.5", "etcds://h:1/x"]
)
def test_the_url_of_an_address_means_the_same(url: str) -> None:
    assert parse_address(url, {}).url == url


@pytest.mark.parametrize(
    ("url", "environment", "credentials"),
    [
        ("etcd://h", {USER_VARIABLE: "u", PASSWORD_VARIABLE: "p%41"}, Credentials(user="u", password="p%41")),
        (
            "etcd://h",
            {USER_VARIABLE: "a:b@c%", PASSWORD_VARIABLE: ""},
            Credentials(user="a:b@c%", password=""),
        ),
        ("etcd://me@h", {USER_VARIABLE: "u", PASSWORD_VARIABLE: "p"}, Credentials(user="me", password="p")),
        (
            "etcd://me:own@h",
            {USER_VARIABLE: "u", PASSWORD_VARIABLE: "p"},
            Credentials(user="me", password="own"),
        ),
        ("etcd://h", {PASSWORD_VARIABLE: "p"}, None),
    ],
)
def test_what_the_url_leaves_out_comes_from_the_environment(
    url: str, environment: dict[str, str], credentials: Credentials | None
) -> None:
    assert parse_address(url, environment).credentials == credentials


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("etcd://", "has the host ''"),
        ("etcd://h1,,h2", "has the host ''"),
        ("etcd://h:0", "has the host 'h:0'"),
        ("etcd://h:70000", "has the host 'h:70000'"),
        ("etcd://h:port", "has the host 'h:port'"),
        ("etcd://[::1", "cannot be read"),
        ("etcd://h?cert=a", "only one of cert and key"),
        ("etcd://h?tls=1", r"has \['tls'\]; known parameters are ca, cert, key, timeout"),
        ("etcd://h#x", "has a #fragment"),
        ("etcd://h?timeout=0", "has timeout=0; give seconds between 0.05 and 60"),
        ("etcd://h?timeout=soon", "has timeout=soon"),
        ("etcd://h?timeout=nan", "has timeout=nan"),
        ("etcd://me@h", f"the etcd user 'me' has no password; set {PASSWORD_VARIABLE}"),
    ],
)
def test_a_url_that_cannot_be_meant_is_refused_with_what_to_write(url: str, message: str) -> None:
    with pytest.raises(StoreAddressError, match=message):
        parse_address(url, {})


@pytest.mark.parametrize("rest", ["h:0", "h?tls=1", "h?cert=a", "h#x", "h?timeout=0", "[::1"])
def test_no_refusal_shows_a_secret(rest: str) -> None:
    with pytest.raises(StoreAddressError) as caught:
        parse_address(f"etcd://me:hunter2@{rest}", {})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("mark", ["/", "?", "#"])
def test_a_password_that_breaks_its_url_is_refused_and_not_shown(mark: str) -> None:
    with pytest.raises(StoreAddressError, match="an @ behind its hosts; write") as caught:
        parse_address(f"etcd://me:hunter{mark}secret@h", {})
    assert not {"hunter", "secret"} & set(str(caught.value).replace("/", " ").split())


def test_neither_the_repr_nor_the_url_of_an_address_shows_a_secret() -> None:
    address = parse_address("etcd://me:hunter2@h", {})
    assert "hunter2" not in repr(address)
    assert address.url == "etcd://h:2379/elastane"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("etcd://me:secret@h:1/n?x=1", "etcd://h:1/n?x=1"),
        ("etcd://me:sec@ret@h", "etcd://h"),
        ("redis://:secret@h", "redis://h"),
        ("sqlite:///a@b/store.db", "sqlite:///a@b/store.db"),
        ("/plain/path", "/plain/path"),
    ],
)
def test_credentials_can_be_hidden_in_any_url(url: str, shown: str) -> None:
    assert hide_credentials(url) == shown


def test_credentials_can_be_moved_from_a_url_to_the_environment() -> None:
    url, variables = split_credentials("etcd://me:p%40ss@h:1/n", {PASSWORD_VARIABLE: "another"})
    assert url == "etcd://h:1/n"
    assert variables == {USER_VARIABLE: "me", PASSWORD_VARIABLE: "p@ss"}
    assert parse_address(url, variables).credentials == Credentials(user="me", password="p@ss")


@pytest.mark.parametrize("url", ["etcd://h:1/n", "sqlite:///a@b/store.db"])
def test_a_url_without_credentials_stays_as_it_is(url: str) -> None:
    assert split_credentials(url, {}) == (url, {})


def test_a_user_in_the_url_takes_its_password_from_the_environment() -> None:
    assert split_credentials("etcd://me@h", {PASSWORD_VARIABLE: "p"}) == (
        "etcd://h",
        {USER_VARIABLE: "me", PASSWORD_VARIABLE: "p"},
    )
