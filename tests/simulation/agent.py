"""A simulated agent: the real staffing decisions, carried out on simulated processes.

The counterpart of `agent/shift.py` for one node.
"""

from collections.abc import Generator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from elastane.core.staffing import (
    Force,
    NodeState,
    StaffingSettings,
    WorkerProcess,
    observe_exit,
    observe_processes,
    plan_staffing,
)
from elastane.core.view import JobView, encode
from elastane.jobs.ending import write_end
from elastane.model.ids import DeviceId, WorkerId
from elastane.model.records import ExitRecord, Spec
from elastane.store.base import DeleteKey, Put, Store

from .loop import Bell, Process
from .storage import JOB, KEYS, Client
from .worker import NODE

if TYPE_CHECKING:
    from .world import World

LOOK_S = 2.0
SETTINGS = StaffingSettings(failure_limit=10**9, longest_back_off_s=2.0)
"""Never gives the job up: in the simulation workers fail far more often than in life."""


class Agent:
    """Serve the job on one node."""

    def __init__(self, world: "World", devices: int) -> None:
        self.world = world
        self.process = Process(world.loop, "agent")
        self.wake = Bell()
        self.client = Client(0.0, self.wake.fire)
        self.node = NodeState(node=NODE, devices=tuple(DeviceId(f"cpu:{i}") for i in range(devices)))
        self._exited: list[tuple[WorkerId, int]] = []

    def run(self) -> Generator[Any, Any, None]:
        """Be the agent's activity."""
        self.world.storage.connect(self.process, self.client)
        self.client.seen = self.world.storage.position
        while True:
            wake_at_s = yield from self._turn()
            yield self.wake, max(0.0, min(wake_at_s - self.world.loop.now_s, LOOK_S))

    def hear_exit(self, worker: WorkerId, code: int) -> None:
        """Learn that a child has ended."""
        if worker in self.node.processes:
            self._exited.append((worker, code))
            self.wake.fire()

    def _request(self, work: Any) -> Generator[Any, Any, Any]:
        return self.world.storage.request(self.client, work, "agent")

    def _turn(self) -> Generator[Any, Any, float]:
        world = self.world
        exited, self._exited = self._exited, []
        for worker, code in exited:
            yield from self._request(lambda store, w=worker, c=code: _post_exit(store, w, c))
        view: JobView = yield from self._request(lambda store: world.storage.newest)
        now_s = world.loop.now_s
        self.node = observe_processes(view, self.node, now_s)
        for worker, code in exited:
            self.node, _ = observe_exit(view, self.node, worker, code, now_s, SETTINGS)
        plan = plan_staffing(view, self.node, now_s, SETTINGS)
        for end in plan.ends:
            noted = replace(self.node.processes[end.worker], terminated_at_s=now_s)
            self.node = replace(self.node, processes={**self.node.processes, end.worker: noted})
            world.note("agent", f"ends {end.worker} ({end.force.value}): {end.reason}")
            world.signal(end.worker, kill=end.force is Force.KILL)
        for start in plan.starts:
            worker = world.claim_worker()
            process = WorkerProcess(worker=worker, device=start.device, started_at_s=now_s)
            self.node = replace(self.node, processes={**self.node.processes, worker: process})
            world.note("agent", f"starts {worker}: {start.reason}")
            world.start_worker(worker, start.device)
            if start.device in view.spec.targets:
                yield from self._request(lambda store, d=start.device: _drop_target(store, d))
        if plan.status is not None:
            status = plan.status
            yield from self._request(lambda store: write_end(store, JOB, status, seen=view.status))
            world.note("agent", f"ends the job: {status.phase.value}, {status.message}")
        acted = plan.starts or plan.ends or plan.status is not None
        return now_s if acted else (plan.wake_at_s or now_s + LOOK_S)


def _post_exit(store: Store, worker: WorkerId, code: int) -> None:
    record = ExitRecord(worker=worker, code=code)
    store.transact(
        puts=[Put(key=KEYS.exit(worker), value=encode(record))],
        deletes=[DeleteKey(key=KEYS.dismissal(worker))],
    )
    entry = store.get(KEYS.member(worker))
    if entry is not None and entry.lease is not None:
        store.revoke(entry.lease)


def _drop_target(store: Store, device: DeviceId) -> None:
    entry = store.get(KEYS.spec)
    assert entry is not None
    spec = msgspec.json.decode(entry.value, type=Spec)
    targets = tuple(t for t in spec.targets if t != device)
    store.transact(puts=[Put(key=KEYS.spec, value=encode(msgspec.structs.replace(spec, targets=targets)))])
