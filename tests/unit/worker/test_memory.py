"""The high-water marks of a process: real ones, and kernels that do not tell."""

from pathlib import Path

import torch

from elastane.worker.memory import MemoryMeter

CPU = torch.device("cpu")
MEGABYTE = 1 << 20


def test_the_peak_of_memory_counts_from_the_last_restart() -> None:
    meter = MemoryMeter(CPU)
    held = torch.ones(64 * MEGABYTE, dtype=torch.uint8)
    with_held = meter.read_rss()
    del held
    meter.restart()
    assert 0 < meter.read_rss() < with_held - 32 * MEGABYTE
    again = torch.ones(64 * MEGABYTE, dtype=torch.uint8)
    del again
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
