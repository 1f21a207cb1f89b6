"""The command line end to end: real jobs, real signals, real exit codes."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from elastane.observe.metrics import read_metrics

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

SCRIPT = """
import pathlib, sys, time, torch, elastane
from torch.utils.data import TensorDataset

job = elastane.Job(virtual_workers=4)
generator = torch.Generator().manual_seed(0)
data = TensorDataset(torch.randn(256, 4, generator=generator), torch.randn(256, 1, generator=generator))
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = job.loader(data, batch_size=4, shuffle=True)
model, optimizer = job.prepare(model, optimizer)
for epoch in job.epochs(int(sys.argv[1])):
    for x, y in loader:
        time.sleep(float(pathlib.Path(__file__).with_name("pace").read_text()))
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        job.log(loss=loss)
        if "--fail" in sys.argv and job.step == 5:
            raise ValueError("no more data")
print("digest", job.digest())
"""
STEPS_PER_EPOCH = 16
EPOCHS = 40


class Run:
    """An `elastane run` or `resume` in the background, whose JSON lines are read as they come."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.seen: list[dict[str, Any]] = []

    def wait_for(self, kind: str) -> dict[str, Any]:
        """Read until the next event of a kind; the deadline is that of the test."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event: dict[str, Any] = json.loads(line)
            self.seen.append(event)
            if event["kind"] == kind:
                return event
        raise AssertionError(f"ended without {kind}: {self.seen}")

    def wait(self) -> int:
        """Read the rest and return the exit code."""
        self.wait_for("outcome")
        return self.process.wait()


class Shop:
    """A home with a script in it, and the command line."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.script = folder / "train.py"
        self.script.write_text(SCRIPT)
        self.set_pace(0.05)
        self.environment = {**os.environ, "ELASTANE_HOME": str(self.home), "COLUMNS": "120"}
        self.running: list[subprocess.Popen[str]] = []

    def set_pace(self, step_s: float) -> None:
        """Set how long a virtual worker's part of a step takes: jobs wait for tests, not they for jobs."""
        (self.script.parent / "draft").write_text(str(step_s))
        (self.script.parent / "draft").rename(self.script.parent / "pace")

    def start(self, *arguments: str) -> Run:
        process = subprocess.Popen(
            self.command(*arguments),
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.running.append(process)
        return Run(process)

    def wait_for_steps(self, run: Run) -> None:
        """Return when the only job of the home has committed steps; the deadline is that of the test."""
        run.wait_for("joined")
        (folder,) = (self.home / "jobs").iterdir()
        while not read_metrics(folder):
            time.sleep(0.02)

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )

    def ask(self, *arguments: str) -> Any:
        result = self.call(*arguments, "--json")
        assert result.returncode == 0, result.stdout + result.stderr
        return json.loads(result.stdout)

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "elastane.cli.main", *arguments]

    def end_all(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.send_signal(signal.SIGUSR1)
            process.communicate(timeout=30)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path)
    yield shop
    shop.end_all()


