"""The demonstration end to end: it proves what it says, and an interrupt leaves nothing behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import psutil
import pytest

from elastane.observe.events import read_events

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
DEADLINE_S = 300.0


def start_demo(out: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        # A relative path, as `make demo` gives.
        [sys.executable, "-m", "demo.run", "--quick", "--out", os.path.relpath(out, ROOT)],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "100"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_a_job_that_was_resized_killed_and_moved_equals_the_undisturbed_one(tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = start_demo(out)
    text, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, text
    assert "EQUAL: state and loss curve, every bit of all 720 steps" in text
    result = msgspec.json.decode((out / "result.json").read_bytes())
    assert result["differences"] == []
    assert result["digests"][0] == result["digests"][1]
    whats = [cost["what"] for cost in result["costs"]]
    assert whats == ["scale out", "SIGKILL to next step", "replacement joins", "migrate", "scale in"]
    assert (out / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "elastic" / "store.db").exists()


def test_an_interrupt_ends_every_process_and_clears_the_folder(tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = start_demo(out)
    wait_for_worker(out, process)
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) >= 3  # the command, its preloaded parent, a worker
    process.send_signal(signal.SIGINT)
    text, _ = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, text.splitlines()[-1]) == (130, "interrupted; everything has been ended")
    _gone, alive = psutil.wait_procs(family, timeout=DEADLINE_S)
    assert alive == []
    assert [path.name for path in out.iterdir()] == [".elastane-demo"]


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "elastic").mkdir()
    (tmp_path / "elastic" / "mine.txt").touch()
    process = start_demo(tmp_path)
    text, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1
    assert "holds something that no demonstration made" in text
    assert (tmp_path / "elastic" / "mine.txt").exists()


def wait_for_worker(out: Path, process: subprocess.Popen[str]) -> None:
    """Return when the first worker takes part in the job."""
    deadline_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline_s:
        assert process.poll() is None, process.communicate()[0]
        for folder in out.glob("elastic/jobs/*"):
            if any(event.kind == "joined" for event in read_events(folder)):
                return
        time.sleep(0.05)
    raise AssertionError("no worker took part")
