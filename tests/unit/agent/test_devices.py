"""Which devices a node offers."""

from pathlib import Path

import pytest

from elastane.agent import devices
from elastane.agent.devices import (
    compute_cpu_slots,
    count_cuda_devices,
    find_devices,
    name_cpu_slots,
    name_cuda_devices,
    parse_devices,
)
from elastane.model.errors import ConfigError


def test_processor_shares_and_accelerators_are_numbered_from_zero() -> None:
    assert name_cpu_slots(2) == ("cpu:0", "cpu:1")
    assert name_cuda_devices(2) == ("cuda:0", "cuda:1")
    assert name_cuda_devices(0) == ()


def test_a_node_without_shares_is_refused() -> None:
    with pytest.raises(ConfigError, match="0 processor shares asked for"):
        name_cpu_slots(0)


@pytest.mark.parametrize(
    ("cores", "wanted", "virtual_workers", "slots"),
    [(2, 1, 8, 8), (16, 1, 8, 16), (2, 12, 8, 12), (2, 1, None, 64), (96, 1, None, 96)],
)
def test_there_is_a_share_for_every_worker_the_job_may_want(
    cores: int, wanted: int, virtual_workers: int | None, slots: int
) -> None:
    assert compute_cpu_slots(cores, wanted, virtual_workers) == slots


@pytest.mark.parametrize(
    ("visible", "count"), [("", 0), ("-1", 0), ("0", 1), ("2,3", 2), ("0,-1,1", 1), ("GPU-a, GPU-b", 2)]
)
def test_the_environment_says_which_accelerators_are_visible(
    tmp_path: Path, visible: str, count: int
) -> None:
    assert count_cuda_devices({"CUDA_VISIBLE_DEVICES": visible}, tmp_path) == count


def test_else_the_driver_says_how_many_there_are(tmp_path: Path) -> None:
    assert count_cuda_devices({}, tmp_path / "missing") == 0
    for bus in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / bus).mkdir()
    assert count_cuda_devices({}, tmp_path) == 2


def test_the_processor_is_shared_out_where_there_is_no_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "count_cuda_devices", lambda _environment: 0)
    monkeypatch.setattr(devices.os, "sched_getaffinity", lambda _pid: {0, 1})
    assert find_devices(2, 3, {}) == ("cpu:0", "cpu:1", "cpu:2")
    assert len(find_devices(100, None, {})) == 100
    assert parse_devices("3", {}) == ("cpu:0", "cpu:1", "cpu:2")


def test_accelerators_are_used_where_there_are_some() -> None:
    environment = {"CUDA_VISIBLE_DEVICES": "0,1"}
    assert find_devices(1, None, environment) == ("cuda:0", "cuda:1")
    assert parse_devices("1", environment) == ("cuda:0",)
    with pytest.raises(ConfigError, match="--devices 3: this machine has 2 CUDA devices"):
        parse_devices("3", environment)


def test_a_list_of_devices_is_taken_as_it_is() -> None:
    assert parse_devices("cuda:3, cuda:1", {}) == ("cuda:3", "cuda:1")


def test_an_accelerator_that_the_machine_lacks_is_refused_where_some_are_seen() -> None:
    with pytest.raises(ConfigError) as error:
        parse_devices("cuda:1,cuda:2", {"CUDA_VISIBLE_DEVICES": "4,5"})
    assert str(error.value) == "--devices cuda:1,cuda:2: this machine has 2 CUDA devices, so no cuda:2"


@pytest.mark.parametrize(
    "text", ["", "gpu", "cuda", "cuda:x", "cpu:0,cpu:0", "cpu:0,,cpu:1", "-1", "cpu:0/1"]
)
def test_what_names_no_devices_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="neither a number nor a list of different devices"):
        parse_devices(text, {})
