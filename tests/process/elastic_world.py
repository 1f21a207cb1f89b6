"""Run a whole elastic job in real processes, and the same script alone, to compare every bit."""

import os
import random
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec
from agent_world import DEADLINE_S, World, wait_for

from elastane.agent.settings import AgentSettings, WorkerSettings
from elastane.model.records import CheckpointPlan, JobPhase, JobStatus, Spec
from elastane.observe.events import Event
from elastane.observe.metrics import read_metrics

SCRIPT = Path(__file__).parent / "training_script.py"
REAL_ENTRY = {"entry": "elastane.worker.bootstrap:main", "preload": ("elastane.worker.job",)}


@dataclass(frozen=True)
class Outcome:
    """What a run must not change: final state, loss curve, and the joined evaluation."""

    digest: str
    accuracy: str
    curve: tuple[tuple[int, int, int, tuple[tuple[str, float], ...]], ...]
    """(step, epoch, samples, logged values) of every step."""


def _curve(directory: Path) -> tuple[tuple[int, int, int, tuple[tuple[str, float], ...]], ...]:
    records = read_metrics(directory)
    return tuple((r.step, r.epoch, r.samples, tuple(sorted(r.values.items()))) for r in records)


def _printed(text: str, name: str) -> str:
    found = re.findall(rf"^{name} (\S+)$", text, re.MULTILINE)
    assert len(found) == 1, f"{name} was printed {len(found)} times in:\n{text}"
    return found[0]


def run_alone(folder: Path, *arguments: str) -> Outcome:
    """Run the script as `python training_script.py`: all virtual workers in one process."""
    return run_script_alone(SCRIPT, folder, *arguments)


def run_script_alone(script: Path, folder: Path, *arguments: str) -> Outcome:
    """Run a script in one process; return what it printed and its loss curve."""
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        env={**os.environ, "ELASTANE_METRICS": str(folder), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return printed_outcome(done.stdout, folder)


def printed_outcome(text: str, directory: Path) -> Outcome:
    """Return what a script has printed of its outcome, and the loss curve that was written down."""
    return Outcome(_printed(text, "digest"), _printed(text, "accuracy"), _curve(directory))


def begin_job(
    home: Path,
    *arguments: str,
    workers: int = 1,
    stragglers: str = "off",
    autoscale: str = "",
    checkpoints: CheckpointPlan | None = None,
    **spec: object,
) -> World:
    """Start the script as an elastic job with an agent in a thread of this process."""
    home.mkdir(parents=True, exist_ok=True)
    return World.begin(
        home,
        SCRIPT.read_text(),
        Spec(wanted=workers, **spec),
        AgentSettings(
            workers=WorkerSettings(
                stragglers=stragglers, autoscale=autoscale, checkpoints=checkpoints or CheckpointPlan()
            )
        ),
        arguments=arguments,
        slots=8,
        **REAL_ENTRY,
    )


def end_job(world: World, patience: float = 1.0) -> Outcome:
    """Wait for the end and return what came of the job; fail if it did not finish."""
    status = world.end(patience)
    assert isinstance(status, JobStatus), status
    logs = "".join(p.read_text() for p in sorted((Path(world.info.directory) / "logs").glob("w*.log")))
    assert status.phase is JobPhase.FINISHED, (status, logs)
    return printed_outcome(logs, Path(world.info.directory))


def switches(world: World) -> list[Event]:
    """Return the events of all generations entered after the first."""
    return [e for e in world.events("switched") if e.fields["generation"] > 1]


def last_step(world: World) -> int:
    """Return the number of the newest step that is written down; -1 if there is none."""
    records = read_metrics(Path(world.info.directory))
    return records[-1].step if records else -1


def wait_for_step(world: World, step: int) -> None:
    """Wait until the job has committed `step` steps."""
    wait_for(f"step {step}", lambda: last_step(world) >= step - 1)


def random_plan(seed: int, changes: int, most: int) -> list[int]:
    """Return numbers of workers to ask for, beginning from 1, each unlike the one before."""
    generator = random.Random(seed)
    plan = [1]
    for _ in range(changes):
        plan.append(generator.choice([n for n in range(1, most + 1) if n != plan[-1]]))
    return plan[1:]


def as_flag(value: object) -> str:
    """Return a value as the script's JSON flags take it."""
    return msgspec.json.encode(value).decode()
