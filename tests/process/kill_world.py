"""A job of real processes whose workers are told where to die, and what must hold after all of it."""

import os
import random
import signal
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from agent_world import World, wait_for
from elastic_world import Outcome, last_step, printed_outcome, run_script_alone
from kill_points import Order, done_path

from elastane.agent.child import DEFAULT_ENTRY
from elastane.agent.preload import WORKER_MODULES
from elastane.agent.settings import AgentSettings, WorkerSettings
from elastane.core.view import JobView
from elastane.model.ids import WorkerId
from elastane.model.records import JobPhase, JobStatus, Spec
from elastane.model.topology import Mode

SCRIPT = Path(__file__).parent / "kill_script.py"
STEPS_AHEAD = 150
"""Steps that a job may train quickly after each kill; beyond them it creeps, so that no load uses them up."""
SLOTS = 1024
"""A device rests after its second failure; here each new worker finds one on which nobody died yet."""


def run_quietly(folder: Path, steps: int) -> Outcome:
    """Return what comes of the script when nobody dies."""
    return run_script_alone(SCRIPT, folder, "--orders", str(folder), "--steps", str(steps))


@dataclass
class KillJob:
    """A job under fire.

    Attributes:
        world: its agent and its records.
        orders: folder in which its workers look for orders.
        ended: how each worker that was told to end should be reported: worker -> exit code.
    """

    world: World
    orders: Path
    workers: int
    ended: dict[str, int] = field(default_factory=dict)
    _number: int = 0

    @classmethod
    def begin(
        cls,
        folder: Path,
        steps: int,
        *more: str,
        workers: int = 3,
        lease_s: float = 3.0,
        step_timeout_s: float = 600.0,
    ) -> "KillJob":
        """Begin it; `more` are further arguments of the script."""
        orders = folder / "orders"
        orders.mkdir(parents=True)
        world = World.begin(
            folder,
            SCRIPT.read_text(),
            Spec(wanted=workers),
            AgentSettings(workers=WorkerSettings(lease_ttl_s=lease_s, step_timeout_s=step_timeout_s)),
            arguments=("--orders", str(orders), "--steps", str(steps), *more),
            slots=SLOTS,
            entry=DEFAULT_ENTRY,
            preload=(*WORKER_MODULES, "kill_points"),
        )
        job = cls(world, orders, workers)
        job._grant()
        return job

    # --- looking -------------------------------------------------------------------------------------

    def view(self) -> JobView:
        return self.world.picture().view

    def settle(self) -> JobView:
        """Wait until as many train as are wanted, in one generation and with no change under way."""
        wait_for(f"{self.workers} workers to train: {self._describe()}", lambda: self._settled(self.view()))
        return self.view()

    def _settled(self, view: JobView) -> bool:
        if view.status.phase.ended:
            raise AssertionError(f"the job has ended: {view.status}\n{self._describe()}")
        current = view.current
        if current is None or view.proposal is not None or not view.settled:
            return False
        # Somebody who has just been killed may still look alive.
        seated = [w for w in current.awaited if view.alive(w) and w not in self.ended]
        return len(seated) == len(current.members) == self.workers

    def _describe(self) -> str:
        events = [
            e
            for kind in ("proposed", "committed", "withdrawn", "worker_exited")
            for e in self.world.events(kind)
        ]
        return "\n".join(
            f"{e.at_s:.3f} {e.source} {e.kind} {e.fields}" for e in sorted(events, key=_time)[-30:]
        )

    def step(self) -> int:
        return last_step(self.world)

    def role(self, name: str) -> str:
        """Return who is "leader", "main" or "other" (neither) now; any other name is a worker already."""
        view = self.view()
        assert view.current is not None
        members = [m.worker for m in view.current.members]
        roles = {
            "leader": [view.leader],
            "main": members[:1],
            "other": [w for w in members[1:] if w != view.leader],
            "last": members[-1:],
        }
        return str(roles[name][0]) if name in roles else name

    # --- harming -------------------------------------------------------------------------------------

    def order(self, victims: dict[str, str], action: str = "kill") -> list[str]:
        """Tell roles or workers where to end, wait until all have come there, and return who they were."""
        self._number += 1
        named = {self.role(name): place for name, place in victims.items()}
        text = msgspec.json.encode(Order(number=self._number, victims=named, action=action))
        (self.orders / "new").write_bytes(text)
        os.replace(self.orders / "new", self.orders / "order")
        came = [self._await_victim(victim, place) for victim, place in named.items()]
        if action in ("kill", "devour"):
            self.ended.update(dict.fromkeys(came, -signal.SIGKILL))
        self._grant()
        return came

    def _await_victim(self, victim: str, place: str) -> str:
        path = done_path(self.orders, self._number, victim)
        wait_for(f"{victim} to come to {place!r}: {self._describe()}", path.exists)
        return path.read_text()

    def kill_some(self, generator: random.Random) -> None:
        """Kill living workers from outside, chosen at random, so that one that holds the state is left."""
        view = self.view()
        for worker in choose_victims(view, self.ended, generator):
            os.kill(view.members[worker].pid, signal.SIGKILL)
            self.ended[worker] = -signal.SIGKILL
        self._grant()

    def wake(self, worker: str) -> None:
        """Let a frozen worker go on."""
        os.kill(self.world.pid(worker), signal.SIGCONT)

    def await_generation_without(self, worker: str) -> None:
        """Wait until a generation is committed that goes on without a worker."""

        def formed() -> bool:
            current = self.view().current
            return current is not None and worker not in current.peers

        wait_for(f"a generation without {worker}: {self._describe()}", formed)

    def _grant(self) -> None:
        (self.orders / "granted").touch()
        os.truncate(self.orders / "granted", max(self.step(), 0) + STEPS_AHEAD)

    # --- the end -------------------------------------------------------------------------------------

    def finish(self) -> Outcome:
        """Let the job train to its end; return what came of it."""
        (self.orders / "granted").unlink()
        status = self.world.end()
        assert isinstance(status, JobStatus), status
        directory = Path(self.world.info.directory)
        logs = "".join(p.read_text() for p in sorted((directory / "logs").glob("w*.log")))
        assert status.phase is JobPhase.FINISHED, (status, logs)
        return printed_outcome(logs, directory)

    def exits(self) -> dict[str, int]:
        """Return the exit codes of all workers that have ended, but for those that ended well."""
        found = {e.fields["worker"]: e.fields["code"] for e in self.world.events("worker_exited")}
        return {worker: code for worker, code in found.items() if code != 0}


def _time(event: Any) -> float:
    return event.at_s


def choose_victims(view: JobView, dead: Collection[str], generator: random.Random) -> Sequence[WorkerId]:
    """Return some living workers at random, so that one that certainly holds the job's state is left."""
    current = view.current
    living = [w for w in view.members if view.alive(w) and w not in dead]
    if current is None or (current.mode is Mode.START and not view.settled):
        return ()
    # Between a commit and the entry of all, the state may lie with any of those that are to enter.
    sure = [w for w in living if current.member(w) and view.members[w].generation == current.generation]
    if not sure:
        return ()
    spared = generator.choice(sure)
    others = [w for w in living if w != spared]
    return generator.sample(others, min(len(others), generator.choice((1, 1, 1, 2))))
