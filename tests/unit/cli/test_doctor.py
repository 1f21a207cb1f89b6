"""The doctor: each finding on a machine that is well and on one that is not."""

import resource
import socket
import time
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cli_world import World

from elastane.cli import doctor, examine
from elastane.cli.examine import Finding, Verdict
from elastane.cli.home import Home

Usage = namedtuple("Usage", "total used free")


def judge(finding: Finding) -> tuple[str, Verdict, str]:
    return finding.name, finding.verdict, finding.mend


def make_torch(version: str = "2.13.0+cpu", *, gloo: bool = True, nccl: bool = False, cuda: int = 0) -> Any:
    return SimpleNamespace(
        __version__=version,
        distributed=SimpleNamespace(
            is_available=lambda: True, is_gloo_available=lambda: gloo, is_nccl_available=lambda: nccl
        ),
        cuda=SimpleNamespace(
            is_available=lambda: cuda > 0,
            device_count=lambda: cuda,
            get_device_name=lambda index: f"GPU {index}",
        ),
    )


def test_python_must_be_new_enough() -> None:
    assert examine.examine_python((3, 12)).verdict is Verdict.OK
    assert judge(examine.examine_python((3, 10))) == (
        "python",
        Verdict.FAIL,
        "install Python 3.11 or newer and make the virtual environment anew",
    )


@pytest.mark.parametrize(
    ("torch", "verdict", "found"),
    [
        (make_torch(), Verdict.OK, "2.13.0+cpu, loads in 1.5 s"),
        (make_torch("2.7.1"), Verdict.WARN, "2.7.1"),
        (make_torch("2.5.0"), Verdict.FAIL, "2.5.0"),
        (ImportError("no module"), Verdict.FAIL, "cannot be loaded: no module"),
    ],
)
def test_torch_is_judged_by_its_version(torch: Any, verdict: Verdict, found: str) -> None:
    finding = examine.examine_torch(torch, 1.5)
    assert (finding.verdict, finding.found, bool(finding.mend)) == (verdict, found, verdict is not Verdict.OK)


def test_communication_needs_gloo() -> None:
    assert examine.examine_communication(make_torch(nccl=True)).found == "gloo, nccl"
    assert examine.examine_communication(make_torch(gloo=False)).verdict is Verdict.FAIL
    assert examine.examine_communication(ImportError()).verdict is Verdict.FAIL


def test_devices_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examine.os, "sched_getaffinity", lambda _pid: {0, 1})
    assert examine.examine_devices(make_torch(cuda=2)).found == "2 CPU cores, GPU 0, GPU 1"
    monkeypatch.setattr(examine.os, "sched_getaffinity", lambda _pid: {0})
    assert examine.examine_devices(ImportError()).verdict is Verdict.WARN


def test_threads_set_elsewhere_are_pointed_out() -> None:
    assert examine.examine_threads({}).verdict is Verdict.OK
    assert examine.examine_threads({"OMP_NUM_THREADS": "8"}).verdict is Verdict.WARN


def test_loopback_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    assert examine.examine_loopback().verdict is Verdict.OK

    def refuse(*_arguments: Any, **_named: Any) -> Any:
        raise OSError("not permitted")

    monkeypatch.setattr(socket, "create_server", refuse)
    assert judge(examine.examine_loopback()) == (
        "loopback",
        Verdict.FAIL,
        "allow TCP on 127.0.0.1 (a firewall or a sandbox is in the way)",
    )


def test_reading_each_others_memory_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    assert examine.examine_memory_reads().verdict is Verdict.OK
    code = "raise PermissionError(1, 'Operation not permitted')"
    monkeypatch.setattr(examine, "_READ_MEMORY", code)
    finding = examine.examine_memory_reads()
    assert (finding.verdict, finding.found) == (
        Verdict.WARN,
        "not allowed: PermissionError: [Errno 1] Operation not permitted",
    )
    assert "jobs run" in finding.mend


def test_the_host_name_must_have_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> str:
        raise socket.gaierror(f"{name} is unknown")

    monkeypatch.setattr(socket, "gethostname", lambda: "box")
    monkeypatch.setattr(socket, "gethostbyname", unknown)
    assert judge(examine.examine_host_name()) == (
        "host name",
        Verdict.WARN,
        'add the line "127.0.1.1 box" to /etc/hosts',
    )
    monkeypatch.setattr(socket, "gethostbyname", lambda _name: "127.0.1.1")
    assert examine.examine_host_name().found == "box is 127.0.1.1"


def test_a_home_is_tried_without_being_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(path=tmp_path / "a" / "home")
    monkeypatch.setattr(examine.shutil, "disk_usage", lambda _path: Usage(9, 0, 5_000_000_000))
    assert examine.examine_home(home).verdict is Verdict.OK
    assert not (tmp_path / "a").exists()
    home.path.mkdir(parents=True)
    home.path.chmod(0o755)
    assert examine.examine_home(home).mend == f"others can read it: chmod 700 {home.path}"
    home.path.chmod(0o700)
    monkeypatch.setattr(examine.shutil, "disk_usage", lambda _path: Usage(9, 0, 5_000))
    assert examine.examine_home(home).verdict is Verdict.WARN


def test_a_home_that_cannot_be_written_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_named: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(examine.tempfile, "TemporaryFile", refuse)
    finding = examine.examine_home(Home(path=tmp_path))
    assert (finding.verdict, finding.found) == (Verdict.FAIL, f"{tmp_path}: Permission denied")


