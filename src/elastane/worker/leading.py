"""The leader's shell: get elected, keep an eye on the clock, write what `core.leader.decide` decides.

Any worker can lead. The leader key hangs on the worker's lease; every write of a leader is guarded by it.
"""

import time

from elastane.core.gate import ProposalId
from elastane.core.leader import Decision, LeaderSettings, Sight, decide, may_lead, proposal_stage
from elastane.core.view import JobView
from elastane.model.ids import WorkerId
from elastane.model.records import JobKeys, WorkerPhase
from elastane.observe.events import EventLog
from elastane.store.base import Absent, Delete, DeleteKey, DeletePrefix, LeaseId, Put, Store, ValueIs
from elastane.worker.context import WorkerContext


class Leading:
    """Lead the job whenever this worker is elected; used by the control thread alone."""

    def __init__(self, context: WorkerContext, events: EventLog, settings: LeaderSettings) -> None:
        self._me = context.worker
        self._job = context.job
        self._keys = JobKeys(context.job)
        self._events = events
        self._settings = settings
        self._ready_since_s: dict[WorkerId, float] = {}
        self._stage: tuple[ProposalId, bool] | None = None
        self._stage_since_s = 0.0
        self._withdrawn = 0
        self._withdrawn_at_s = 0.0
        self._withdrawn_after = 0
        self._written_at = 0
        self.wake_at_s = float("inf")

    def act(self, store: Store, lease: LeaseId, view: JobView, newest_step: int, step_time_s: float) -> bool:
        """Stand for election or lead, as the view has it; tell whether anything was written."""
        self.wake_at_s = float("inf")
        if view.leader is None:
            return self._stand(store, lease, view)
        if view.leader != self._me or view.revision < self._written_at:
            return False  # what was written last has yet to show: deciding without it could contradict it
        decision = decide(self._job, view, self._look(view, newest_step, step_time_s), self._settings)
        if decision.wake_at_s is not None:
            self.wake_at_s = decision.wake_at_s
        return self._apply(store, decision)

    def _stand(self, store: Store, lease: LeaseId, view: JobView) -> bool:
        if not may_lead(view, self._me):
            return False
        put = Put(key=self._keys.leader, value=self._me.encode(), lease=lease)
        won = store.transact([Absent(key=self._keys.leader)], [put]).succeeded
        if won:
            self._events.append("leader", worker=self._me, reason="the job had no leader")
        return won

    def _look(self, view: JobView, newest_step: int, step_time_s: float) -> Sight:
        now_s = time.monotonic()
        ready = [w for w, m in view.members.items() if m.phase is WorkerPhase.READY]
        self._ready_since_s = {w: self._ready_since_s.get(w, now_s) for w in ready}
        stage = proposal_stage(view)
        if stage != self._stage:
            self._stage, self._stage_since_s = stage, now_s
        return Sight(
            now_s=now_s,
            newest_step=newest_step,
            step_time_s=step_time_s,
            ready_since_s=self._ready_since_s,
            proposed_at_s=self._stage_since_s,
            withdrawals=self._withdrawals(view),
            withdrawn_at_s=self._withdrawn_at_s,
        )

    def _withdrawals(self, view: JobView) -> int:
        generation = view.current.generation if view.current else 0
        if generation != self._withdrawn_after:
            self._withdrawn_after, self._withdrawn = generation, 0
        return self._withdrawn

    def _apply(self, store: Store, decision: Decision) -> bool:
        if not decision.puts and not decision.deletes:
            return False
        puts = [Put(key=key, value=value) for key, value in decision.puts.items()]
        deletes: list[Delete] = [
            DeletePrefix(prefix=key) if key.endswith("/") else DeleteKey(key=key) for key in decision.deletes
        ]
        expected = {self._keys.leader: self._me.encode(), **decision.unchanged}
        guards = [ValueIs(key=key, value=value) for key, value in expected.items()]
        result = store.transact(guards, puts, deletes)
        if not result.succeeded:
            return False
        self._written_at = result.revision
        if decision.event == "withdrawn":
            self._withdrawn += 1
            self._withdrawn_at_s = time.monotonic()
        if decision.event:
            self._events.append(decision.event, reason=decision.reason, **decision.fields)
        return True
