"""Which URLs name a store, and what is said about those that do not."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from elastane.model.errors import StoreAccessError, StoreAddressError, StoreError
from elastane.store.base import DeleteEvent, Put
from elastane.store.clock import ManualClock
from elastane.store.open import open_store


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (
            "redis://host",
            "'redis://host' has no known scheme; use one of etcd://, etcds://, memory://, sqlite://",
        ),
        ("/tmp/store.db", "has no known scheme"),
        ("sqlite", "has no known scheme"),
        ("", "has no known scheme"),
        ("sqlite://store.db", "sqlite://store.db has no absolute path"),
        ("sqlite://", "has no absolute path"),
        ("memory://", "names no store"),
    ],
)
def test_a_url_that_names_no_store_is_refused_with_what_to_write(url: str, message: str) -> None:
    with pytest.raises(StoreAddressError, match=message):
        open_store(url)


def test_an_unknown_scheme_is_told_without_the_password_before_its_host() -> None:
    with pytest.raises(StoreAddressError, match="'redis://host' has no known scheme"):
        open_store("redis://me:secret@host")


def test_without_the_extra_of_etcd_it_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(StoreAddressError, match=r"needs the package h11, .* pip install 'elastane\[etcd\]'"):
        open_store("etcd://host")


def test_a_path_may_hold_any_characters(tmp_path: Path) -> None:
    path = tmp_path / "50% of ünits?" / "a#b c.db"
    with open_store(f"sqlite://{path}") as store:
        store.transact(puts=[Put(key="a", value=b"")])
    assert path.exists()


def test_more_slashes_before_the_path_change_nothing(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        store.transact(puts=[Put(key="a", value=b"")])
    assert (tmp_path / "store.db").exists()


def test_two_handles_on_one_url_see_each_other(tmp_path: Path) -> None:
    for url in (f"sqlite://{tmp_path}/store.db", "memory://two-handles"):
        with open_store(url) as one, open_store(url) as other:
            one.transact(puts=[Put(key="a", value=b"")])
            assert other.get("a") == one.get("a") != None  # noqa: E711


def test_memory_stores_of_two_names_are_two_stores() -> None:
    with open_store("memory://one-name") as one, open_store("memory://another-name") as other:
        one.transact(puts=[Put(key="a", value=b"")])
        assert other.get("a") is None


def test_nothing_is_created_if_it_should_exist(tmp_path: Path) -> None:
    for url in (f"sqlite://{tmp_path}/folder/store.db", "memory://never-made"):
        with pytest.raises(StoreAddressError, match="there is no store"):
            open_store(url, create=False)
    assert list(tmp_path.iterdir()) == []


def test_a_given_clock_rules_the_leases(tmp_path: Path) -> None:
    for url in (f"sqlite://{tmp_path}/store.db", "memory://given-clock"):
        clock = ManualClock()
        with open_store(url, clock=clock) as store:
            revision = store.transact(puts=[Put(key="a", value=b"", lease=store.grant(5))]).revision
            clock.advance(5)
            assert store.watch("", revision).poll() == [DeleteEvent(key="a", revision=revision + 1)]


def test_without_one_the_clock_of_the_machine_does(tmp_path: Path) -> None:
    with open_store(f"sqlite://{tmp_path}/store.db") as store:
        revision = store.transact(puts=[Put(key="a", value=b"", lease=store.grant(0.01))]).revision
        assert store.watch("", revision).wait(30) == [DeleteEvent(key="a", revision=revision + 1)]


@contextmanager
def without_privileges() -> Iterator[None]:
    """Act as an ordinary user for a while, even if the tests run as root."""
    nobody = 65534
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(nobody)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


@pytest.mark.parametrize("mode", [0o000, 0o555], ids=["hidden", "read-only"])
@pytest.mark.parametrize("create", [True, False])
def test_a_folder_without_permission_is_an_access_or_address_error(
    tmp_path: Path, mode: int, create: bool
) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    folder.chmod(mode)
    try:
        with without_privileges(), pytest.raises(StoreError) as caught:
            open_store(f"sqlite://{folder}/store.db", create=create)
    finally:
        folder.chmod(0o700)
    assert isinstance(caught.value, StoreAccessError | StoreAddressError)
    assert str(folder) in str(caught.value)
