"""The two runs of the demonstration as processes: `elastane run SCRIPT`, and plain `python SCRIPT`.

Both have a session of their own, so that Ctrl-C reaches the demonstration alone, which then ends them.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from elastane.jobs.registry import find_job
from elastane.jobs.requests import read_picture
from elastane.model.errors import ElastaneError, JobNotFoundError
from elastane.model.records import JobInfo
from elastane.store.base import Store
from elastane.store.open import open_store
from elastane.worker.context import METRICS_VARIABLE

JOB_NAME = "demo"
START_PATIENCE_S = 120.0
"""A busy machine imports the command line within a few seconds: beyond this something is wrong."""
END_PATIENCE_S = 10.0
"""How long a job that was told twice to end may take before its processes are killed."""
LOOK_S = 0.05


class DemoError(ElastaneError):
    """Report that the demonstration could not be carried out, and where to look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """Name the script that both runs train."""

    path: Path
    arguments: tuple[str, ...]

    def show(self) -> str:
        """Return script and arguments as one would type them."""
        return " ".join([os.path.relpath(self.path), *self.arguments])


class ElasticRun:
    """Run the script under `elastane run`, in a home of its own.

    Args:
        home: folder of store and jobs; made by the command.
        script: what to train.
    """

    def __init__(self, home: Path, script: Script) -> None:
        self.home = home.resolve()  # stores are named by absolute paths
        self._output = home.with_suffix(".log")
        self._process = _spawn(
            [
                *("-m", "elastane.cli.main", "run", str(script.path), "--home", str(self.home)),
                *("--name", JOB_NAME, "--workers", "1", "--plain", "--", *script.arguments),
            ],
            self._output,
            {},
        )

    def open_store(self) -> tuple[Store, JobInfo]:
        """Wait until the job exists; return a store handle for this thread, and the job.

        Raises:
            DemoError: the command ended without making one.
        """
        deadline_s = time.monotonic() + START_PATIENCE_S
        while time.monotonic() < deadline_s and self._process.poll() is None:
            if (self.home / "store.db").exists():
                store = open_store(f"sqlite://{self.home}/store.db", create=False)
                try:
                    return store, find_job(store, JOB_NAME)
                except JobNotFoundError:
                    store.close()
            time.sleep(LOOK_S)
        raise DemoError(f"the job did not start; it said:\n{self.read_output()}")

    def read_output(self) -> str:
        """Return what the command has written."""
        return self._output.read_text(errors="replace").strip() if self._output.exists() else ""

    @property
    def running(self) -> bool:
        """Tell whether the command has not ended."""
        return self._process.poll() is None

    def wait(self) -> int:
        """Return the command's exit code once it has ended."""
        return self._process.wait()

    def end(self) -> None:
        """End the job and everything of it, at once; harmless if it has ended."""
        with _uninterrupted():
            self._end()

    def _end(self) -> None:
        workers = self._find_workers() if self._process.poll() is None else []
        for _ in range(2):  # the first signal asks for a graceful stop, the second for an end at once
            if self._process.poll() is None:
                self._process.send_signal(signal.SIGINT)
                time.sleep(LOOK_S)
        try:
            self._process.wait(END_PATIENCE_S)
        except subprocess.TimeoutExpired:
            for process in workers:
                process.kill()
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _find_workers(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self._process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []


class PlainRun:
    """Run the script under plain `python`, leaving its metrics in `folder`."""

    def __init__(self, folder: Path, script: Script) -> None:
        self.folder = folder
        folder.mkdir()
        self._output = folder / "output.log"
        self.started_at_s = time.time()
        self._process = _spawn(
            [str(script.path), *script.arguments], self._output, {METRICS_VARIABLE: str(folder)}
        )

    @property
    def running(self) -> bool:
        """Tell whether the script has not ended."""
        return self._process.poll() is None

    def read_output(self) -> str:
        """Return what the script has written."""
        return self._output.read_text(errors="replace").strip()

    def wait(self) -> int:
        """Return the script's exit code once it has ended."""
        return self._process.wait()

    def end(self) -> None:
        """End the script; harmless if it has ended."""
        if self.running:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def list_devices(store: Store, info: JobInfo) -> tuple[str, ...]:
    """Return the devices that the job's agent offers, in order."""
    return tuple(
        device for agent in read_picture(store, info.job).agents.values() for device in agent.devices
    )


def find_digest(text: str, where: Path) -> str:
    """Return the digest that the script printed last. Raise DemoError if it printed none."""
    found = re.findall(r"^digest ([0-9a-f]{64})$", text, re.MULTILINE)
    if not found:
        raise DemoError(f"the script printed no digest; its output is in {where}")
    return str(found[-1])


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Keep a second Ctrl-C waiting until what the first one began is done."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _spawn(arguments: list[str], output: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("wb") as sink:
        return subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            start_new_session=True,
        )
