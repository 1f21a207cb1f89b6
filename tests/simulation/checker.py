"""The invariants of `docs/protocol.md`, checked at every event that could break one."""

from typing import TYPE_CHECKING

from elastane.core.data_order import DataOrder
from elastane.core.gate import ProposalId
from elastane.core.view import JobView
from elastane.model.ids import WorkerId
from elastane.model.records import JobPhase, Recovery
from elastane.model.topology import Mode, Topology

from .toy import Part, Sent, Share, State, StepRecord, compute_next

if TYPE_CHECKING:
    from .world import World

PROGRESS_BOUND_S = 20.0
"""After the last fault the next step is committed within this time: one lease (3 s), an attempt to connect
that runs into its limit (10 s), and a start of new workers."""


class ViolationError(Exception):
    """Say which invariant does not hold, and how."""

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant


class Checker:
    """Watch one world."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.reference: dict[int, bytes] = {}
        self.topologies: dict[int, Topology] = {}
        self.commits: dict[int, list[tuple[int, WorkerId]]] = {}
        self._used: dict[int, tuple[int, ...]] = {}
        self.newest_step = -1
        self.progress_at_s = 0.0
        self._before: JobView | None = None
        self._saved_at_loss = 0

    def fail(self, invariant: str, text: str) -> None:
        """Say that an invariant is broken."""
        raise ViolationError(invariant, f"at {self.world.loop.now_s:.4f} s: {text}")

    def _check(self, holds: bool, invariant: str, text: str) -> None:
        if not holds:
            self.fail(invariant, text)

    # --- records ------------------------------------------------------------------------------------

    def records_changed(self, author: str) -> None:
        """Check what somebody has just written."""
        view = self.world.storage.newest
        before, self._before = self._before, view
        if view is None or before is None or author == "operator":
            return
        if view.current != before.current or view.proposal != before.proposal:
            self._check(
                before.leader == author == view.leader,
                "I9",
                f"{author} has changed the topology, but the leader was {before.leader}",
            )
        if view.current is not None and view.current != before.current:
            self._check_generation(before.current, view.current, view)
        if view.is_lost and not before.is_lost:
            self._saved_at_loss = self.world.saved.step if self.world.saved is not None else 0
        if view.status.phase is JobPhase.FAILED is not before.status.phase:
            # Who has left with an earlier generation is on its way out, and nobody counts on it.
            counted_on = view.current.peers if view.current is not None else ()
            holders = [w for w in self._holders(view) if w in counted_on]
            self._check(
                not holders, "I4", f"the job failed ({view.status.message}), but {holders} hold its state"
            )

    def _check_generation(self, old: Topology | None, new: Topology, view: JobView) -> None:
        newest = old.generation if old else view.status.earlier_generations
        self._check(new.generation > newest, "I1", f"generation {new.generation} after {newest}")
        known = self.topologies.setdefault(new.generation, new)
        self._check(known == new, "I1", f"generation {new.generation} has two memberships")
        if new.mode is not Mode.STOP:
            owned = [v for m in new.members for v in range(*m.vranks)]
            whole = self._vranks(new)
            self._check(owned == whole, "I3", f"generation {new.generation} places {owned}")
        if new.mode is Mode.RESTORE:
            self._check_restored(new)
        if new.mode.begins:
            self._begin_reference(new)
        step = new.switch_step or 0
        for worker in self._holders(view):
            gate = self.world.workers[worker].stance.gate
            lost = gate.generation > 0 and gate.committed > step
            self._check(
                not lost,
                "I4",
                f"generation {new.generation} begins at {step}, {worker} stands at {gate.committed}",
            )

    def _vranks(self, topology: Topology) -> list[int]:
        count = self.world.toy.count_vranks(self.world.virtual_workers, len(topology.members))
        return list(range(count))

    def _check_restored(self, new: Topology) -> None:
        """Check that a job that everybody was lost of goes on from the newest checkpoint."""
        step = new.switch_step or 0
        # A worker that was frozen for longer than its lease may have completed a later one meanwhile.
        newest = self.world.saved.step if self.world.saved is not None else 0
        right = self._saved_at_loss <= step <= newest
        self._check(right, "I10", f"{new.generation} begins at {step}, saved was {self._saved_at_loss}")
        state = self.world.workers[new.suppliers[0]].state
        known = step == 0 or state in self.world.checkpoints
        self._check(known, "I10", f"{new.suppliers[0]} begins with {state}, which nobody has saved")
        if self.reference.get(step) != state.digest:
            # Nobody says that scripts are seeded: who finds no checkpoint begins another history.
            self.commits = {s: commits for s, commits in self.commits.items() if s < step}
            self.reference = self._compute_history(state)
        self.newest_step = step - 1

    def _begin_reference(self, start: Topology) -> None:
        state = self.world.workers[start.suppliers[0]].state
        if not self.commits:
            self.reference = self._compute_history(state)
        self._check(
            self.reference[state.step] == state.digest or state.step == self.world.total_steps, "I4", "start"
        )

    def _compute_history(self, state: State) -> dict[int, bytes]:
        history = {state.step: state.digest}
        order = tuple(range(self.world.virtual_workers))
        for _ in range(self.world.total_steps):
            state = compute_next(state, order)
            history[state.step] = state.digest
        return history

    def _holders(self, view: JobView) -> list[WorkerId]:
        """Return the workers that hold the job's state and that nobody has given up."""
        return [
            name
            for name, worker in self.world.workers.items()
            if worker.process.alive and view.alive(name) and worker.stance.gate.has_state
        ]

    # --- workers ------------------------------------------------------------------------------------

    def trains(self, worker: WorkerId) -> None:
        """Check a worker that is about to commit."""
        self.world.storage.expire()
        newest = self.world.storage.newest
        assert newest is not None
        self._check(worker in newest.members, "I5", f"{worker} trains without a lease")

    def shares_fit(self, worker: WorkerId, own: Share, shares: dict[WorkerId, object]) -> None:
        """Check what a gathering between two steps has brought: shares of this very gathering."""
        strange = {w: share for w, share in shares.items() if share != own}
        self._check(not strange, "I3", f"{worker} in {own} is given {strange}")

    def parts_fit(self, worker: WorkerId, state: State, parts: dict[WorkerId, Part]) -> None:
        """Check what is about to be added up."""
        strange = {w: p for w, p in parts.items() if not isinstance(p, Part) or p.state != state}
        self._check(not strange, "I3", f"{worker} at step {state.step} adds up parts of {strange}")

    def committed(self, worker: WorkerId, record: StepRecord) -> None:
        """Check a step that a worker has just committed."""
        step = record.step
        whole = self._vranks(self.topologies[record.generation])
        self._check(list(record.vranks) == whole, "I3", f"step {step} used virtual workers {record.vranks}")
        if self._is_bygone(worker, record.generation):
            return
        self._check_result(worker, record)
        self._check_once(worker, record)
        if step > self.newest_step:
            self.newest_step = step
            self.progress_at_s = self.world.loop.now_s

    def _check_result(self, worker: WorkerId, record: StepRecord) -> None:
        right = record.digest == self.reference[record.step + 1]
        self._check(right, "hash", f"{worker} has another state after step {record.step}")

    def _is_bygone(self, worker: WorkerId, generation: int) -> bool:
        """Tell whether the job has begun anew from a checkpoint without a worker that has yet to learn of it.

        One that was frozen while all were dismissed may finish the step that it was in.
        """
        view = self.world.storage.newest
        assert view is not None
        begun = [g for g, t in self.topologies.items() if t.mode is Mode.RESTORE and g > generation]
        return bool(begun) and not view.alive(worker)

    def _check_once(self, worker: WorkerId, record: StepRecord) -> None:
        earlier = self.commits.setdefault(record.step, [])
        others = [w for generation, w in earlier if generation != record.generation]
        if others:
            view = self.world.storage.newest
            assert view is not None
            living = [w for w in others if view.alive(w) and self.world.workers[w].process.alive]
            self._check(
                not living,
                "I2",
                f"step {record.step}, committed by {living}, is committed again in {record.generation}",
            )
        earlier.append((record.generation, worker))
        self._used[record.step] = record.vranks

    def promised(self, worker: WorkerId, proposal: ProposalId) -> None:
        """Check that a promise, which may make a step wait, waits for no newcomer."""
        ready = self.world.fabric.all_connected(proposal)
        self._check(ready, "I8", f"{worker} was asked to promise for {proposal} before all had connected")

    def entered(self, worker: WorkerId, state: State, topology: Topology) -> None:
        """Check a worker that has just entered a generation."""
        step = topology.switch_step or 0
        if topology.member(worker) is None and worker not in topology.suppliers:
            return
        if self._is_bygone(worker, topology.generation):
            return
        right = state.step == step and state.digest == self.reference.get(step)
        self._check(right, "I4", f"{worker} enters generation {topology.generation} at {step} with {state}")

    def supplies_agree(self, worker: WorkerId, topology: Topology, states: set[Sent]) -> None:
        """Check the shares of the state that a newcomer is sent."""
        self._check(len(states) == 1, "I4", f"{worker} is sent {states} for {topology.generation}")

    def is_history(self, state: State) -> bool:
        """Tell whether a state is one that the job has come through; not so one of before it began anew."""
        return self.reference.get(state.step) == state.digest

    def saved(self, worker: WorkerId, state: State) -> None:
        """Check the state that is saved of a job that stops."""
        view = self.world.storage.newest
        assert view is not None
        # By then its own lease may have run out, as the store has it, and there is nobody else.
        holders = self._holders(view)
        newest = max((self.world.workers[w].stance.gate.committed for w in holders), default=state.step)
        right = state.digest == self.reference[state.step] and state.step == newest
        self._check(right, "I4", f"{worker} saves {state}, and {newest} steps are committed")

    def was_let_go(self, worker: WorkerId) -> None:
        """Check that a worker that the rules have sent away was not the last one with the state."""
        view = self.world.storage.newest
        gate = self.world.workers[worker].stance.gate
        if not gate.has_state or view is None or view.status.phase.ended:
            return
        if worker in view.dismissed and view.spec.recovery is Recovery.CHECKPOINT:
            return
        others = [x.stance.gate for w, x in self.world.workers.items() if w != worker]
        took_over = any(o.has_state and o.generation >= gate.generation for o in others)
        self._check(took_over, "I4", f"{worker}, the last that held the state, was let go")

    def came_to_end(self, worker: WorkerId, state: State) -> None:
        """Check a worker that has come to the end of training."""
        right = state[:2] == (self.world.total_steps, self.reference[self.world.total_steps])
        self._check(right, "hash", f"{worker} ends with {state}")

    # --- the whole ----------------------------------------------------------------------------------

    def check_progress(self) -> None:
        """Check that a job that nothing disturbs goes on."""
        world = self.world
        view = world.storage.newest
        if view is None or view.status.phase.ended or view.spec.stop:
            self.progress_at_s = world.loop.now_s
            return
        since_s = max(self.progress_at_s, world.quiet_at_s)
        if world.loop.now_s - since_s > PROGRESS_BOUND_S and self.newest_step + 1 < world.total_steps:
            self.fail(
                "I7", f"no step since {self.progress_at_s:.3f} s; undisturbed since {world.quiet_at_s} s"
            )

    def check_end(self) -> None:
        """Check the world at its end."""
        view = self.world.storage.newest
        assert view is not None
        if view.status.phase is JobPhase.FINISHED:
            missing = [s for s in range(self.world.total_steps) if s not in self.commits]
            self._check(not missing, "I6", f"steps that nobody has committed: {missing}")
            self._check_samples()
        self._check_staffing(view)

    def _check_samples(self) -> None:
        """Count how often each sample of each whole epoch was trained."""
        n = self.world.virtual_workers
        order = DataOrder(samples=5 * n * 2 - 1, virtual_workers=n, batch_size=2)
        epochs: dict[int, list[int]] = {}
        for number, vranks in self._used.items():
            epoch, step = divmod(number, order.steps_per_epoch)
            positions = epochs.setdefault(epoch, [])
            for vrank in vranks:
                positions.extend(order.positions(epoch, step, vrank))
        for epoch in range(self.world.total_steps // order.steps_per_epoch):
            right = sorted(epochs[epoch]) == list(range(order.samples))
            self._check(right, "I6", f"epoch {epoch} trained other samples than the data set's, each once")

    def _check_staffing(self, view: JobView) -> None:
        world = self.world
        if view.status.phase.ended:
            left = [w for w, x in world.workers.items() if x.process.alive and not x.process.frozen]
            self._check(not left or world.ended_s < 30.0, "I7", f"{left} live on after the job's end")
            return
        quiet_s = world.loop.now_s - world.quiet_at_s
        if view.current is None or view.spec.stop or quiet_s < 24.0:
            return
        wanted = min(view.spec.wanted, world.virtual_workers, world.devices)
        finishing = self.newest_step + 1 >= world.total_steps
        seated = len(view.current.members)
        self._check(seated == wanted or finishing, "I7", f"{seated} workers train, {wanted} are wanted")
