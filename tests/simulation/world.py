"""A whole simulated world of one job: store, links, agent, workers, faults, checks. All from one seed."""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from random import Random

from elastane.core.duty import Errand
from elastane.core.duty import Rules as RealRules
from elastane.core.gate import StepGate
from elastane.core.leader import LeaderSettings
from elastane.core.member import may_finish, may_save
from elastane.core.view import JobView, encode
from elastane.model.ids import DeviceId, NodeId, WorkerId
from elastane.model.records import JobPhase, JobStatus, Recovery, Spec
from elastane.store.base import DeleteKey, DeletePrefix, Put, Store

from .agent import Agent
from .checker import Checker, ViolationError
from .fabric import Fabric
from .faults import Deed, choose_fate, choose_weather, plan_deeds
from .loop import Loop, Process
from .storage import KEYS, Storage
from .toy import State, Toy
from .worker import Fate, Worker

END_S = 60.0
QUIET_S = 30.0
"""Faults happen before; from then on the job must make progress and come to what is wanted of it."""
LEASE_TTL_S = 3.0
SILENCE_S = 2.0
"""Patience with a silent link, shorter than in life so that more of it fits into a world."""


class Rules(RealRules):
    """Be the rules under test; tests break some of them on purpose."""

    settings = LeaderSettings(start_window_s=2.0, connect_timeout_s=5.0, step_timeout_s=6.0)
    fences = True

    def tamper(self, errand: Errand) -> Errand:
        """Return the errand that is run in place of `errand`."""
        return errand

    def may_finish(self, view: JobView, worker: WorkerId) -> bool:
        """Tell whether a worker at the end of training may go."""
        return may_finish(view, worker)

    def may_save(self, view: JobView, worker: WorkerId, gate: StepGate) -> bool:
        """Tell whether a worker saves the state of a stopping job."""
        return may_save(view, worker, gate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Say what became of a world."""

    seed: int
    violation: str
    digest: str
    steps: int
    phase: JobPhase
    events: int
    generations: int


class World:
    """Be one world."""

    def __init__(self, seed: int, rules: Rules | None = None, verbose: bool = False) -> None:
        self.seed = seed
        self.rules = rules or Rules()
        self.rng = Random(seed)
        self.loop = Loop(self.rng)
        self.storage = Storage(self.loop, self.rng, self._records_changed)
        self.fabric = Fabric(self.loop, self.rng)
        self.toy = Toy()
        self.checker = Checker(self)
        self.lease_ttl_s = LEASE_TTL_S
        self.silence_s = SILENCE_S
        self.virtual_workers = self.rng.choice((1, 2, 3, 4, 4, 6, 8))
        self.nodes = self._draw_nodes()
        self.devices = sum(self.nodes.values())
        self.step_s = self.rng.choice((0.1, 0.25, 0.5, 1.0))
        self.transfer_s = self.rng.choice((0.005, 0.1, 1.0))
        self.total_steps = 1 + int(self.rng.uniform(5.0, 70.0) / self.step_s)
        self.weather = choose_weather(self.rng)
        self.quiet_at_s = QUIET_S
        self.wanted = self.rng.randint(1, min(self.devices, self.virtual_workers))
        self.deeds = plan_deeds(self.rng, self.weather, QUIET_S)
        self.fates: dict[WorkerId, Fate] = {}
        self.workers: dict[WorkerId, Worker] = {}
        self.saved: State | None = None
        self.checkpoints: set[State] = set()
        self._disk = Random(f"checkpoints of {seed}")
        self.checkpoint_every = self._disk.choice((1, 5, 20, 10**9))
        self.checkpoint_s = self._disk.choice((0.0, 0.5, 5.0))
        self.recovery = Recovery.CHECKPOINT if self._disk.random() < 0.1 else Recovery.EXACT
        self.ambushes: list[tuple[Callable[[JobView], bool], Deed]] = []
        self.troubled: dict[WorkerId, float] = {}
        self.evaluate_every = 5
        """Steps after which the toy script evaluates, between two steps; 0 = never."""
        self.torn_shares = 0.0
        """How probable it is that a worker dies when its share of a gathering has reached one other only."""
        self.resumes = False
        self.lost_claims = 0
        self.ended_s = 0.0
        self.lines: list[str] = []
        self._trace = blake2b(digest_size=16)
        self._verbose = verbose
        self._over = False
        self.agents = {node: Agent(self, node, devices) for node, devices in self.nodes.items()}

    def run(self) -> Outcome:
        """Live through the world's time; return what became of it."""
        violation = ""
        try:
            self._begin()
            self.loop.run(END_S, lambda: self._over)
            self.checker.check_end()
        except ViolationError as error:
            violation = str(error)
        view = self.storage.newest
        assert view is not None
        return Outcome(
            seed=self.seed,
            violation=violation,
            digest=self._trace.hexdigest(),
            steps=len(self.checker.commits),
            phase=view.status.phase,
            events=self.loop.events,
            generations=len(self.checker.topologies),
        )

    def _begin(self) -> None:
        spec = Spec(wanted=self.wanted, recovery=self.recovery)
        self.storage.apply(lambda store: _create(store, spec), "operator")
        for agent in self.agents.values():
            # The others come a moment after the first.
            late_s = 0.0 if agent is next(iter(self.agents.values())) else self.rng.random() * 2.0
            self.loop.call_after(late_s, _begin(agent))
        for at_s, deed in self.deeds:
            self.loop.call_after(at_s, _bind(deed, self))
        self.loop.call_after(QUIET_S, self._calm_down)
        self.loop.call_after(1.0, self._look)

    def _look(self) -> None:
        """Look every second whether the job goes on, and whether all is over."""
        self.checker.check_progress()
        view = self.storage.newest
        assert view is not None
        if view.status.phase.ended:
            self.ended_s += 1.0
            if not any(w.process.alive for w in self.workers.values()):
                if not (self.resumes and view.status.phase is JobPhase.STOPPED and self.loop.now_s < QUIET_S):
                    self._over = True
                    return
                self._resume(view)
        self.loop.call_after(1.0, self._look)

    def _resume(self, view: JobView) -> None:
        self.resumes = False
        self.ended_s = 0.0
        self.note("operator", "resumes the job")
        generations = view.current.generation if view.current else view.status.earlier_generations
        self.storage.apply(lambda store: _reopen(store, view.spec, generations), "operator")
        for node in self.nodes:
            self.replace_agent(node, 0.0)

    def _calm_down(self) -> None:
        self.note("fate", "lets the job alone")
        self.ambushes.clear()
        self.heal_store()
        for name, worker in self.workers.items():
            if worker.fate.stall_at:
                self.end_process(name, -9)  # somebody looks after a worker that hangs
            worker.control.client.cut_until_s = min(worker.control.client.cut_until_s, self.loop.now_s)
        self.storage.down_until_s = min(self.storage.down_until_s, self.loop.now_s)
        if not any(worker.process.alive and self.is_sound(name) for name, worker in self.workers.items()):
            # Nobody waits for those that hang, so that nobody but people would miss them.
            for name, worker in self.workers.items():
                if worker.hangs:
                    self.end_process(name, -9)

    def _records_changed(self, author: str) -> None:
        view = self.storage.newest
        self._trace.update(b"%d %a %f" % (self.storage.memory.revision, author, self.loop.now_s))
        self.checker.records_changed(author)
        for ambush in [a for a in self.ambushes if view is not None and a[0](view)]:
            self.ambushes.remove(ambush)
            ambush[1](self)

    # --- for those who live here --------------------------------------------------------------------

    def note(self, who: str, text: str) -> None:
        """Add a line to the transcript."""
        if self._verbose:
            self.lines.append(f"{self.loop.now_s:9.4f} {who:8} {text}")

    def initial_digest(self, worker: WorkerId) -> bytes:
        """Return the state with which a worker begins: nobody says that scripts are seeded."""
        return worker.encode()

    def compute_s(self) -> float:
        """Return how long a worker's part of a step takes."""
        return self.step_s * self.rng.uniform(0.5, 1.0)

    def start_worker(self, worker: WorkerId, node: NodeId, device: DeviceId) -> None:
        """Start a worker's process."""
        bad_start = self.weather.bad_start if self.loop.now_s < QUIET_S else 0.0
        fate = self.fates.get(worker) or choose_fate(self.rng, bad_start)
        self.workers[worker] = Worker(self, worker, (node, device), fate)
        self.workers[worker].process.spawn(self.workers[worker].run())

    def is_sound(self, worker: WorkerId) -> bool:
        """Tell whether a worker holds the state and nothing keeps it from its work."""
        gate = self.workers[worker].stance.gate
        if self.workers[worker].hangs:
            return False
        return gate.has_state and gate.generation > 0 and self.troubled.get(worker, 0.0) <= self.loop.now_s

    def end_process(self, worker: WorkerId, code: int) -> None:
        """End a worker's process."""
        process = self.workers[worker].process
        if not process.alive:
            return
        process.kill()
        self.note(worker, f"ends with {code}")
        if code == 0:
            self.checker.was_let_go(worker)
        self.fabric.bury(worker)
        agent = self.agents[self.workers[worker].node]
        self.loop.call_after(
            0.001 + self.rng.random() * 0.05, lambda: agent.hear_exit(worker, code), agent.process
        )

    def signal(self, worker: WorkerId, *, kill: bool) -> None:
        """Send a worker SIGTERM or SIGKILL, as its agent does."""
        found = self.workers[worker]
        view = self.storage.newest
        assert view is not None
        if view.status.phase is JobPhase.FINISHED and found.stance.gate.seated and not found.came_to_end:
            sound = self.is_sound(worker) and not found.process.frozen
            if sound and view.alive(worker):
                self.checker.fail("I7", f"{worker} has to be ended by force after the job has finished")
        if kill:
            self.end_process(worker, -9)
        elif not found.process.frozen and not found.stance.gate.seated:
            self.end_process(worker, 143)

    def freeze(self, worker: WorkerId, for_s: float) -> None:
        """Stop a worker's process for a while."""
        process = self.workers[worker].process
        self.note("fate", f"freezes {worker} for {for_s:.3f} s")
        process.freeze()
        self.troubled[worker] = self.loop.now_s + for_s
        self.loop.call_after(for_s, process.thaw)

    def heal_store(self) -> None:
        """Let the store be quick again."""
        self.storage.delay_s = 0.002

    def hang(self, worker: WorkerId) -> None:
        """Let a worker's training activity stand still for ever."""
        self.note("fate", f"lets {worker} hang")
        self.workers[worker].hangs = True

    def replace_agent(self, node: NodeId, after_s: float) -> None:
        """Kill a node's agent and start another one; its workers live on."""
        self.note("fate", f"kills the agent of {node}")
        self.agents[node].process.kill()
        self.agents[node] = Agent(self, node, self.nodes[node])
        self.loop.call_after(after_s, _begin(self.agents[node]))

    def lose_node(self, node: NodeId, for_s: float) -> None:
        """End all that runs on a node at once, without a word to anybody; it comes back later."""
        self.note("fate", f"switches {node} off for {for_s:.2f} s")
        self.replace_agent(node, for_s)
        for name, worker in self.workers.items():
            if worker.node == node:
                self.end_process(name, -9)

    def _draw_nodes(self) -> dict[NodeId, int]:
        """Return the nodes of this world and how many devices each has."""
        count = self.rng.choice((1, 1, 2, 3))
        sizes = [self.rng.randint(2, 5)] if count == 1 else [self.rng.randint(1, 3) for _ in range(count)]
        return {NodeId(f"n{number}"): devices for number, devices in enumerate(sizes)}

    def write_checkpoint(self, process: Process, worker: WorkerId, state: State) -> None:
        """Write a checkpoint in the background if one is due; if its writer dies it comes to nothing."""
        if state.step % self.checkpoint_every:
            return

        def keep() -> None:
            if self.checker.is_history(state) and (self.saved is None or self.saved.step < state.step):
                self.note(worker, f"has written the checkpoint of step {state.step}")
                self.saved = state
                self.checkpoints.add(state)

        self.loop.call_after(self._disk.random() * self.checkpoint_s, keep, process)

    def save(self, worker: WorkerId, state: State) -> None:
        """Keep the state of a job that stops."""
        self.note(worker, f"saves the state of step {state.step}")
        self.checker.saved(worker, state)
        self.saved = state
        self.checkpoints.add(state)


def _begin(agent: Agent) -> Callable[[], None]:
    return lambda: agent.process.spawn(agent.run())


def _bind(deed: Deed, world: World) -> Callable[[], None]:
    return lambda: deed(world)


def _create(store: Store, spec: Spec) -> None:
    status = JobStatus(phase=JobPhase.STARTING)
    store.transact(puts=[Put(key=KEYS.spec, value=encode(spec)), Put(key=KEYS.status, value=encode(status))])


def _reopen(store: Store, spec: Spec, generations: int) -> None:
    """Do as `agent/jobs.py` does."""
    status = JobStatus(phase=JobPhase.STARTING, earlier_generations=generations)
    again = Spec(wanted=spec.wanted, minimum=spec.minimum, recovery=spec.recovery)
    leftovers = ("acks/", "exits/", "dismissed/", "members/", "topology/", "rendezvous/", "rosters/")
    store.transact(
        puts=[Put(key=KEYS.spec, value=encode(again)), Put(key=KEYS.status, value=encode(status))],
        deletes=[
            *(DeletePrefix(prefix=KEYS.prefix + part) for part in leftovers),
            DeleteKey(key=KEYS.leader),
            DeleteKey(key=KEYS.signature),
        ],
    )
