"""The session of a worker in an elastic job: enter generations, move state, leave, write metrics.

All decisions come from the protocol (`core`); this module does what entering a generation means for
tensors, links and files, in the training thread.
"""

import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from elastane.checkpoint.target import open_job_target
from elastane.core.checkpoints import ShareNote
from elastane.model.errors import LinkBrokenError
from elastane.model.ids import WorkerId
from elastane.model.records import JobPhase
from elastane.model.topology import Mode, Topology
from elastane.observe.joins import JoinPhase
from elastane.observe.metrics import MetricsLog, MetricsRecord, rewind_metrics
from elastane.worker.braking import Brake
from elastane.worker.checkpointing import Checkpointing, CheckpointPlace
from elastane.worker.control import Control
from elastane.worker.courier import Courier
from elastane.worker.digest import compute_digest
from elastane.worker.gathering import receive_bytes, send_bytes
from elastane.worker.link import Link
from elastane.worker.profiling import make_profiling
from elastane.worker.restoring import load_newest
from elastane.worker.session import Seating, Training
from elastane.worker.signature import check_signature, compute_signature
from elastane.worker.sizing import Sizing, make_sizing
from elastane.worker.standing import Left
from elastane.worker.state import JobState
from elastane.worker.straggling import make_care
from elastane.worker.transfer import receive_state, rehearse_transfer, send_state

RECORDS_KEPT = 4096
"""Records of the last steps that every worker keeps, so that a new main worker can fill the log's gap."""
LOOK_S = 0.005


