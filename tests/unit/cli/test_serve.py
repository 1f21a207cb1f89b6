"""What surrounds an agent in the foreground: devices, the thread that shows its job, a closed terminal."""

import signal
import threading
from typing import Any

import pytest
from cli_world import World

from elastane.cli import serve
from elastane.cli.serve import Launch, ViewThread, find_devices
from elastane.model.records import JobKeys, JobPhase, Spec
from elastane.observe.snapshot import JobSnapshot


def test_the_processor_is_shared_out_where_there_is_no_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "count_cuda_devices", lambda _environment: 0)
    monkeypatch.setattr(serve.os, "sched_getaffinity", lambda _pid: {0, 1})
    assert find_devices(Launch(virtual_workers=3), wanted=2) == ("cpu:0", "cpu:1", "cpu:2")
    assert len(find_devices(Launch(), wanted=100)) == 100


def test_accelerators_are_used_where_there_are_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "count_cuda_devices", lambda _environment: 2)
    assert find_devices(Launch(), wanted=1) == ("cuda:0", "cuda:1")


class RecordingView:
    """Keeps what it is told, and says when it was shown something."""

    def __init__(self, error: OSError | None = None) -> None:
        self.phases: list[JobPhase] = []
        self.said: list[str] = []
        self.closed = 0
        self.shown = threading.Event()
        self._error = error

    def show_output(self, worker: str, line: str) -> None:
        raise AssertionError(f"{worker} printed {line}: these jobs have no workers")

    def update(self, snapshot: JobSnapshot, now_s: float) -> None:
        del now_s
        self.phases.append(snapshot.phase)
        self.shown.set()
        if self._error is not None:
            raise self._error

    def say(self, text: str) -> None:
        self.said.append(text)

    def close(self) -> None:
        self.closed += 1


def test_a_job_is_shown_until_its_end_and_that_too(world: World) -> None:
    info = world.train()
    world.put((JobKeys(info.job).spec, Spec(wanted=2, stop=True)))
    view = RecordingView()
    thread = ViewThread(world.home, info, view)
    thread.start()
    assert view.shown.wait(30)
    world.end(info, JobPhase.STOPPED)
    thread.finish()
    assert (view.phases[0], view.phases[-1], view.closed) == (JobPhase.TRAINING, JobPhase.STOPPED, 1)
    assert (view.said[0].startswith("stopping and saving"), view.said[-1]) == (True, "")


def test_a_terminal_that_is_gone_ends_the_view_and_not_the_job(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    info = world.train()
    view = RecordingView(BrokenPipeError(32, "Broken pipe"))
    thread = ViewThread(world.home, info, view)
    thread.start()
    thread.join(30)
    thread.finish()
    assert (len(view.phases), view.closed) == (1, 1)
    assert "the job is no longer shown: [Errno 32] Broken pipe" in caplog.text


@pytest.mark.parametrize(("ignored", "stops"), [(False, 1), (True, 0)])
def test_a_closed_terminal_asks_for_a_stop_unless_that_is_ignored(ignored: bool, stops: int) -> None:
    class Agent:
        requests = 0

        def request_stop(self) -> None:
            self.requests += 1

    agent: Any = Agent()
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        with serve._hang_up_stops(agent):
            signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is (signal.SIG_IGN if ignored else signal.SIG_DFL)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert agent.requests == stops
