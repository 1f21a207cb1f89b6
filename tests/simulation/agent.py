"""A simulated agent: the real staffing decisions, carried out on simulated processes.

The counterpart of `agent/shift.py` for one node of several.
"""

from collections.abc import Generator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from elastane.core.staffing import (
    FailureLimits,
    Force,
    NodeState,
    StaffingPlan,
    StaffingSettings,
    WorkerProcess,
    make_roster,
    observe_exit,
    observe_processes,
    plan_staffing,
    read_history,
)
from elastane.core.view import JobView, encode
from elastane.jobs.ending import write_end
from elastane.jobs.requests import JobPicture
from elastane.model.errors import LeaseLostError
from elastane.model.ids import DeviceId, NodeId, WorkerId
from elastane.model.records import AgentRecord, ExitRecord, Roster, Spec, WorkerPhase
from elastane.store.base import DeleteKey, LeaseId, ModRevisionIs, Put, Store

from .loop import Bell, Process
from .storage import JOB, KEYS, Client

if TYPE_CHECKING:
    from .world import World

LOOK_S = 1.0
LEASE_TTL_S = 5.0
NEVER = FailureLimits(script=10**9, machine=10**9, preemption=10**9)
SETTINGS = StaffingSettings(limits=NEVER, longest_back_off_s=2.0)
"""Never gives the job up: in the simulation workers fail far more often than in life."""


