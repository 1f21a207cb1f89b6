"""The clocks that leases are counted in."""

import subprocess
import sys
from pathlib import Path

import pytest

from elastane.model.errors import StoreError
from elastane.store import clock as clock_module
from elastane.store.clock import ManualClock, MonotonicClock, read_boot_id


def test_all_processes_of_a_machine_share_the_monotonic_clock_and_its_origin() -> None:
    script = (
        "from elastane.store.clock import MonotonicClock; clock = MonotonicClock();"
        "print(clock.now_s(), clock.origin_id)"
    )
    ours = MonotonicClock()
    before_s = ours.now_s()
    told = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    now_s, origin_id = told.split()
    assert before_s < float(now_s) < ours.now_s()
    assert origin_id == ours.origin_id


def test_the_monotonic_clock_sleeps_for_real() -> None:
    clock = MonotonicClock()
    before_s = clock.now_s()
    clock.sleep(0.001)
    assert clock.now_s() - before_s >= 0.001


def test_a_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock(5.0, origin_id="boot 1")
    times_s = [clock.now_s(), clock.now_s()]
    clock.advance(1.5)
    times_s.append(clock.now_s())
    clock.sleep(0.5)
    times_s.append(clock.now_s())
    assert (times_s, clock.origin_id) == ([5.0, 5.0, 6.5, 7.0], "boot 1")


def test_a_machine_that_tells_no_boot_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(clock_module, "LINUX_BOOT_ID", tmp_path / "boot_id")
    with pytest.raises(StoreError, match="cannot tell which boot of this machine it is"):
        read_boot_id("linux")


def test_on_a_mac_sysctl_tells_the_boot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sysctl = tmp_path / "sysctl"
    sysctl.write_text('#!/bin/sh\n[ "$*" = "-n kern.bootsessionuuid" ] && echo 6F1C-BOOT\n')
    sysctl.chmod(0o700)
    monkeypatch.setattr(clock_module, "DARWIN_SYSCTL", sysctl)
    assert read_boot_id("darwin") == "6F1C-BOOT"
    sysctl.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(StoreError, match="cannot tell which boot"):
        read_boot_id("darwin")
