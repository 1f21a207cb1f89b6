"""Each example runs alone and as an elastic job, and comes to the same state."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from elastane.observe.metrics import read_metrics

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

EXAMPLES = Path(__file__).parents[2] / "examples"
SHORT = {
    "digits.py": ("--epochs", "2"),
    "language_model.py": ("--max-steps", "6", "--virtual-workers", "3"),
    "sharded_text.py": ("--epochs", "1"),
    "mlp25m.py": ("--steps", "2", "--batch-size", "8"),
    "autoscaling.py": ("--steps", "3", "--turn", "0"),
    "straggler.py": ("--steps", "3", "--turn", "0"),
}
"""Arguments with which each example is done in seconds."""

DEADLINE_S = 300.0
"""Far beyond what anything takes: only a hang meets it, on however busy a machine."""


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def find_results(text: str) -> list[str]:
    return re.findall(r"^(?:steps|digest) .*$", text, re.MULTILINE)


def test_every_example_is_among_those_that_are_run() -> None:
    scheduling = {
        path.name.removeprefix("test_") for path in (EXAMPLES.parent / "tests" / "examples").glob("test_*.py")
    }
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SHORT) | scheduling


@pytest.mark.parametrize("look", [(), ("--look",)])
def test_files_are_handed_out_to_three_workers_each_sample_once_an_epoch(
    tmp_path: Path, look: tuple[str, ...]
) -> None:
    script = str(EXAMPLES / "sharded_text.py")
    flags = ("--global-batch", "32", "--epochs", "2", *look)
    steps = [line.split(",")[0] for line in find_results(run(script, *flags)) if line.startswith("steps")]
    command = ("-m", "elastane.cli.main", "run", script, "--home", str(tmp_path), "--workers", "3", "--plain")
    run(*command, "--", *flags)
    (job,) = tmp_path.glob("jobs/*")
    logs = "".join(path.read_text() for path in sorted(job.glob("logs/w*.log")))
    assert [line.split(",")[0] for line in find_results(logs) if line.startswith("steps")] == steps
    records = read_metrics(job)
    files = sorted(Path(json.__path__[0]).glob("*.py"))
    samples = sum(max(0, (path.stat().st_size - 1) // 32) for path in files)
    assert {record.samples for record in records} == {32, samples % 32}
    assert sum(record.samples for record in records) == 2 * samples
    assert records[-1].shards == (0, 0, len(files))


@pytest.mark.parametrize("name", SHORT)
def test_an_example_gives_the_same_state_alone_and_with_two_workers(name: str, tmp_path: Path) -> None:
    script = str(EXAMPLES / name)
    alone = find_results(run(script, *SHORT[name]))
    assert len(alone) == 2
    command = ("-m", "elastane.cli.main", "run", script, "--home", str(tmp_path), "--workers", "2", "--plain")
    run(*command, "--", *SHORT[name])
    logs = sorted(tmp_path.glob("jobs/*/logs/w*.log"))
    assert find_results("".join(path.read_text() for path in logs)) == alone


def elastane(home: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a command of elastane on a home of its own."""
    name, *rest = arguments
    command = [sys.executable, "-m", "elastane.cli.main", name, "--home", str(home), *rest]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def read(process: subprocess.Popen[str]) -> str:
    text, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, text
    return text


def wait_for(what: str, look: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not look():
        assert time.monotonic() < deadline_s, f"waited in vain for {what}"
        time.sleep(0.05)


def find_events(home: Path, kind: str) -> list[dict[str, object]]:
    lines = [line for path in home.glob("jobs/*/events.jsonl") for line in path.read_text().splitlines()]
    return [event for line in lines if (event := json.loads(line))["kind"] == kind]


def test_the_autoscaling_example_keeps_a_number_of_workers_and_tells_why(tmp_path: Path) -> None:
    script = str(EXAMPLES / "autoscaling.py")
    read(elastane(tmp_path, "run", script, "--autoscale", "max=6", "--plain", "--", "--steps", "150"))
    picture = tmp_path / "search.png"
    shown = read(elastane(tmp_path, "autoscale", "autoscaling", "--plot", str(picture)))
    # Four on a quiet machine; a busy one may shift what is measured.
    assert re.search(r"^[2-6] workers are kept$", shown, re.MULTILINE), shown
    assert picture.stat().st_size > 0


def test_the_straggler_example_relieves_its_slow_worker(tmp_path: Path) -> None:
    script = str(EXAMPLES / "straggler.py")
    flags = ("--workers", "3", "--stragglers", "auto", "--plain")
    job = elastane(tmp_path, "run", script, *flags, "--", "--steps", "100000")
    try:
        wait_for("the first steps", lambda: list(tmp_path.glob("jobs/*/metrics.jsonl")))
        drill = elastane(tmp_path, "chaos", "straggler", "--slow", "1=3", "--for", "1h", "--json")
        wait_for("the slow worker", lambda: find_events(tmp_path, "slowed"))
        wait_for("relief", lambda: find_events(tmp_path, "straggler"))
        drill.send_signal(signal.SIGINT)
        text, _ = drill.communicate(timeout=DEADLINE_S)
        assert '"worker": "w2"' in text
        assert '"missing_steps": 0' in text
    finally:
        job.send_signal(signal.SIGINT)
        job.communicate(timeout=DEADLINE_S)
    assert job.returncode == 10  # stopped, its state saved
