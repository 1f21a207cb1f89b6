"""The example of a growing batch trains what its page says, alone and as an elastic job."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from elastane.observe.metrics import read_metrics

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "growing_batch.py"


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_alone_it_trains_the_batch_of_one_worker() -> None:
    out = run(str(EXAMPLE), "--epochs", "2")
    assert "epoch 1: 1 workers, 32 samples a step\n" in out
    assert "steps 94, test accuracy " in out  # 2 x 1500 / 32


@pytest.mark.parametrize(
    ("flags", "batches", "scale"),
    [((), [64, 28], 2**0.5), (("--local", "100"), [128, 92], 2.0), (("--fixed",), [128, 92], 1.0)],
)
def test_with_two_workers_the_batch_is_that_of_the_policy(
    tmp_path: Path, flags: tuple[str, ...], batches: list[int], scale: float
) -> None:
    command = ("-m", "elastane.cli.main", "run", str(EXAMPLE), "--home", str(tmp_path))
    run(*command, "--workers", "2", "--plain", "--", "--epochs", "3", *flags)
    (folder,) = tmp_path.glob("jobs/*")
    steps = read_metrics(folder)
    assert [step.samples for step in steps if step.epoch == 1] == [batches[0]] * (1500 // batches[0]) + [
        batches[1]
    ]
    assert {step.lr_scale for step in steps} == {scale}
    logs = "".join(path.read_text() for path in folder.glob("logs/w*.log"))
    assert re.search(rf"epoch 2: 2 workers, {batches[0]} samples a step", logs)
