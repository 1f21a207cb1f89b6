"""The training loop's inside: what happens between two batches that the user's loop sees.

Theory of operation. The loop asks for the next batch. If the body for one has just run, its virtual
worker is done; after the last local one the step is committed: gradients reduced, optimizer and
scheduler stepped, values averaged. Nothing is applied earlier, so the whole body of a step sees the
state before the step, wherever each virtual worker runs. Then the boundary is passed, where the
session may change the topology, and the next virtual worker's batch is fetched under its own seeds.
A step that cannot be committed, since a peer was lost, is dropped and its batches come again.

This module knows no store, no processes and no topology change: see `session`.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import torch
from torch import nn

from elastane.core.batching import check_policy_workers
from elastane.core.placement import check_worker_count
from elastane.model.errors import (
    ConfigError,
    DeterminismError,
    ElastaneError,
    LinkBrokenError,
    UnsupportedModelError,
)
from elastane.observe.metrics import MetricsRecord
from elastane.worker.batching import Batching
from elastane.worker.course import Course
from elastane.worker.drift import (
    CHECK_EVERY_STEPS,
    check_equal,
    combine_checksums,
    compute_checksums,
    is_check_due,
)
from elastane.worker.evaluation import compute_eval_shares
from elastane.worker.gap import Gap
from elastane.worker.reducer import GradientReducer
from elastane.worker.rehearsal import rehearse
from elastane.worker.report import (
    StepReport,
    VrankReport,
    average_values,
    compute_seconds_per_vrank,
    count_samples,
    pack_report,
    unpack_reports,
)
from elastane.worker.seeding import seed_step
from elastane.worker.session import Seating, Session
from elastane.worker.state import CapturedState, JobState, copy_state
from elastane.worker.update import NO_CALLS, Calls, Update


@dataclass(slots=True)
class _Body:
    """Hold what is known of the part of the loop body that runs for one virtual worker."""

    vrank: int
    samples: int
    began_s: float
    values: dict[str, Any] = field(default_factory=dict)
    folded: bool = False
    compute_s: float = 0.0
    calls: Calls = NO_CALLS


class Trainer:
    """Run the virtual workers of one job that are seated in this process.

    Args:
        seed: the job's seed.
        virtual_workers: N; under a batch policy the most workers.
        session: the rest of the job.
        device: where model and batches are.
        batching: the batch policy's part; None for a fixed number of virtual workers.
    """

    def __init__(
        self,
        seed: int,
        virtual_workers: int,
        session: Session,
        device: torch.device,
        batching: Batching | None = None,
    ) -> None:
        self.seed = seed
        self.virtual_workers = virtual_workers
        self.device = device
        self.course = Course(batching)
        self._session = session
        self._state: JobState | None = None
        self._update: Update | None = None
        self._reducer: GradientReducer | None = None
        self._epochs = 0
        self._max_steps: int | None = None
        self._switch_step = 0
        self.check_every = CHECK_EVERY_STEPS
        self._seating: Seating | None = None
        self._begun = False
        self._body: _Body | None = None
        self._done: list[_Body] = []
        self._next_vrank = 0
        self._step_began_s = time.monotonic()
        self._yielded_epoch: int | None = None
        self._sent: CapturedState | None = None
        self._gap = Gap(session)

    # --- set-up -------------------------------------------------------------------------------------

    def equip(self, model: nn.Module, state: JobState, update: Update, *, overlap: bool) -> None:
        """Take what `Job.prepare` was given."""
        state.register("elastane.position", self.course.position)
        if self.course.batching is not None:
            state.register("elastane.batching", self.course.batching)
        self._state = state
        self._update = update
        self._reducer = GradientReducer(model, overlap=overlap)
        update.attach(self)

    @property
    def state(self) -> JobState:
        """Return the replicated state. Raise ConfigError before `Job.prepare`."""
        if self._state is None:
            raise ConfigError("call job.prepare(model, optimizer, ...) before the training loop")
        return self._state

    @property
    def seating(self) -> Seating:
        """Return this worker's part in the present generation."""
        assert self._seating is not None, "a trainer has a seat from its first epoch on"
        return self._seating

    @property
    def present_virtual_workers(self) -> int:
        """Return N of the present generation; before the first, N or the most workers."""
        return self._seating.virtual_workers if self._seating is not None else self.virtual_workers

    @property
    def is_main(self) -> bool:
        """Tell whether this worker owns virtual worker 0; nobody does before the first epoch."""
        return self._seating is not None and self._seating.is_main

    @property
    def in_body(self) -> bool:
        """Tell whether the user's loop body is running for a virtual worker."""
        return self._body is not None

    # --- for the session ----------------------------------------------------------------------------

    @property
    def batch(self) -> str:
        """Return the batch policy in words; "" if N is fixed."""
        return self.course.batching.policy.describe() if self.course.batching is not None else ""

    def check_workers(self, workers: int) -> None:
        """Raise ConfigError unless so many workers can share a step."""
        if self.course.batching is not None:
            check_policy_workers(self.course.batching.policy, workers)
        else:
            check_worker_count(workers, self.virtual_workers)

    def take_seat(self, seating: Seating) -> None:
        """Train from now on as `seating` says, from the state as it is now."""
        assert self._reducer is not None
        self._seating = seating
        self._switch_step = self.state.step
        self.course.enter(seating.virtual_workers)
        self._restart_step()
        self._reducer.buffers_changed()
        self._reducer.enter(seating.ranges, seating.own, seating.courier)
        self.course.schedule(seating.vranks)

    def pack_gap(self) -> bytes:
        """Return what was gathered since the last step; see `Gap`."""
        return self._gap.pack()

    def take_gap(self, packed: bytes) -> None:
        """Take what was gathered by the worker whose state this is now."""
        if self._gap.catch_up(packed):
            # What its script has done since the last step is in this state already: not to be done twice.
            self._sent = copy_state(self.state.capture())

    def warm_up(self) -> str:
        """Rehearse steps whose results are thrown away.

        Returns:
            Why it could not be done: the model may need more than the batch's first element; "" if it was.
        """
        assert self._update is not None
        assert self._reducer is not None
        batch = self.course.fetch_rehearsal()
        try:
            rehearse(self._update, self._reducer, batch)
        except Exception as error:  # noqa: BLE001 - the model is the user's: any error means no warm-up
            return f"{type(error).__name__}: {error}"
        return ""

    # --- for the job --------------------------------------------------------------------------------

    def epochs(self, count: int, max_steps: int | None = None) -> Iterator[int]:
        """Yield the epochs that are still to be trained: of 0..count-1, and up to `max_steps` steps."""
        if self._begun:
            raise ConfigError("job.epochs was called twice; a job has one training loop")
        self._begun = True
        self._epochs, self._max_steps = count, max_steps
        self.course.feeder.end_after(count)
        self._session.begin(self)
        position = self.course.position
        while position.epoch < count and not self._all_steps_done:
            self._yielded_epoch = position.epoch
            yield position.epoch
            self._close_epoch()
        self._yielded_epoch = None
        self._session.finish()
        self.course.close()

    def batches(self) -> Iterator[Any]:
        """Yield the batches of this worker's virtual workers until the epoch ends."""
        if self._yielded_epoch is None:
            raise ConfigError(
                "the loader was iterated outside job.epochs; write: "
                "for epoch in job.epochs(n): for batch in loader: ..."
            )
        while (batch := self._next_batch()) is not None:
            yield batch[0]

    @property
    def remaining_samples(self) -> int:
        """Return how many samples are still to be trained, by what `epochs` was told."""
        remaining = self.course.count_remaining(self._epochs)
        if self._max_steps is not None:
            remaining = min(remaining, (self._max_steps - self.state.step) * self.course.order.global_batch)
        return max(0, remaining)

    @property
    def _all_steps_done(self) -> bool:
        return self._max_steps is not None and self.state.step >= self._max_steps

    @property
    def _epoch_done(self) -> bool:
        return self._was_sent_on or self.course.epoch_is_over or self._all_steps_done

    @property
    def _was_sent_on(self) -> bool:
        # A worker that was a step behind may be sent the state of the next epoch's start.
        return self.course.position.epoch != self._yielded_epoch

    def log(self, values: dict[str, Any]) -> None:
        """Remember values of the virtual worker whose body runs."""
        assert self._body is not None
        self._body.values.update(values)

    def deal(self, batches: int) -> range:
        """Return the numbers of the evaluation batches that are this worker's share."""
        if self._seating is None:
            return range(batches)
        return compute_eval_shares(batches, len(self._seating.ranges))[self._seating.own]

    def gather(self, payload: bytes) -> list[bytes] | None:
        """Collect bytes from all members between two steps.

        Returns:
            All payloads in topology order. None if a member was lost: this worker has entered the generation
            without it, and what was dealt out by the old one must be dealt anew.
        """
        told = self._gap.recall()
        if told is not None:
            return told
        self._restore_sent()
        return self._gap.gather(self.seating, payload)

    def fold(self) -> None:
        """Take the virtual worker's gradients: called by the first optimizer's step in the body."""
        body = self._body
        assert body is not None
        assert self._reducer is not None
        if body.folded:
            return
        body.folded = True
        took_s = time.monotonic() - body.began_s
        body.compute_s = took_s + self._session.hold_back(took_s)
        try:
            self._reducer.end_vrank()
        except LinkBrokenError as error:
            self._session.abort_commit(str(error))

    # --- one turn of the loop -----------------------------------------------------------------------

    def _next_batch(self) -> tuple[Any] | None:
        """Return the next batch, in a tuple since a batch may be anything; None at the end of the epoch."""
        if self._body is not None:
            self._close_body()
        while True:
            if self._next_vrank == self.seating.vranks.stop:
                self._commit()
            if not self._done and not self._pass_boundary():
                return None
            batch = self._open_body()
            if batch is not None:
                return batch

    def _pass_boundary(self) -> bool:
        """Stand between two steps; tell whether another step of this epoch begins."""
        if self._epoch_done:
            return False
        self._session.pass_boundary()
        self._see_ahead()
        if self._was_sent_on:
            # What the script does between the epochs is in this state already: it is not to be done twice.
            self._sent = copy_state(self.state.capture())
        self._step_began_s = time.monotonic()
        return not self._epoch_done

    def _see_ahead(self) -> None:
        """Look ahead in shards whose lengths are not known, together with all others, if the step needs it.

        Who is lost meanwhile takes with him what he found, so those that are left look anew. It is a part of
        the step: nobody commits before all have looked.
        """
        while not self._epoch_done and (goals := self.course.find_goals(self.seating.vranks)) is not None:
            own = msgspec.msgpack.encode(self.course.look_ahead(goals))
            everybody = self._gap.exchange(self.seating, own, "how many samples the next shards have")
            if everybody is not None:
                found = [msgspec.msgpack.decode(text, type=list[tuple[int, int, bool]]) for text in everybody]
                self.course.learn([one for finds in found for one in finds])

    def _open_body(self) -> tuple[Any] | None:
        """Begin the next virtual worker's part; None if it has no sample in the epoch's last step."""
        assert self._reducer is not None
        assert self._update is not None
        vrank, nominal = self._next_vrank, self.course.order.batch_size
        batch, samples = self.course.fetch(vrank)
        together = self.course.planned_samples
        self._reducer.begin_vrank(vrank, weight=samples / nominal, total_weight=together / nominal)
        self._update.begin_body()
        self._body = _Body(vrank, samples, time.monotonic())
        self._next_vrank += 1
        if not samples:
            self.fold()
            self._close_body()
            return None
        seed_step(self.seed, self.state.step, vrank)
        return (batch,)

    def _close_body(self) -> None:
        assert self._update is not None
        body, self._body = self._body, None
        assert body is not None
        if not body.folded:
            raise UnsupportedModelError(
                f"optimizer.step() was not called in the loop body of step {self.state.step}, virtual worker "
                f"{body.vrank}; call it once for every batch (accumulate by more virtual workers instead)"
            )
        body.calls = self._update.counts()
        self._done.append(body)

    def _commit(self) -> None:
        """Apply the step that all virtual workers have done their part of, or drop it to be repeated."""
        assert self._update is not None
        reports = self._reduce()
        if reports is None:
            self._drop()
            return
        if self._check_due:
            self._check_drift(reports)
        samples = count_samples(reports, self.course.planned_samples, self.state.step)
        lr_scale = self.course.lr_scale()
        self._session.check_lease()
        self._update.apply(reports[0].optimizer_calls, reports[0].scheduler_calls, lr_scale)
        record = self._record(reports, samples, lr_scale)
        self.state.step += 1
        self.course.advance(samples)
        self._session.end_commit(record, [report.checkpoint for report in reports])
        self._session.note_compute(compute_seconds_per_vrank(reports))
        self._gap.end()
        self._sent = None
        self._restart_step()

    def _reduce(self) -> list[StepReport] | None:
        assert self._reducer is not None
        if not self._session.begin_commit():
            return None
        # A worker receives at most one sum of all gradients from each of the others.
        moved_bytes = self._reducer.gradient_bytes * len(self.seating.ranges)
        self._session.note_exchange(f"the gradients of step {self.state.step}", moved_bytes)
        try:
            reports = unpack_reports(self._reducer.finish(pack_report(self._report())))
        except LinkBrokenError as error:
            self._session.abort_commit(str(error))
            return None
        self._session.note_run("the optimizer's step")
        return reports

    def _report(self) -> StepReport:
        vranks = [
            VrankReport(b.vrank, b.samples, {name: float(v) for name, v in b.values.items()})
            for b in self._done
        ]
        return StepReport(
            vranks,
            list(self._done[0].calls.optimizers),
            list(self._done[0].calls.schedulers),
            sum(b.compute_s for b in self._done),
            self._combined_checksum() if self._check_due else None,
            self._session.note_checkpoint(self.state.step + 1),
        )

    @property
    def _check_due(self) -> bool:
        alone = len(self.seating.ranges) == 1
        return not alone and is_check_due(self.state.step, self._switch_step, self.check_every)

    def _combined_checksum(self) -> int:
        assert self._reducer is not None
        # Each worker's forward passes have moved its live buffers on, by batches of its own.
        with torch.no_grad():
            self._reducer.buffers.restore()
        return combine_checksums(self._checksums())

    def _checksums(self) -> list[tuple[str, int]]:
        return compute_checksums(self.state.capture())

    def _check_drift(self, reports: list[StepReport]) -> None:
        """Raise DeterminismError if the members' states before this step differ."""
        if len({report.checksum for report in reports}) == 1:
            return
        step = self.state.step
        own = msgspec.msgpack.encode(self._checksums())
        everybody = self._gap.collect(self.seating, own, "in what the others' states differ")
        if everybody is None:
            # Which state is right nobody can tell.
            raise DeterminismError(
                f"before step {step} the states of the members differ, and one was lost before all could say "
                "in what; start again from a saved state"
            )
        tables = [msgspec.msgpack.decode(text, type=list[tuple[str, int]]) for text in everybody]
        check_equal(tables, step)

    def _record(self, reports: list[StepReport], samples: int, lr_scale: float) -> MetricsRecord:
        now_s = time.monotonic()
        return MetricsRecord(
            step=self.state.step,
            epoch=self.course.position.epoch,
            at_s=time.time(),
            generation=self.seating.generation,
            workers=len(self.seating.ranges),
            step_time_s=now_s - self._step_began_s,
            samples=samples,
            lr_scale=lr_scale,
            values=average_values(reports),
            shards=self.course.count_shards() or msgspec.UNSET,
        )

    def _drop(self) -> None:
        assert self._reducer is not None
        self._reducer.discard()
        self._restart_step()
        self.course.schedule(self.seating.vranks)

    def _restart_step(self) -> None:
        self._done.clear()
        self._next_vrank = self.seating.vranks.start

    def _close_epoch(self) -> None:
        """Go on to the next epoch after the user's loop has left this one, at its end or by `break`."""
        if self._body is not None:
            self._close_body()
        if self._done and self._next_vrank == self.seating.vranks.stop:
            self._commit()
        if self._done:
            raise ElastaneError(
                f"the loop was left in the middle of step {self.state.step}, before all virtual workers had "
                "their batch; to stop early use job.epochs(count, max_steps=...), or break between epochs on "
                "something that is equal on all workers"
            )
        if not self._restore_sent() and not self._was_sent_on:
            self.course.begin_epoch()
            self.course.schedule(self.seating.vranks)

    def _restore_sent(self) -> bool:
        """Put the state in place that another worker has sent from where the script is now, if one has."""
        sent, self._sent = self._sent, None
        if sent is not None:
            self.state.restore(sent)
        return sent is not None
