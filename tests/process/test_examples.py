"""Each example runs alone and as an elastic job, and comes to the same state."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

EXAMPLES = Path(__file__).parents[2] / "examples"
SHORT = {
    "digits.py": ("--epochs", "2"),
    "language_model.py": ("--max-steps", "6", "--virtual-workers", "3"),
    "sharded_text.py": ("--epochs", "1"),
    "mlp25m.py": ("--steps", "2", "--batch-size", "8"),
}
"""Arguments with which each example is done in seconds."""


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


@pytest.mark.parametrize("name", SHORT)
def test_an_example_gives_the_same_state_alone_and_with_two_workers(name: str, tmp_path: Path) -> None:
    script = str(EXAMPLES / name)
    alone = find_results(run(script, *SHORT[name]))
    assert len(alone) == 2
    command = ("-m", "elastane.cli.main", "run", script, "--home", str(tmp_path), "--workers", "2", "--plain")
    run(*command, "--", *SHORT[name])
    logs = sorted(tmp_path.glob("jobs/*/logs/w*.log"))
    assert find_results("".join(path.read_text() for path in logs)) == alone