def test_a_network_file_system_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examine, "read_mounts", lambda: [("/", "ext4"), (str(tmp_path), "nfs4")])
    assert examine.examine_file_system(Home(path=tmp_path / "home")).found == "nfs4 (network)"
    assert examine.examine_file_system(Home(path=Path("/elsewhere"))).found == "ext4 (local)"


def test_the_store_is_tried_and_left_as_it_was(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert examine.examine_store(world.home).verdict is Verdict.OK
    assert not world.home.path.exists()
    world.train()
    with world.store() as store:
        before = [entry.key for entry in store.range("").entries]
    assert examine.examine_store(world.home).verdict is Verdict.OK
    with world.store() as store:
        assert [entry.key for entry in store.range("").entries] == before
    monkeypatch.setattr(examine, "measure_store", lambda _url: 0.05)
    assert examine.examine_store(world.home).found == "a write takes 50 ms"
    assert examine.examine_store(world.home).verdict is Verdict.WARN


def test_another_store_is_tried_where_a_url_names_one(tmp_path: Path) -> None:
    home = Home(path=tmp_path / "home", store=f"sqlite://{tmp_path}/other.db")
    (finding,) = doctor.examine_any_store(home)
    assert (finding.name, finding.verdict) == ("store", Verdict.OK)
    assert (tmp_path / "other.db").exists()
    (finding,) = doctor.examine_any_store(Home(path=tmp_path / "home", store="etcd://127.0.0.1:1"))
    assert (finding.name, finding.verdict) == ("store", Verdict.FAIL)
    assert "127.0.0.1:1: connection refused" in finding.found


def test_the_flag_names_the_store_before_the_environment_does(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(doctor, "examine_machine", lambda home: seen.append(home.store_url) or FINDINGS[:1])
    monkeypatch.setenv("ELASTANE_STORE", "etcd://from-environment")
    world.elastane("doctor")
    world.elastane("doctor", "--store", "etcd://from-flag")
    assert seen == ["etcd://from-environment", "etcd://from-flag"]


def test_a_damaged_store_fails(world: World) -> None:
    world.home.path.mkdir()
    (world.home.path / "store.db").write_bytes(b"no database" * 1000)
    assert examine.examine_store(world.home).verdict is Verdict.FAIL


def test_a_wrong_date_is_pointed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert examine.examine_clock().verdict is Verdict.OK
    assert examine.examine_clock(0.0).verdict is Verdict.WARN
    strange = SimpleNamespace(monotonic=True, implementation="mach_absolute_time()", resolution=1e-9)
    monkeypatch.setattr(time, "get_clock_info", lambda _name: strange)
    assert examine.examine_clock().verdict is Verdict.FAIL


def test_low_limits_are_pointed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (256, 4096))
    assert judge(examine.examine_limits()) == ("limits", Verdict.WARN, "ulimit -n 4096")
    monkeypatch.setattr(
        resource, "getrlimit", lambda _which: (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    )
    assert examine.examine_limits().found == "unlimited open files, unlimited processes"


def test_little_shared_memory_is_pointed_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert examine.examine_shared_memory(tmp_path / "none").verdict is Verdict.WARN
    monkeypatch.setattr(examine.shutil, "disk_usage", lambda _path: Usage(9, 0, 1_000_000))
    assert examine.examine_shared_memory(tmp_path).found == f"1 MB free in {tmp_path}"
    monkeypatch.setattr(examine.shutil, "disk_usage", lambda _path: Usage(9, 0, 1_000_000_000))
    assert examine.examine_shared_memory(tmp_path).verdict is Verdict.OK


def test_little_memory_is_pointed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = SimpleNamespace(available=100_000_000, total=8_000_000_000)
    monkeypatch.setattr(examine.psutil, "virtual_memory", lambda: memory)
    assert examine.examine_memory().found == "0.1 of 8.0 GB free"
    assert examine.examine_memory().verdict is Verdict.WARN


FINDINGS = (
    Finding(name="python", verdict=Verdict.OK, found="3.12"),
    Finding(name="limits", verdict=Verdict.WARN, found="256 open files", mend="ulimit -n 4096"),
    Finding(name="store", verdict=Verdict.FAIL, found="[damaged]", mend="move it aside"),
)


def test_findings_are_shown_with_the_way_to_mend_them(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "examine_machine", lambda _home: FINDINGS)
    result = world.elastane("doctor")
    assert result.code == 1
    assert [line.rstrip() for line in result.out.splitlines()] == [
        "ok    python  3.12",
        "warn  limits  256 open files",
        "              -> ulimit -n 4096",
        "fail  store   [damaged]",
        "              -> move it aside",
        "1 ok, 1 to look at, 1 to mend",
    ]


def test_only_failures_make_the_doctor_fail(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "examine_machine", lambda _home: FINDINGS[:2])
    result = world.elastane("doctor", "--json")
    assert (result.code, result.json) == (
        0,
        {
            "ok": True,
            "findings": [
                {"name": "python", "verdict": "ok", "found": "3.12", "mend": ""},
                {"name": "limits", "verdict": "warn", "found": "256 open files", "mend": "ulimit -n 4096"},
            ],
        },
    )


def test_the_whole_machine_is_examined(tmp_path: Path) -> None:
    names = [finding.name for finding in doctor.examine_machine(Home(path=tmp_path))]
    assert names == [
        "python",
        "torch",
        "communication",
        "devices",
        "threads",
        "memory",
        "loopback",
        "memory reads",
        "host name",
        "home",
        "file system",
        "store",
        "clock",
        "limits",
        "shared memory",
    ]
