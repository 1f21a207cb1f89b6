"""What becomes of a worker whose script ends, fails, exits or is told to leave; without a job around it."""

import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elastane.core.gate import StepGate
from elastane.model.errors import ConfigError, StoreUnreachableError
from elastane.model.ids import DeviceId, JobId, NodeId, WorkerId
from elastane.model.records import JobPhase
from elastane.model.topology import Mode, Topology
from elastane.worker import bootstrap
from elastane.worker.context import WorkerContext
from elastane.worker.standing import Left

ME = WorkerId("w1")
CURRENT = Topology(generation=1, mode=Mode.START, members=(), switch_step=0)


@dataclass
class FakeControl:
    """A control that writes down what is told to it."""

    context: WorkerContext
    gate: StepGate = field(default_factory=StepGate)
    current: Topology | None = None
    leaving: bool = False
    first: bool = True
    error: Exception | None = None
    ended: list[tuple[JobPhase, str]] = field(default_factory=list)
    logged: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    posted: list[Callable[..., object]] = field(default_factory=list)

    @property
    def standing(self) -> Any:
        return SimpleNamespace(gate=self.gate, leaving=self.leaving)

    @property
    def view(self) -> Any:
        return SimpleNamespace(current=self.current)

    @property
    def events(self) -> Any:
        return SimpleNamespace(append=lambda kind, **fields: self.logged.append((kind, fields)))

    def end_job(self, phase: JobPhase, message: str) -> bool:
        if self.error is not None:
            raise self.error
        self.ended.append((phase, message))
        return self.first

    def post(self, work: Callable[..., object]) -> None:
        self.posted.append(work)


@pytest.fixture
def control(tmp_path: Path) -> FakeControl:
    context = WorkerContext(
        job=JobId("j"),
        worker=ME,
        node=NodeId("n"),
        device=DeviceId("cpu:0"),
        store_url="memory://x",
        directory=str(tmp_path),
        script=str(tmp_path / "train.py"),
        arguments=("--lr", "0.1"),
    )
    return FakeControl(context)


def run(control: FakeControl, source: str) -> int:
    Path(control.context.script).write_text(source)
    return bootstrap._run_script(control.context, control)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put back what belongs to the process: a worker runs one script in its life."""
    monkeypatch.setattr("sys.argv", ["test"])
    monkeypatch.setattr("sys.path", list(__import__("sys").path))


def test_a_script_that_returns_ends_the_job_if_its_worker_is_a_part_of_it(control: FakeControl) -> None:
    control.gate.committed = 7
    assert run(control, "import sys\nassert sys.argv[1:] == ['--lr', '0.1']\n") == 0
    assert control.ended == [(JobPhase.FINISHED, "the script ended after 7 steps")]
    assert control.logged == [("finished", {"worker": ME, "step": 7})]


def test_the_script_of_a_newcomer_that_never_trained_ends_nothing(control: FakeControl) -> None:
    control.current = CURRENT
    assert run(control, "x = 1\n") == 0
    assert (control.ended, control.logged) == ([], [])


@pytest.mark.parametrize(
    ("source", "code", "reason"),
    [
        ("raise ValueError('no')", 1, "ValueError: no"),
        ("import sys; sys.exit(3)", 3, "the script called sys.exit(3)"),
        ("import sys; sys.exit('bad data')", 1, "the script called sys.exit('bad data')"),
        ("raise KeyboardInterrupt", 1, "KeyboardInterrupt: "),
    ],
)
def test_a_script_that_fails_ends_the_job_with_its_reason(
    control: FakeControl, source: str, code: int, reason: str
) -> None:
    assert run(control, source) == code
    assert control.ended == [(JobPhase.FAILED, reason)]
    ((kind, fields),) = control.logged
    traceback = fields.pop("traceback")
    assert (kind, fields) == (
        "script_failed",
        {"worker": ME, "reason": reason, "first": True, "ends_job": True},
    )
    assert ("train.py" in traceback) == source.startswith("raise")


def test_an_error_of_ours_is_told_by_its_message_alone(control: FakeControl) -> None:
    assert run(control, "from elastane.model.errors import ConfigError\nraise ConfigError('take less')") == 1
    assert control.ended == [(JobPhase.FAILED, "take less")]
    assert bootstrap._one_line(ConfigError("take less")) == "take less"


@pytest.mark.parametrize("source", ["import sys; sys.exit()", "import sys; sys.exit(0)"])
def test_a_script_that_exits_without_a_fault_fails_nothing(control: FakeControl, source: str) -> None:
    assert run(control, source) == 0
    assert (control.ended, control.logged) == ([], [])


@pytest.mark.parametrize(("joins", "leaving"), [(True, False), (False, True)])
def test_the_failure_of_a_newcomer_or_a_leaver_costs_the_job_nothing(
    control: FakeControl, joins: bool, leaving: bool
) -> None:
    control.current, control.leaving = CURRENT, leaving
    control.gate.generation = 0 if joins else 1
    assert run(control, "raise ValueError('no')") == 1
    assert control.ended == []
    assert (control.logged[0][1]["first"], control.logged[0][1]["ends_job"]) == (False, False)


def test_a_failure_that_the_store_does_not_take_is_told_in_the_log_and_the_events(
    control: FakeControl, capsys: pytest.CaptureFixture[str]
) -> None:
    control.error = StoreUnreachableError("the store is away")
    assert run(control, "raise ValueError('no')") == 1
    assert "the failure could not be reported: the store is away" in capsys.readouterr().err
    assert control.logged[0][1]["first"] is False


def test_a_worker_that_is_sent_away_leaves_with_the_code_of_its_order(control: FakeControl) -> None:
    source = "from elastane.worker.standing import Left\nraise Left('fenced', 75)"
    assert run(control, source) == 75
    assert (control.ended, control.logged) == ([], [])


def test_a_signal_before_a_worker_takes_part_ends_it_and_later_asks_for_its_leave(
    control: FakeControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "_control", control)
    with pytest.raises(Left, match="0") as left:
        bootstrap._leave_on_signal(signal.SIGTERM, None)
    assert left.value.reason == "SIGTERM before it took part"
    control.gate.generation = 1
    bootstrap._leave_on_signal(signal.SIGUSR1, None)
    assert control.logged == [("leave_requested", {"worker": ME, "reason": "SIGUSR1"})]
    assert len(control.posted) == 1
    monkeypatch.setattr(bootstrap, "_control", None)
    bootstrap._leave_on_signal(signal.SIGTERM, None)  # nobody to tell yet
