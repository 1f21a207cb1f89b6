"""A job of real commands, perhaps on several nodes: `elastane run` here, `elastane agent` there."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from agent_world import DEADLINE_S, is_gone, wait_for
from elastic_world import SCRIPT, Outcome, last_step, printed_outcome

from elastane.core.view import JobView
from elastane.jobs.registry import list_jobs
from elastane.jobs.requests import read_picture
from elastane.model.ids import WorkerId
from elastane.model.records import JobInfo
from elastane.observe.events import Event, read_events
from elastane.store.open import open_store

SIZE = ("--samples", "4011", "--epochs", "4")
"""Flags of the script: some 800 steps, which it trains slowly until it is told to hurry."""
COMMAND = (sys.executable, "-m", "elastane.cli.main")


@dataclass
class NodesJob:
    """One job whose home is `home`, and the commands that serve it.

    Attributes:
        store_url: where the nodes meet; the home's own store if none is given.
        prefixes: node -> what its commands begin with, to run in its part of the network.
        reach: from where the store can be asked.
    """

    home: Path
    store_url: str = ""
    prefixes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    reach: Callable[[], AbstractContextManager[None]] = nullcontext
    commands: dict[str, "subprocess.Popen[str]"] = field(default_factory=dict)
    _info: JobInfo | None = None

    # --- commands ------------------------------------------------------------------------------------

    def run(self, *flags: str, script: Sequence[str] = (), node: str = "a") -> None:
        """Start the job with `elastane run` on a node."""
        self._start(node, "run", str(SCRIPT), "--name", "job", "--json", *flags, "--", *script)

    def serve(self, node: str, *flags: str) -> None:
        """Serve the job on another node with `elastane agent`."""
        self._start(node, "agent", *flags)

    def ask(self, *arguments: str) -> str:
        """Run a command that asks for something; return what it printed."""
        prefix = next(iter(self.prefixes.values()), ())
        done = subprocess.run(
            [*prefix, *COMMAND, *arguments, *self._place()],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _place(self) -> list[str]:
        store = ["--store", self.store_url] if self.store_url else []
        return ["--home", str(self.home), *store]

    def _start(self, node: str, command: str, *arguments: str) -> None:
        words = list(arguments)
        place = [*self._place(), "--node", node]
        at = words.index("--") if "--" in words else len(words)
        log = (self.home.parent / f"{node}.out").open("a")
        with log:
            self.commands[node] = subprocess.Popen(
                [*self.prefixes.get(node, ()), *COMMAND, command, *words[:at], *place, *words[at:]],
                stdout=log,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def said(self, node: str) -> str:
        """Return all that the command of a node has printed."""
        return (self.home.parent / f"{node}.out").read_text()

    # --- looking -------------------------------------------------------------------------------------

    @property
    def info(self) -> JobInfo:
        """The job's fixed record, as soon as there is one."""
        if self._info is None:
            wait_for("the job", lambda: any(self._find_jobs()))
            (self._info,) = self._find_jobs()
        return self._info

    def _find_jobs(self) -> Sequence[JobInfo]:
        if not self.store_url and not (self.home / "store.db").exists():
            return ()
        with self.reach(), open_store(self._url) as store:
            return list_jobs(store)

    @property
    def _url(self) -> str:
        return self.store_url or f"sqlite://{self.home}/store.db"

    def view(self) -> JobView:
        with self.reach(), open_store(self._url) as store:
            return read_picture(store, self.info.job).view

    def events(self, kind: str, **fields: object) -> list[Event]:
        found = (e for e in read_events(Path(self.info.directory)) if e.kind == kind)
        return [e for e in found if fields.items() <= e.fields.items()]

    def wait_event(self, kind: str, *, count: int = 1, **fields: object) -> Event:
        wait_for(f"{count} x {kind} {fields}", lambda: len(self.events(kind, **fields)) >= count)
        return self.events(kind, **fields)[count - 1]

    def members(self) -> dict[WorkerId, str]:
        """Return who trains in the present generation, and on which node."""
        view = self.view()
        if view.current is None or view.proposal is not None or not view.settled:
            return {}
        return {
            m.worker: view.members[m.worker].node for m in view.current.members if m.worker in view.members
        }

    def settle(self, *nodes: str) -> dict[WorkerId, str]:
        """Wait until workers train on exactly these nodes, one for each mention; return them."""
        wait_for(
            f"workers on {nodes}: {self.members()}", lambda: sorted(self.members().values()) == sorted(nodes)
        )
        return self.members()

    def wait_steps(self, more: int) -> None:
        """Wait until some more steps are committed."""
        begin = last_step(self)  # type: ignore[arg-type]
        wait_for(f"step {begin + more}", lambda: last_step(self) >= begin + more)  # type: ignore[arg-type]

    def agent_pid(self, node: str) -> int:
        """Return the process that is the node's agent now."""
        return self.view().agents[node].pid  # type: ignore[index]

    def worker_pid(self, worker: str) -> int:
        return self.view().members[WorkerId(worker)].pid

    def processes(self) -> list[psutil.Process]:
        """Return all processes of this job: they have its home in their environment or command line."""
        found = []
        for process in psutil.process_iter():
            try:
                words = " ".join(process.cmdline()) + " ".join(process.environ().values())
                if process.pid != os.getpid() and str(self.home) in words:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    # --- ending --------------------------------------------------------------------------------------

    def finish(self, marks: Path) -> Outcome:
        """Let the script hurry, wait for the end of all commands, and return what came of the job."""
        (marks / "go").touch()
        for node, process in self.commands.items():
            code = process.wait(2 * DEADLINE_S)
            assert code == 0, (node, code, self.said(node))
        logs = "".join(p.read_text() for p in sorted((Path(self.info.directory) / "logs").glob("w*.log")))
        return printed_outcome(logs, Path(self.info.directory))

    def last_word(self, node: str = "a") -> dict[str, object]:
        """Return the outcome that `elastane run` printed."""
        word: dict[str, object] = json.loads(self.said(node).splitlines()[-1])
        return word

    def end_all(self) -> None:
        for process in self.commands.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.send_signal(signal.SIGUSR1)
        for process in self.commands.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for left in self.processes():
            left.kill()


@contextmanager
def serving(folder: Path, store_url: str = "", **prefixes: tuple[str, ...]) -> Iterator[NodesJob]:
    """Give a job to run; in the end nothing may be left of it."""
    # A process is known as this job's by its home in the environment: of forked workers, too.
    home = folder / "home"
    job = NodesJob(home, store_url, prefixes)
    before = os.environ.get("ELASTANE_HOME")
    os.environ["ELASTANE_HOME"] = str(home)
    try:
        yield job
        wait_for(f"leftovers to go: {job.processes()}", lambda: not job.processes())
    finally:
        job.end_all()
        del os.environ["ELASTANE_HOME"]
        if before is not None:
            os.environ["ELASTANE_HOME"] = before


def kill(pid: int) -> None:
    """Kill a process and wait until it is gone."""
    os.kill(pid, signal.SIGKILL)
    wait_for(f"process {pid} to go", lambda: is_gone(pid) or psutil.Process(pid).status() == "zombie")
