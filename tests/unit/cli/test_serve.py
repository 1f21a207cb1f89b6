"""What surrounds an agent in the foreground: the thread that shows its job, a closed terminal."""

import signal
import threading

import pytest
from cli_world import World

from elastane.cli import serve
from elastane.cli.options import Desk
from elastane.cli.serve import ViewThread, shown
from elastane.cli.supervisor import caught_signals
from elastane.model.errors import StoreUnreachableError
from elastane.model.records import JobKeys, JobPhase, Spec
from elastane.observe.snapshot import JobSnapshot


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


def test_a_view_that_cannot_begin_is_no_reason_not_to_serve(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: str) -> None:
        raise StoreUnreachableError("the store does not answer")

    monkeypatch.setattr(serve, "open_store", fail)
    served: list[int] = []
    with shown(world.home, world.train(), Desk().output(), plain=True):
        served.append(1)
    assert served == [1]
    assert "the job is not shown here: the store does not answer" in caplog.text


@pytest.mark.parametrize(("ignored", "stops"), [(False, 1), (True, 0)])
def test_a_closed_terminal_asks_for_a_stop_unless_that_is_ignored(ignored: bool, stops: int) -> None:
    asked: list[None] = []
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        with caught_signals(lambda: asked.append(None)):
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGHUP) is (signal.SIG_IGN if ignored else signal.SIG_DFL)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert len(asked) == stops + 1
