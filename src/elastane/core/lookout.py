"""What a worker remembers to lead a job: when it saw what first, and what it wrote last.

`core.leader.decide` remembers nothing; whoever leads needs no more than this beside the store, and one
that begins to lead later begins with nothing. Pure: the clock's reading is handed in.
"""

from collections.abc import Mapping

from elastane.core.blame import Progress, progress_of
from elastane.core.gate import ProposalId
from elastane.core.leader import Decision, Sight, proposal_stage
from elastane.core.view import JobView, encode
from elastane.model.ids import WorkerId
from elastane.model.records import JobKeys, WorkerPhase


class Lookout:
    """Remember when what was seen first; used by one worker.

    Attributes:
        written_at: revision of the last decision that took effect.
        wake_at_s: when to decide again, even if nothing changes.
    """

    def __init__(self) -> None:
        self.written_at = 0
        self.wake_at_s = float("inf")
        self._ready_since_s: dict[WorkerId, float] = {}
        self._progress: dict[WorkerId, tuple[Progress, float]] = {}
        self._stage: tuple[ProposalId, bool] | None = None
        self._stage_since_s = 0.0
        self._withdrawals = 0
        self._withdrawn_at_s = 0.0
        self._withdrawn_after = 0

    def look(self, view: JobView, now_s: float, newest_step: int, step_time_s: float) -> Sight:
        """Return what the leader knows beside the store.

        Args:
            view: the job.
            now_s: the worker's monotonic clock.
            newest_step: the newest step that its own training loop has begun.
            step_time_s: recent time per step; 0 if not known.
        """
        ready = [w for w, m in view.members.items() if m.phase is WorkerPhase.READY]
        self._ready_since_s = {w: self._ready_since_s.get(w, now_s) for w in ready}
        self._progress = {w: self._follow(w, progress_of(m), now_s) for w, m in view.members.items()}
        stage = proposal_stage(view)
        if stage != self._stage:
            self._stage, self._stage_since_s = stage, now_s
        generation = view.current.generation if view.current else 0
        if generation != self._withdrawn_after:
            self._withdrawn_after, self._withdrawals = generation, 0
        return Sight(
            now_s=now_s,
            newest_step=newest_step,
            step_time_s=step_time_s,
            ready_since_s=self._ready_since_s,
            unchanged_since_s={w: since_s for w, (_, since_s) in self._progress.items()},
            proposed_at_s=self._stage_since_s,
            withdrawals=self._withdrawals,
            withdrawn_at_s=self._withdrawn_at_s,
        )

    def wrote(self, decision: Decision, revision: int, now_s: float) -> None:
        """Take note of a decision that took effect."""
        self.written_at = revision
        if decision.event == "withdrawn":
            self._withdrawals += 1
            self._withdrawn_at_s = now_s

    def _follow(self, worker: WorkerId, progress: Progress, now_s: float) -> tuple[Progress, float]:
        before = self._progress.get(worker)
        return before if before is not None and before[0] == progress else (progress, now_s)


def guard_decision(
    keys: JobKeys, view: JobView, leader: WorkerId, decision: Decision
) -> Mapping[str, bytes | None]:
    """Return what must stand in the store for a decision to take effect; None stands for an absent key.

    Beside the leader key these are both topologies as they were seen: a request that got lost on its way, was
    given up, and arrives after a later decision must not undo it.
    """
    seen = {keys.current: view.current, keys.proposal: view.proposal}
    topologies = {key: encode(t) if t is not None else None for key, t in seen.items()}
    return {keys.leader: leader.encode(), **topologies, **decision.unchanged}
