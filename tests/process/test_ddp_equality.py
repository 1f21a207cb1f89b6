"""A job with N virtual workers is stock DDP with N ranks: bit for bit where DDP has one order of sums."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process
PEER = Path(__file__).parent / "ddp_peer.py"


def start(*arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, str(PEER), *arguments], stdout=subprocess.PIPE, text=True)


def finish(process: "subprocess.Popen[str]") -> tuple[str, list[float]]:
    output, _ = process.communicate(timeout=180)
    assert process.returncode == 0
    words = [line.split() for line in output.splitlines()]
    return words[0][1], [float(word) for word in words[1][1:]]


def run_ddp(folder: Path, ranks: int) -> tuple[str, list[float]]:
    processes = [start("ddp", str(ranks), str(folder / "store"), str(rank)) for rank in range(ranks)]
    results = [finish(process) for process in processes]
    return results[0]


def test_two_virtual_workers_equal_ddp_on_two_ranks_bit_for_bit(tmp_path: Path) -> None:
    assert finish(start("elastane", "2")) == run_ddp(tmp_path, 2)


def test_four_virtual_workers_equal_ddp_on_four_ranks_to_rounding(tmp_path: Path) -> None:
    _, ours = finish(start("elastane", "4"))
    _, theirs = run_ddp(tmp_path, 4)
    assert ours == pytest.approx(theirs, rel=1e-5)