class ElasticSession:
    """Be the rest of an elastic job to one training loop."""

    def __init__(self, control: Control) -> None:
        self._control = control
        # Whatever ends the script, the steps it has committed are written down.
        control.at_leave.append(lambda: self._write_metrics(main=False))
        self._standing = control.standing
        self._me = control.context.worker
        self._directory = Path(control.context.directory)
        self._training: Training | None = None
        self._metrics: MetricsLog | None = None
        self._stopped_since_s = 0.0
        self._progressed = True
        self._records: deque[MetricsRecord] = deque(maxlen=RECORDS_KEPT)
        self._care = make_care(control)
        self._brake = Brake(lambda: control.view.slowdowns.get(self._me), control.events, self._me)
        self._sizing: Sizing | None = None
        self._profiling = make_profiling(control)
        self._checkpointing = Checkpointing(self._me, control.events)
        self._members: tuple[WorkerId, ...] = ()

    @property
    def joining(self) -> bool:
        """Tell whether the job trains already, so that others can send this worker its state."""
        view = self._control.view
        return view.current is not None and not view.is_lost

    def begin(self, training: Training) -> None:
        """Prepare, say ready, and wait until a generation takes this worker in. Raises Left."""
        self._training = training
        self._control.milestones.reach(JoinPhase.BUILD)
        state = training.state
        view, joining = self._control.view, self.joining
        self._sizing = make_sizing(
            self._control,
            self._virtual_workers,
            lambda: training.remaining_samples,
            parts=self._fixed_virtual_workers,
        )
        if not joining:
            self._training.check_workers(view.spec.wanted)
        signature = compute_signature(state, self._virtual_workers, self._training.batch)
        check_signature(signature, self._control.agree_on_signature(signature))
        if joining:
            skipped = training.warm_up()
            if skipped:
                self._control.events.append("warm_up_skipped", worker=self._me, reason=skipped)
        self._open_checkpoints(load=not joining)
        rehearse_transfer(state)
        lost = view.current.generation if view.current is not None and not joining else 0
        self._control.milestones.reach(JoinPhase.WARM_UP)
        self._standing.announce_ready(self._virtual_workers, state.step, restored_after=lost)
        phases = self._control.milestones.durations()
        self._control.events.append("worker_ready", worker=self._me, step=state.step, phases=phases)
        self.pass_boundary()

    def _open_checkpoints(self, *, load: bool) -> None:
        """Take checkpoints from now on; with `load` go on from the newest one, if there is one."""
        assert self._training is not None
        context = self._control.context
        plan = context.checkpoints
        place = CheckpointPlace(
            job=context.job,
            virtual_workers=self._fixed_virtual_workers,
            target=open_job_target(plan, context.directory, context.job),
            plan=plan,
        )
        self._checkpointing.open(place)
        if not load:
            return
        loaded = load_newest(
            place.target,
            job=place.job,
            virtual_workers=place.virtual_workers,
            note_run=self._standing.note_run,
        )
        if loaded is not None:
            self._training.state.restore(loaded.state)
            self._control.events.append(
                "checkpoint_loaded",
                worker=self._me,
                step=loaded.manifest.step,
                path=f"{place.target.url}/{loaded.manifest.name.folder}",
                refused=loaded.refused,
            )

    @property
    def _virtual_workers(self) -> int:
        assert self._training is not None
        return self._training.virtual_workers

    @property
    def _fixed_virtual_workers(self) -> int:
        assert self._training is not None
        return 0 if self._training.batch else self._training.virtual_workers

    def pass_boundary(self) -> None:
        """Enter whatever generation is due; return when the next step may begin. Raises Left."""
        assert self._training is not None
        # A step that was dropped was no progress: it counts from the boundary before it.
        if self._progressed:
            self._stopped_since_s, self._progressed = time.monotonic(), False
        while (topology := self._standing.await_turn(self._training.state.step)) is not None:
            self._enter(topology)

    def hold_back(self, took_s: float) -> float:
        """Wait as a drill asks of this worker; return for how long."""
        return self._brake.hold_back(took_s)

    def begin_commit(self) -> bool:
        """Tell whether the step in flight may be committed. Raises Left."""
        return self._standing.begin_commit()

    def begin_gather(self) -> bool:
        """Tell whether a gathering may begin: like a commit it is finished before this worker halts."""
        return self._standing.begin_commit()

    def end_gather(self) -> None:
        """Take note that this worker has what all members gave."""
        self._standing.end_gather()

    def check_lease(self) -> None:
        """Raise Left if the lease may have run out."""
        self._control.check_lease()

    def note_checkpoint(self, step: int) -> ShareNote | None:
        """Return what to tell the other members about checkpoints."""
        return self._checkpointing.note(step)

    def end_commit(self, record: MetricsRecord, notes: Sequence[ShareNote | None]) -> None:
        """Take note of a committed step; the main worker writes it down."""
        assert self._training is not None
        self._progressed = True
        self._records.append(record)
        if self._metrics is not None:
            self._metrics.append(record)
        self._standing.end_commit(record.step_time_s)
        if self._sizing is not None:
            self._sizing.observe(record)
        if self._profiling is not None and self._profiling.observe(record) and self._metrics is not None:
            self._metrics.flush()  # who measures waits for these lines
        told = dict(zip(self._members, notes, strict=True))
        self._checkpointing.commit(self._training.state.step, told, self._training.state.capture)

    def note_compute(self, seconds: Sequence[float]) -> None:
        """Take note of each member's own compute time; the main worker looks after the slow ones."""
        if self._care is not None:
            self._care.observe(seconds)

    def abort_commit(self, why: str) -> None:
        """Take note that a peer was lost before the step, or a gathering between two steps, was through."""
        if self._progressed:
            self._stopped_since_s, self._progressed = self._standing.waits_since_s, False
        self._tell_broken(self._standing.commit_failed(why), why)

    def note_exchange(self, what: str, moved_bytes: int) -> None:
        """Take note of the data of its peers for which the training thread is going to wait."""
        self._standing.note_exchange(what, moved_bytes)

    def note_run(self, what: str) -> None:
        """Take note that the training thread goes on by itself."""
        self._standing.note_run(what)

    def finish(self) -> None:
        """Return when all have come to the end of training: until then somebody may need this one's state."""
        assert self._training is not None
        self._write_metrics(main=False)
        step = self._training.state.step
        self._standing.announce_finished()
        while not self._control.may_finish():
            self._standing.note_stand("the others to come to the end of training")
            due = self._standing.await_switch(step, LOOK_S)
            if due is not None:
                self._stopped_since_s = time.monotonic()
                self._enter(due)
                self._write_metrics(main=False)
                self._standing.announce_finished()
        self._checkpointing.close()
        digest = compute_digest(self._training.state.capture())
        if self._control.end_job(JobPhase.FINISHED, f"trained {step} steps", digest=digest):
            self._control.events.append("finished", worker=self._me, step=step, digest=digest)

    # --- entering a generation ----------------------------------------------------------------------

    def _enter(self, topology: Topology) -> None:
        assert self._training is not None
        if topology.mode is Mode.STOP:
            self._stop(topology)
            return
        # In a start the supplier's own state becomes the job's.
        had_state = self._standing.gate.has_state or self._me in topology.suppliers
        joins = self._standing.gate.generation == 0
        if joins:
            self._control.milestones.reach(JoinPhase.AGREE)
        courier = self._standing.link_of(topology)
        try:
            moved_bytes = self._move_state(topology, courier, had_state=had_state)
        except LinkBrokenError as error:
            # A joiner's state is a mixture now; whoever had the job's state before still has it.
            self._tell_broken(
                self._standing.switch_failed(topology, str(error), has_state=had_state), str(error)
            )
            return
        if topology.member(self._me) is None:
            self._tell_switched(topology, moved_bytes)
            self._leave(topology)
            return
        self._training.take_seat(
            Seating(
                generation=topology.generation,
                ranges=tuple(m.vranks for m in topology.members),
                own=[m.worker for m in topology.members].index(self._me),
                courier=courier if len(topology.members) > 1 else None,
            )
        )
        self._standing.entered(topology)
        self._members = tuple(m.worker for m in topology.members)
        self._checkpointing.enter(topology)
        main = topology.members[0].worker == self._me
        if main and topology.mode.begins:
            self._tell_restored(topology)
        self._write_metrics(main=main)
        if self._care is not None:
            self._care.enter(topology if main else None)
        if self._sizing is not None:
            self._sizing.enter(topology if main else None)
        if self._profiling is not None:
            self._profiling.enter(topology, main=main)
        if joins:
            self._tell_joined(topology)
        else:
            self._tell_switched(topology, moved_bytes)

    def _move_state(self, topology: Topology, courier: Courier | None, *, had_state: bool) -> int:
        """Send or receive the state, if it is this worker's part; return how many bytes a supplier's has."""
        assert self._training is not None
        peers = list(topology.peers)
        suppliers = [peers.index(w) for w in topology.suppliers]
        receivers = [peers.index(w) for w in topology.receivers]
        own = peers.index(self._me)
        if courier is None or not receivers or (own not in suppliers and own not in receivers):
            return 0
        state = self._training.state
        self._standing.note_exchange(f"the state of step {topology.switch_step}", estimate_bytes(state))
        moved_bytes = 0
        if own in suppliers:
            self._write_ahead(topology, first=own == suppliers[0])
            captured = state.capture()
            moved_bytes = captured.tensor_bytes
            gap = self._training.pack_gap() if topology.mode.repairs and own == suppliers[0] else b""

            def send(link: Link) -> None:
                if gap:
                    send_bytes(link, receivers, gap)
                send_state(link, captured, own=own, suppliers=suppliers, receivers=receivers)

            courier.submit(send).wait()
        else:
            # A start may have to begin anew with the state of anybody: it must stay whole until then.
            in_place = not had_state and not topology.mode.begins

            told: list[bytes] = []

            def receive(link: Link) -> None:
                # First: if this breaks, the state is still the old one.
                if topology.mode.repairs:
                    told.append(receive_bytes(link, suppliers[0]))
                receive_state(link, state, suppliers=suppliers, in_place=in_place)

            courier.submit(receive).wait()
            for gap in told:
                self._training.take_gap(gap)
        self._standing.note_run("entering a generation")
        return moved_bytes

    def _tell_broken(self, generation: int, why: str) -> None:
        if generation:
            self._control.events.append("link_broken", worker=self._me, generation=generation, reason=why)

    def _leave(self, topology: Topology) -> None:
        """Give up the seat. The rules say when nobody needs this worker's state and links any more."""
        self._write_metrics(main=False)
        self._standing.entered(topology)
        self._checkpointing.enter(topology)
        self._checkpointing.close()
        self._control.events.append(
            "left", worker=self._me, generation=topology.generation, step=topology.switch_step
        )

    def _stop(self, topology: Topology) -> None:
        """Leave for good, when all have come here: one of them saves the state for all. Raises Left.

        Returns only if somebody was lost on the way here and the others go on once more.
        """
        assert self._training is not None
        self._write_metrics(main=False)
        self._standing.entered(topology)
        self._standing.note_stand("the state to be saved")
        while (due := self._standing.await_switch(self._training.state.step, LOOK_S)) is None:
            if self._control.may_save():
                self._control.check_lease()  # without one somebody else may be saving already
                self._save()
                raise Left(topology.reason)
        self._stopped_since_s = time.monotonic()
        self._enter(due)

    def _save(self) -> None:
        assert self._training is not None
        state = self._training.state.capture()
        generation = self._standing.gate.generation
        path = self._checkpointing.save(state, generation)
        if self._control.end_job(JobPhase.STOPPED, f"state of step {state.step} saved", saved=path):
            self._control.events.append("stopped", worker=self._me, step=state.step, path=path)

    def _write_ahead(self, topology: Topology, *, first: bool) -> None:
        """Write down the steps so far before others get the state: they are sent it, not the records.

        From then on one of them may be all that is left of the job. After a loss it may have been the main
        worker who died with the last lines, so the first supplier looks what is missing.
        """
        if self._metrics is not None:
            self._metrics.flush()
        elif first and topology.mode is Mode.RECOVERY:
            self._fill_metrics()

    def _fill_metrics(self) -> None:
        """Write the steps that the log lacks from this worker's own records."""
        try:
            log = MetricsLog(self._directory)
            log.recover(self._records)
            log.close()
        except OSError as error:
            self._control.events.append("metrics_lost", worker=self._me, reason=str(error))

    def _write_metrics(self, *, main: bool) -> None:
        if main and self._metrics is None:
            try:
                self._metrics = MetricsLog(self._directory)
            except OSError as error:
                self._control.events.append("metrics_lost", worker=self._me, reason=str(error))
                return
            missing = self._metrics.recover(self._records)
            if missing:
                reason = f"{missing} steps before this worker's first are not in the log"
                self._control.events.append("metrics_lost", worker=self._me, reason=reason)
        elif not main and self._metrics is not None:
            self._metrics.close()
            self._metrics = None

    def _tell_restored(self, topology: Topology) -> None:
        """Cut the steps off the metrics that are going to be repeated, and say how many they are."""
        step = topology.switch_step or 0
        self._write_metrics(main=False)
        try:
            repeated = rewind_metrics(self._directory, step)
        except OSError as error:
            self._control.events.append("metrics_lost", worker=self._me, reason=str(error))
            repeated = 0
        if topology.mode is Mode.RESTORE or repeated or step:
            self._control.events.append(
                "restored",
                worker=self._me,
                generation=topology.generation,
                step=step,
                repeated=repeated,
                reason=f"from the checkpoint of step {step}" if step else "no checkpoint: from the beginning",
            )

    def _tell_joined(self, topology: Topology) -> None:
        requested_s = self._control.context.requested_at_s
        self._control.milestones.reach(JoinPhase.TRANSFER)
        self._control.events.append(
            "joined",
            worker=self._me,
            generation=topology.generation,
            step=topology.switch_step,
            latency_s=time.monotonic() - requested_s if requested_s else None,
            phases=self._control.milestones.durations(),
        )

    def _tell_switched(self, topology: Topology, moved_bytes: int) -> None:
        """Log the change once: by the first of those that were stopped by it, if possible one that stays."""
        staying = [w for w in topology.suppliers if topology.member(w) is not None]
        if (staying or list(topology.suppliers))[:1] != [self._me]:
            return
        self._control.events.append(
            "switched",
            generation=topology.generation,
            step=topology.switch_step,
            mode=topology.mode.value,
            workers=len(topology.members),
            stop_s=time.monotonic() - self._stopped_since_s,
            moved_bytes=moved_bytes,
            reason=topology.reason,
        )


def estimate_bytes(state: JobState) -> int:
    """Return about how much a transfer of the state moves, without taking it apart.

    Beside its value an optimizer keeps up to three numbers for each parameter (Adam with amsgrad).
    """
    models = state.named_models().values()
    return 4 * sum(parameter.nbytes for model in models for parameter in model.parameters())
