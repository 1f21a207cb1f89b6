"""Serve a job in the foreground: an agent in the main thread, the view in another, the result at the end.

The agent handles signals (see `agent.agent`): the first asks for a graceful stop, the second ends at once.
The view only looks, with a store handle of its own; if it fails the job goes on unseen.
"""

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from elastane.agent.agent import Agent
from elastane.agent.devices import compute_cpu_slots, count_cuda_devices, name_cpu_slots, name_cuda_devices
from elastane.agent.local import LocalLauncher, LocalSettings
from elastane.agent.settings import AgentPlace, AgentSettings, WorkerSettings
from elastane.cli.home import Home
from elastane.cli.live import LineView, View, open_view
from elastane.cli.output import Output
from elastane.cli.script_output import ScriptOutput
from elastane.cli.watch import JobWatch
from elastane.model.errors import StateFileError, StoreError
from elastane.model.ids import DeviceId, NodeId
from elastane.model.records import JobInfo
from elastane.observe.snapshot import JobSnapshot
from elastane.store.open import open_store

LAUNCH_FILE = "launch.json"
TERMINAL_INTERVAL_S = 0.25
"""Time between two pictures: faster is not read, slower looks stuck."""
LINES_INTERVAL_S = 0.1

log = logging.getLogger(__name__)


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """Hold how a job is run on this machine; kept in its folder, so that a resume runs it the same way."""

    virtual_workers: int | None = None
    threads: int = 1
    """Threads per operation of each worker: it decides how sums are split, and so the bits."""
    grace_s: float = 30.0
    lease_s: float = 3.0
    cold: bool = False


def save_launch(info: JobInfo, launch: Launch) -> None:
    """Keep `launch` in the job's folder.

    Raises:
        OSError: the folder cannot be written.
    """
    path = Path(info.directory) / LAUNCH_FILE
    path.write_bytes(msgspec.json.format(msgspec.json.encode(launch)) + b"\n")
    path.chmod(0o600)


def load_launch(info: JobInfo) -> Launch:
    """Return how the job was run before.

    Raises:
        StateFileError: the file is missing or damaged.
    """
    path = Path(info.directory) / LAUNCH_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Launch)
    except (OSError, msgspec.DecodeError) as error:
        raise StateFileError(f"how job {info.job} was run cannot be read from {path}: {error}") from error


def find_devices(launch: Launch, wanted: int) -> tuple[DeviceId, ...]:
    """Return the devices of this machine: its accelerators, or else shares of its processor."""
    cuda = count_cuda_devices(os.environ)
    if cuda:
        return name_cuda_devices(cuda)
    cores = len(os.sched_getaffinity(0))
    return name_cpu_slots(compute_cpu_slots(cores, wanted, launch.virtual_workers))


def serve_job(
    home: Home, info: JobInfo, launch: Launch, *, wanted: int, resume: bool, out: Output, plain: bool
) -> JobSnapshot:
    """Run an agent for the job until it has ended, showing it meanwhile; return its end.

    Raises:
        StoreError: the store stayed out of reach; all workers have been ended.
        OSError: the job's folder cannot be written, or there can be no more processes.
    """
    place = AgentPlace(
        job=info.job,
        node=NodeId(socket.gethostname()),
        devices=find_devices(launch, wanted),
        store_url=home.store_url,
    )
    workers = WorkerSettings(
        virtual_workers=launch.virtual_workers,
        resume=resume,
        lease_ttl_s=launch.lease_s,
        intra_op_threads=launch.threads,
    )
    launcher = LocalLauncher(
        LocalSettings(
            script=info.script,
            directory=info.directory,
            environment=os.environ,
            intra_op_threads=launch.threads,
            warm=not launch.cold,
        )
    )
    agent = Agent(place, launcher, AgentSettings(workers=workers, stop_grace_s=launch.grace_s))
    with open_store(home.store_url) as store:
        watch = JobWatch(store, info)
        earlier_events = len(watch.look().events)
        show = ViewThread(home, info, open_view(out, plain=plain, skip_events=earlier_events))
        show.start()
        try:
            with _hang_up_stops(agent):
                agent.run()
        finally:
            show.finish()
        return watch.look()


class ViewThread(threading.Thread):
    """Keep a view of a job fresh until told to finish."""

    def __init__(self, home: Home, info: JobInfo, view: View) -> None:
        """Prepare to show the job of `info` in `view`."""
        super().__init__(name="elastane-view", daemon=True)
        self._home = home
        self._info = info
        self._view = view
        self._interval_s = LINES_INTERVAL_S if isinstance(view, LineView) else TERMINAL_INTERVAL_S
        self._done = threading.Event()

    def run(self) -> None:
        """Look and show, again and again, and once more at the end."""
        try:
            with open_store(self._home.store_url) as store:
                watch = JobWatch(store, self._info)
                output = ScriptOutput(Path(self._info.directory), self._view.show_output)
                while not self._done.wait(self._interval_s):
                    output.update(self._update(watch))
                output.update(self._update(watch), last=True)
        except (StoreError, OSError) as error:
            # A closed terminal, or a store in trouble, of which the agent tells: the job goes on.
            log.warning("the job is no longer shown: %s", error)

    def _update(self, watch: JobWatch) -> JobSnapshot:
        snapshot = watch.look()
        if snapshot.stopping:
            self._view.say(
                "stopping and saving the state; Ctrl-C once more ends the job at once, without saving"
            )
        elif snapshot.phase.ended:
            self._view.say("")
        self._view.update(snapshot, time.monotonic())
        return snapshot

    def finish(self) -> None:
        """Show the job a last time and give the terminal back."""
        self._done.set()
        self.join()
        self._view.close()


@contextmanager
def _hang_up_stops(agent: Agent) -> Iterator[None]:
    """Let a closed terminal ask for a graceful stop, unless it is ignored (nohup)."""
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGHUP, lambda _number, _frame: agent.request_stop())
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
