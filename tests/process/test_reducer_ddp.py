"""Two workers with one virtual worker each train the bits of stock DDP on two ranks."""

import subprocess
import sys
from pathlib import Path

import pytest

ENTRY = Path(__file__).with_name("reducer_entry.py")


@pytest.mark.process
def test_two_workers_give_the_bits_of_stock_ddp_with_either_transport(tmp_path: Path) -> None:
    workers = [
        subprocess.Popen(
            [sys.executable, str(ENTRY), str(own), str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        for own in range(2)
    ]
    outputs = [worker.communicate(timeout=120)[0].split() for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0]
    for ddp, by_message, by_buckets in outputs:
        assert by_message == ddp
        assert by_buckets == ddp
