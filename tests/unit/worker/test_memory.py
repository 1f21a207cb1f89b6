"""The high-water marks of a process: real ones, and kernels that do not tell."""

import mmap
from pathlib import Path

import pytest
import torch

from elastane.worker.memory import MemoryMeter
from elastane.worker.network import open_device

CPU = torch.device("cpu")
MEGABYTE = 1 << 20


def hold(size_bytes: int) -> None:
    """Have so much memory for a moment; no allocator keeps it."""
    with mmap.mmap(-1, size_bytes) as held:
        held.write(b"x" * size_bytes)


def test_the_peak_of_memory_counts_from_the_last_restart() -> None:
    meter = MemoryMeter(CPU)
    meter.restart()  # others have run in this process
    hold(64 * MEGABYTE)
    with_held = meter.read_rss()
    meter.restart()
    assert 0 < meter.read_rss() < with_held - 32 * MEGABYTE
    hold(64 * MEGABYTE)
    assert meter.read_rss() > with_held - 32 * MEGABYTE


def test_a_processor_has_no_memory_of_its_own() -> None:
    meter = MemoryMeter(CPU)
    assert (meter.read_device(), meter.name_device()) == (None, "cpu")


def test_a_kernel_that_keeps_the_mark_or_does_not_tell_it_is_borne(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text("Name:\tpython\nVmPeak:\t  900 kB\nVmHWM:\t     512 kB\nVmRSS:\t 300 kB\n")
    meter = MemoryMeter(CPU, status, tmp_path / "missing" / "clear_refs")
    meter.restart()
    assert meter.read_rss() == 512 * 1024
    status.write_text("Name:\tpython\n")
    assert meter.read_rss() == 0
    status.unlink()
    assert meter.read_rss() == 0


def test_on_an_accelerator_torch_tells_what_it_has_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    device, calls = torch.device("cuda:1"), []
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", calls.append)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda on: 512 if on == device else 0)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda on: f"accelerator {on.index}")
    meter = MemoryMeter(device)
    meter.restart()
    assert (calls, meter.read_device(), meter.name_device()) == ([device], 512, "accelerator 1")


def test_the_context_of_an_accelerator_is_made_when_it_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "synchronize", opened.append)
    for device in (CPU, torch.device("cuda:1")):
        open_device(device)
    assert opened == [torch.device("cuda:1")]