def find_processes_of(home: Path) -> list[int]:
    """Workers and their parents inherit the environment that names the home."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get("ELASTANE_HOME") == str(home):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def test_a_job_is_scaled_migrated_and_evicted_while_it_trains_and_then_finishes(shop: Shop) -> None:
    run = shop.start("run", str(shop.script), "--name", "job", "--workers", "1", "--json", "--", str(EPOCHS))
    run.wait_for("joined")
    grown = shop.ask("scale", "job", "2", "--wait")
    assert (grown["after"]["wanted"], grown["done"]) == (2, True)
    (change,) = grown["changes"]
    assert (change["workers"], change["mode"], len(change["joined"])) == (2, "planned", 1)
    assert change["stop_s"] > 0
    assert change["joined"][0]["latency_s"] > 0
    first, second = (worker["worker"] for worker in shop.ask("show", "job")["workers"])
    moved = shop.ask("migrate", "job", "--from", first, "--to", "cpu:9", "--wait")
    assert moved["changes"][0]["left"] == [first]
    evicted = shop.ask("evict", "job", second, "--wait")
    assert (evicted["after"]["wanted"], evicted["changes"][0]["left"]) == (1, [second])
    (left,) = shop.ask("show", "job")["workers"]
    assert (left["vranks"], left["device"]) == ([0, 4], "cpu:9")
    shop.ask("scale", "job", "+1", "--wait")
    assert [worker["vranks"] for worker in shop.ask("show", "job")["workers"]] == [[0, 2], [2, 4]]
    shrunk = shop.ask("scale", "job", "-1", "--wait")
    assert (shrunk["after"]["wanted"], len(shrunk["changes"][0]["left"])) == (1, 1)
    shop.set_pace(0)
    assert run.wait() == 0
    outcome = run.seen[-1]
    assert (outcome["phase"], outcome["step"], outcome["exit_code"]) == (
        "finished",
        EPOCHS * STEPS_PER_EPOCH,
        0,
    )
    (listed,) = shop.ask("ps")["jobs"]
    assert (listed["phase"], listed["step"], listed["workers"]) == ("finished", EPOCHS * STEPS_PER_EPOCH, [])
    metrics = read_metrics(Path(listed["directory"]))
    assert [record.step for record in metrics] == list(range(EPOCHS * STEPS_PER_EPOCH))
    assert "digest" in shop.call("logs", "job").stdout
    assert shop.call("scale", "job", "2").returncode == 4
    assert find_processes_of(shop.home) == []


def test_a_stopped_job_is_resumed_under_its_id_and_misses_no_step(shop: Shop) -> None:
    run = shop.start("run", str(shop.script), "--workers", "2", "--json", "--", str(EPOCHS))
    shop.wait_for_steps(run)
    refused = shop.call("resume", "train")
    assert (refused.returncode, "stop it first" in refused.stderr) == (4, True)
    stopped = shop.ask("stop", "train")
    assert (stopped["done"], stopped["phase"]) == (True, "stopped")
    assert run.wait() == 10
    outcome = run.seen[-1]
    place = shop.home / "jobs" / outcome["job"] / "checkpoints"
    assert outcome["saved"] == stopped["saved"]
    assert Path(stopped["saved"]).parent == place
    shop.set_pace(0)
    again = shop.start("resume", "train", "--workers", "1", "--json")
    assert again.wait() == 0
    assert (again.seen[-1]["job"], again.seen[-1]["step"]) == (outcome["job"], EPOCHS * STEPS_PER_EPOCH)
    metrics = read_metrics(shop.home / "jobs" / outcome["job"])
    assert [record.step for record in metrics] == list(range(EPOCHS * STEPS_PER_EPOCH))
    finished = shop.call("resume", "train")
    assert (finished.returncode, "finished" in finished.stderr) == (4, True)
    assert find_processes_of(shop.home) == []


def test_one_interrupt_saves_the_state_and_says_how_to_go_on(shop: Shop) -> None:
    process = subprocess.Popen(
        shop.command("run", str(shop.script), "--plain", "--", str(100 * EPOCHS)),
        env=shop.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    shop.running.append(process)
    assert process.stdout is not None
    while "joined" not in process.stdout.readline():
        continue
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 10, out + err
    assert "the state is saved; go on with: elastane resume " in out
    assert "Ctrl-C once more ends the job at once" in err
    assert "Traceback" not in out + err
    assert find_processes_of(shop.home) == []


def test_two_interrupts_end_the_job_at_once(shop: Shop) -> None:
    run = shop.start("run", str(shop.script), "--workers", "2", "--json", "--", str(100 * EPOCHS))
    shop.wait_for_steps(run)
    run.process.send_signal(signal.SIGTERM)
    run.process.send_signal(signal.SIGINT)
    assert run.wait() in (10, 130)  # a graceful stop may be faster than the second signal
    assert run.seen[-1]["phase"] == "stopped"
    assert find_processes_of(shop.home) == []


def test_stop_now_ends_a_job_of_another_terminal(shop: Shop) -> None:
    run = shop.start("run", str(shop.script), "--json", "--", str(100 * EPOCHS))
    shop.wait_for_steps(run)
    result = shop.ask("stop", "train", "--now")
    assert (result["done"], result["phase"]) == (True, "stopped")
    assert run.wait() in (10, 130)
    assert find_processes_of(shop.home) == []


def test_a_script_that_raises_ends_the_job_with_its_first_traceback(shop: Shop) -> None:
    result = shop.call("run", str(shop.script), "--workers", "2", "--plain", "--", str(EPOCHS), "--fail")
    assert result.returncode == 1, result.stdout + result.stderr
    assert "first error, in worker w" in result.stderr
    assert f'last):\n  File "{shop.script}", line ' in result.stderr
    assert "failed: ValueError: no more data\nsee also: elastane logs " in result.stderr
    assert result.stderr.count("Traceback") == 1
    assert find_processes_of(shop.home) == []


def test_workers_whose_agent_was_killed_can_still_be_stopped_and_resumed(shop: Shop) -> None:
    run = shop.start("run", str(shop.script), "--json", "--", str(EPOCHS))
    shop.wait_for_steps(run)
    run.process.kill()
    run.process.wait()
    stopped = shop.ask("stop", "train")
    assert (stopped["done"], stopped["phase"], stopped["saved"] is not None) == (True, "stopped", True)
    shop.set_pace(0)
    assert shop.start("resume", "train", "--json").wait() == 0
    assert find_processes_of(shop.home) == []


def test_the_live_view_is_drawn_on_a_terminal(shop: Shop) -> None:
    shop.set_pace(0.005)
    master, slave = pty.openpty()
    process = subprocess.Popen(
        shop.command("run", str(shop.script), "--workers", "2", "--", "6"),
        env={**shop.environment, "TERM": "xterm", "LINES": "40"},
        stdout=slave,
        stderr=slave,
        text=True,
    )
    shop.running.append(process)
    os.close(slave)
    drawn = read_all(master).decode()
    assert process.wait(timeout=60) == 0, drawn
    for part in ("VIRTUAL WORKERS", "■■··", "steps/s", "loss ", "w1 joined at step 0", "finished after "):
        assert part in drawn, part
    assert "\x1b[" in drawn
    assert find_processes_of(shop.home) == []


def read_all(master: int) -> bytes:
    """Read a pseudo-terminal until its other side is closed (Linux then answers EIO)."""
    data = b""
    while select.select([master], [], [], 120)[0]:
        try:
            chunk = os.read(master, 1 << 16)
        except OSError:
            break
        if not chunk:
            break
        data += chunk
    os.close(master)
    return data
