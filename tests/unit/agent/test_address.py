"""Under which address other nodes reach this one."""

import pytest

from elastane.agent import address
from elastane.agent.address import LOOPBACK, check_address, find_address, find_source
from elastane.model.errors import ConfigError

ETCD = "etcd://user:p%40ss@10.9.8.7:2379,[2001:db8::1]:2379/team?cacert=x"


def routes(monkeypatch: pytest.MonkeyPatch, **known: str) -> list[tuple[str, int]]:
    """Let the kernel know the routes to some hosts only; return who was asked for."""
    asked: list[tuple[str, int]] = []

    def find(host: str, port: int) -> str | None:
        asked.append((host, port))
        return known.get(host)

    monkeypatch.setattr(address, "find_source", find)
    return asked


def test_a_job_that_cannot_leave_the_machine_stays_on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = routes(monkeypatch)
    assert find_address("sqlite:///x/store.db") == find_address("memory://x", nodes=2) == LOOPBACK
    assert asked == []


def test_the_address_is_the_one_towards_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = routes(monkeypatch, **{"10.9.8.7": "10.9.0.1", "2001:db8::1": "2001:db8::2"})
    assert find_address(ETCD, nodes=2) == "10.9.0.1"
    assert asked == [("10.9.8.7", 2379), ("2001:db8::1", 2379)]


def test_a_member_of_the_store_that_cannot_be_reached_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    routes(monkeypatch, **{"2001:db8::1": "2001:db8::2"})
    assert find_address(ETCD, nodes=2) == "2001:db8::2"


def test_a_store_on_this_machine_tells_nothing_so_the_way_out_does(monkeypatch: pytest.MonkeyPatch) -> None:
    routes(monkeypatch, **{"127.0.0.1": "127.0.0.1", "192.0.2.1": "10.0.0.5"})
    assert find_address("etcd://127.0.0.1:2379/x", nodes=2) == "10.0.0.5"


def test_without_a_way_to_others_a_job_of_several_nodes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    routes(monkeypatch, **{"127.0.0.1": "127.0.0.1"})
    assert find_address("etcd://127.0.0.1:2379/x") == LOOPBACK
    with pytest.raises(ConfigError, match="say it with --address"):
        find_address("etcd://127.0.0.1:2379/x", nodes=2)


def test_the_kernel_knows_the_way_to_this_machine_itself() -> None:
    assert find_source("127.0.0.1", 9) == "127.0.0.1"
    assert find_source("no such host", 9) is None


def test_only_own_addresses_can_be_named() -> None:
    check_address("127.0.0.1")
    with pytest.raises(ConfigError, match=r"--address 192\.0\.2\.7: this machine cannot listen there"):
        check_address("192.0.2.7")
    with pytest.raises(ConfigError, match="cannot listen there"):
        check_address("no such host")
