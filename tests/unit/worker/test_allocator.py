"""Freed memory stays with the process once asked for."""

import platform
import subprocess
import sys

import pytest

SCRIPT = """
import resource
import torch
from elastane.worker.allocator import keep_freed_memory

torch.set_num_threads(1)

def faults_of_one_block() -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(10_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

default = [faults_of_one_block() for _ in range(3)]
assert keep_freed_memory()
kept = [faults_of_one_block() for _ in range(20)]
assert min(default) > 5_000, default  # 40 MB in pages of 4 KiB
assert min(kept) < 100, kept  # not the first ones: small objects must find their place first
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_a_block_that_was_freed_costs_no_page_faults_when_needed_again() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True, timeout=120)
