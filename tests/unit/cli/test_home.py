"""Where a command finds its home and its store, and where a password in the store's URL goes."""

from pathlib import Path

import pytest

from elastane.cli.home import Home, resolve_home
from elastane.model.errors import StoreAddressError
from elastane.store.etcd_address import PASSWORD_VARIABLE, USER_VARIABLE


def test_the_store_is_the_file_in_the_home_unless_a_flag_or_the_environment_names_another(
    tmp_path: Path,
) -> None:
    environment = {"ELASTANE_STORE": "etcd://from-environment"}
    assert resolve_home(tmp_path, None, {}).store_url == f"sqlite://{tmp_path}/store.db"
    assert resolve_home(tmp_path, None, environment) == Home(path=tmp_path, store="etcd://from-environment")
    assert resolve_home(tmp_path, "etcd://flag", environment) == Home(path=tmp_path, store="etcd://flag")


def test_a_password_in_the_url_moves_to_the_environment_that_processes_inherit(tmp_path: Path) -> None:
    environment = {PASSWORD_VARIABLE: "old"}
    home = resolve_home(tmp_path, "etcd://me:hunter2@host:1/n", environment)
    assert home == Home(path=tmp_path, store="etcd://host:1/n")
    assert environment == {USER_VARIABLE: "me", PASSWORD_VARIABLE: "hunter2"}


def test_credentials_of_the_environment_stay_where_they_are(tmp_path: Path) -> None:
    environment = {USER_VARIABLE: "me", PASSWORD_VARIABLE: "hunter2"}
    assert resolve_home(tmp_path, "etcd://host", environment).store == "etcd://host"
    assert environment == {USER_VARIABLE: "me", PASSWORD_VARIABLE: "hunter2"}


def test_a_store_url_that_cannot_be_read_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(StoreAddressError, match="has the host"):
        resolve_home(tmp_path, "etcd://host:port", {})