class Agent:
    """Serve the job on one node."""

    def __init__(self, world: "World", node: NodeId, devices: int) -> None:
        self.world = world
        self.process = Process(world.loop, f"agent {node}")
        self.wake = Bell()
        self.client = Client(0.0, self.wake.fire, patient=True)
        self.node = NodeState(node=node, devices=tuple(DeviceId(f"cpu:{i}") for i in range(devices)))
        self._lease: LeaseId | None = None
        self._roster = Roster(node=node)
        self._exited: list[tuple[WorkerId, int | None]] = []
        self._adopted: set[WorkerId] = set()

    def run(self) -> Generator[Any, Any, None]:
        """Be the agent's activity."""
        self.world.storage.connect(self.process, self.client)
        self.client.seen = self.world.storage.position
        yield from self._request(self._register)
        picture: JobPicture = yield from self._request(self._read)
        self._take_over(picture.view)
        while True:
            wake_at_s = yield from self._turn()
            yield self.wake, max(0.0, min(wake_at_s - self.world.loop.now_s, LOOK_S))

    def hear_exit(self, worker: WorkerId, code: int) -> None:
        """Learn that a worker of this node has ended."""
        if worker in self.node.processes:
            self._exited.append((worker, None if worker in self._adopted else code))
            self.wake.fire()

    def _request(self, work: Any) -> Generator[Any, Any, Any]:
        return self.world.storage.request(self.client, work, self.process.name)

    def _read(self, store: Store) -> JobPicture:
        return self.world.storage.read_picture()

    def _register(self, store: Store) -> None:
        entry = store.get(KEYS.agent(self.node.node))
        if entry is not None and entry.lease is not None:
            store.revoke(entry.lease)
        self._lease = store.grant(LEASE_TTL_S)
        record = AgentRecord(node=self.node.node, pid=1, devices=self.node.devices)
        store.transact(puts=[Put(key=KEYS.agent(self.node.node), value=encode(record), lease=self._lease)])
        self.world.storage.expire_after(LEASE_TTL_S)

    def _renew(self, store: Store) -> None:
        assert self._lease is not None
        try:
            store.renew(self._lease)
            self.world.storage.expire_after(LEASE_TTL_S)
        except LeaseLostError:
            self._register(store)

    def _take_over(self, view: JobView) -> None:
        roster = view.rosters.get(self.node.node)
        if roster is None:
            return
        self._roster = roster
        self.node = replace(self.node, history=read_history(roster, self.world.loop.now_s))
        for worker, post in roster.posts.items():
            self._adopt(view, worker, post.device, registered=post.registered)

    def _adopt(self, view: JobView, worker: WorkerId, device: DeviceId, *, registered: bool) -> None:
        member = view.members.get(worker)
        unseen = WorkerPhase.TRAINING if registered else None
        phase = member.phase if member is not None else unseen
        self._keep(
            WorkerProcess(worker=worker, device=device, started_at_s=self.world.loop.now_s, last_phase=phase)
        )
        self._adopted.add(worker)
        found = self.world.workers.get(worker)  # None if the agent died before it could start it
        if found is None or not found.process.alive:
            self._exited.append((worker, None))

    def _turn(self) -> Generator[Any, Any, float]:
        yield from self._request(self._renew)
        exited, self._exited = self._exited, []
        for worker, code in exited:
            yield from self._request(lambda store, w=worker, c=code: _post_exit(store, w, c))
        picture: JobPicture = yield from self._request(self._read)
        view, now_s = picture.view, self.world.loop.now_s
        for worker, member in view.members.items():
            known = worker in self.node.processes or worker in view.exits
            if member.node == self.node.node and not known:
                self._adopt(view, worker, member.device, registered=True)
        self.node = observe_processes(view, self.node, now_s)
        for worker, code in exited:
            if worker in self.node.processes:  # an adopted one may be heard of twice
                self.node, _ = observe_exit(view, self.node, worker, code, now_s, SETTINGS)
        plan = plan_staffing(view, self.node, now_s, SETTINGS)
        yield from self._apply(plan, picture, now_s)
        roster = make_roster(self.node, now_s, SETTINGS)
        if roster != self._roster:
            self._roster = roster
            yield from self._request(lambda store: _put(store, KEYS.roster(self.node.node), roster))
        acted = plan.starts or plan.ends or plan.status is not None
        return now_s if acted else (plan.wake_at_s or now_s + LOOK_S)

    def _apply(self, plan: StaffingPlan, picture: JobPicture, now_s: float) -> Generator[Any, Any, None]:
        world, name = self.world, self.process.name
        for end in plan.ends:
            self._keep(replace(self.node.processes[end.worker], terminated_at_s=now_s))
            world.note(name, f"ends {end.worker} ({end.force.value}): {end.reason}")
            world.signal(end.worker, kill=end.force is Force.KILL)
        if plan.starts:
            yield from self._start_all(plan, picture, now_s)
        if plan.served:
            yield from self._request(lambda store: _drop_targets(store, plan.served))
        if plan.status is not None:
            status = plan.status
            yield from self._request(lambda store: write_end(store, JOB, status, seen=picture.view.status))
            world.note(name, f"ends the job: {status.phase.value}, {status.message}")

    def _start_all(self, plan: StaffingPlan, picture: JobPicture, now_s: float) -> Generator[Any, Any, None]:
        before = self.node
        processes = [
            WorkerProcess(worker=WorkerId(f"w{number}"), device=start.device, started_at_s=now_s)
            for number, start in enumerate(plan.starts, start=picture.claimed + 1)
        ]
        for process in processes:
            self._keep(process)
        roster = make_roster(self.node, now_s, SETTINGS)
        claim = picture.claimed + len(processes)

        def write(store: Store) -> bool:
            compare = ModRevisionIs(key=KEYS.claims, revision=picture.claims_revision)
            puts = [
                Put(key=KEYS.claims, value=str(claim).encode()),
                Put(key=KEYS.roster(self.node.node), value=encode(roster)),
            ]
            return store.transact([compare], puts).succeeded

        claimed = yield from self._request(write)
        if not claimed:
            self.node = before
            self.world.lost_claims += 1
            return
        self._roster = roster
        for process, start in zip(processes, plan.starts, strict=True):
            self.world.note(self.process.name, f"starts {process.worker}: {start.reason}")
            self.world.start_worker(process.worker, self.node.node, process.device)

    def _keep(self, process: WorkerProcess) -> None:
        self.node = replace(self.node, processes={**self.node.processes, process.worker: process})


def _put(store: Store, key: str, record: Any) -> None:
    store.transact(puts=[Put(key=key, value=encode(record))])


def _post_exit(store: Store, worker: WorkerId, code: int | None) -> None:
    record = ExitRecord(worker=worker, code=code)
    store.transact(
        puts=[Put(key=KEYS.exit(worker), value=encode(record))],
        deletes=[DeleteKey(key=KEYS.dismissal(worker))],
    )
    entry = store.get(KEYS.member(worker))
    if entry is not None and entry.lease is not None:
        store.revoke(entry.lease)


def _drop_targets(store: Store, served: tuple[DeviceId, ...]) -> None:
    entry = store.get(KEYS.spec)
    assert entry is not None
    spec = msgspec.json.decode(entry.value, type=Spec)
    targets = tuple(t for t in spec.targets if t not in served)
    _put(store, KEYS.spec, msgspec.structs.replace(spec, targets=targets))
