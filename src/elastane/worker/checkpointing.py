"""Take checkpoints while the training goes on: the part of one worker.

Theory of operation. At a boundary that is due, the training thread copies the worker's share of the state and
returns; a thread of its own writes it. What has become of it goes into the worker's next step reports, and
from all members' reports comes, by the rules in `core/checkpoints.py`, what each makes of the checkpoint that
is under way. One is under way at a time: while anybody still writes, the next is skipped. Whatever goes wrong
with a checkpoint is told in the events and costs the training nothing.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from elastane.checkpoint.catalog import AbandonedError, find_missing, remove_old, write_file, write_manifest
from elastane.checkpoint.manifest import Manifest
from elastane.checkpoint.target import Target
from elastane.core.checkpoints import (
    CheckpointName,
    Flight,
    SavedFile,
    ShareNote,
    find_obstacle,
    hear_notes,
    is_due,
    share_file,
)
from elastane.model.errors import StateFileError
from elastane.model.ids import JobId, WorkerId
from elastane.model.records import CheckpointPlan
from elastane.model.topology import Topology
from elastane.observe.events import EventLog
from elastane.worker.snapshot import Snapshot, SnapshotBuffer
from elastane.worker.state import CapturedState

DESCRIPTION_FILE = "description.msgpack"
LAST_WRITE_S = 5.0
"""How long a worker that stops waits for its writing thread: that ends with its block, or its manifest."""
SHORTAGE = (MemoryError, RuntimeError)
"""What is raised where there is no memory for a copy (by torch: RuntimeError), or no further thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPlace:
    """Hold what the checkpoints of a job have in common."""

    job: JobId
    virtual_workers: int
    target: Target
    plan: CheckpointPlan


class _Write:
    """Be one share on its way to the target: shared by the training thread and a writing thread."""

    def __init__(self, flight: Flight, me: WorkerId) -> None:
        self.name = flight.name
        self.share = flight.writers.index(me)
        self.shares = len(flight.writers)
        self.snapshot: Snapshot | None = None
        self.began_s = time.monotonic()
        self.abandoned = threading.Event()
        self.busy = True
        self.file: SavedFile | None = None
        self.description: SavedFile | None = None
        self.failure = ""

    def take(self, buffer: SnapshotBuffer, state: CapturedState) -> Snapshot:
        """Copy the share of the state, and describe the state with the first one."""
        self.snapshot = buffer.take(state, share=self.share, shares=self.shares, describe=self.share == 0)
        return self.snapshot

    def fail(self, error: Exception) -> None:
        """Take note that nothing will come of this share: the next step report tells it to all."""
        self.failure = _describe(error)
        self.busy = False


class Checkpointing:
    """Do one worker's part of the checkpoints of its job; all methods are for the training thread."""

    def __init__(self, me: WorkerId, events: EventLog) -> None:
        self._me = me
        self._events = events
        self._place: CheckpointPlace | None = None
        self._buffer = SnapshotBuffer()
        self._topology: Topology | None = None
        self._flight: Flight | None = None
        self._write: _Write | None = None
        self._thread: threading.Thread | None = None
        self._taken_s = time.monotonic()

    def open(self, place: CheckpointPlace) -> None:
        """Take checkpoints for `place` from now on."""
        self._place = place

    def enter(self, topology: Topology) -> None:
        """Go on in another generation: what is under way may come to nothing with it."""
        if self._topology is None:
            self._taken_s = time.monotonic()
        self._topology = topology
        obstacle = find_obstacle(self._flight, topology) if self._flight is not None else ""
        if obstacle:
            self._abandon(obstacle)

    def note(self, step: int) -> ShareNote | None:
        """Return what to tell the other members with the step that leads to `step`; None for nothing."""
        write, place, topology = self._write, self._place, self._topology
        since_s = time.monotonic() - self._taken_s
        main = topology is not None and bool(topology.members) and topology.members[0].worker == self._me
        due = main and place is not None and is_due(place.plan, step, since_s)
        if write is None:
            return ShareNote(due=due) if due else None
        busy = write.busy or self._flight is not None
        if not (due or busy):
            return None
        generation, number = write.name
        return ShareNote(due, busy, generation, number, write.file, write.failure)

    def commit(
        self, step: int, notes: Mapping[WorkerId, ShareNote | None], capture: Callable[[], CapturedState]
    ) -> None:
        """Take note of what all members told with a step that is committed; take a checkpoint if one is due.

        Args:
            step: steps committed by now.
            notes: by member, in topology order.
            capture: returns the state at this boundary.
        """
        told = {worker: note for worker, note in notes.items() if note is not None}
        if not told:
            return
        self._hear(told)
        main = next(iter(notes))
        if main in told and told[main].due:
            self._taken_s = time.monotonic()
            busy = [worker for worker, note in told.items() if note.busy]
            if busy:
                self._tell_skipped(main, step, busy)
            else:
                self._begin(step, tuple(notes), capture)

    def save(self, state: CapturedState, generation: int) -> str:
        """Write the whole state at once, while the job stands still; what is under way is given up.

        Args:
            state: the state.
            generation: the present one.

        Returns:
            Where it lies.

        Raises:
            StateFileError: the target is full or cannot be reached, or there is no memory for a copy.
        """
        self.close()
        place = self._known_place()
        name = CheckpointName(generation, state.step)
        flight = Flight(name=name, writers=(self._me,))
        write = _Write(flight, self._me)
        try:
            write.take(self._buffer, state)
            _write_share(place.target, write)
            manifest = _make_manifest(place, write, flight.name, [_known(write.file)])
            write_manifest(place.target, manifest)
        except (OSError, *SHORTAGE) as error:
            raise StateFileError(
                f"cannot save the state of step {state.step} ({state.tensor_bytes} bytes) to "
                f"{place.target.url}: {_describe(error)}; free some space or make it writable. Checkpoints "
                "that were saved there before are still whole"
            ) from error
        self._tell_saved(write, manifest)
        self._remove_old(place)
        return f"{place.target.url}/{manifest.name.folder}"

    def close(self) -> None:
        """Give up what is under way, unless its manifest is being written; wait a moment for the thread."""
        if self._flight is not None:
            self._abandon("the job ended before all shares were written")
        if self._thread is not None:
            self._thread.join(LAST_WRITE_S)

    # --- in the training thread ---------------------------------------------------------------------

    def _known_place(self) -> CheckpointPlace:
        assert self._place is not None, "a worker knows the place before it takes part"
        return self._place

    def _begin(self, step: int, members: tuple[WorkerId, ...], capture: Callable[[], CapturedState]) -> None:
        assert self._topology is not None
        began_s = time.monotonic()
        flight = Flight(name=CheckpointName(self._topology.generation, step), writers=members)
        write = _Write(flight, self._me)
        self._flight, self._write = flight, write
        try:
            snapshot = write.take(self._buffer, capture())
            self._run(lambda: self._write_own(write))
        except SHORTAGE as error:
            write.fail(error)
            return
        if write.share == 0:
            self._events.append(
                "checkpoint_begun",
                worker=self._me,
                step=step,
                bytes=snapshot.state_bytes,
                workers=len(members),
                stop_s=time.monotonic() - began_s,
            )

    def _hear(self, told: Mapping[WorkerId, ShareNote]) -> None:
        if self._flight is None:
            return
        heard = hear_notes(self._flight, told)
        if isinstance(heard, str):
            self._abandon(heard)
            return
        self._flight = heard
        if heard.whole:
            self._flight = None
            if heard.writers[0] == self._me:
                write = self._write
                assert write is not None
                write.busy = True
                try:
                    self._run(lambda: self._complete(write, heard))
                except SHORTAGE as error:
                    write.busy = False
                    self._tell_failed(
                        heard.name.step, f"the manifest could not be written: {_describe(error)}"
                    )

    def _abandon(self, why: str) -> None:
        flight, self._flight = self._flight, None
        assert flight is not None
        if self._write is not None:
            self._write.abandoned.set()
        if flight.writers[0] == self._me:
            self._tell_failed(flight.name.step, why)

    def _run(self, work: Callable[[], None]) -> None:
        # Not a pool: threads of a pool are waited for when the process ends, however slow the target.
        thread = threading.Thread(target=work, name="elastane-checkpoint", daemon=True)
        thread.start()
        self._thread = thread  # one that could not be started is not waited for

    # --- in the writing thread ----------------------------------------------------------------------

    def _write_own(self, write: _Write) -> None:
        try:
            _write_share(self._known_place().target, write)
        except Exception as error:  # noqa: BLE001 - whatever it is, all others wait to hear what became of this share
            write.fail(error)
        else:
            write.busy = False

    def _complete(self, write: _Write, flight: Flight) -> None:
        place = self._known_place()
        try:
            manifest = _make_manifest(place, write, flight.name, flight.shares)
            # Workers of other nodes may have written into a folder that only their node sees.
            missing = find_missing(place.target, manifest)
            if missing:
                where = f"{missing} is not in {place.target.url}: give a place that all nodes see"
                self._tell_failed(flight.name.step, f"{where} with --checkpoint-to")
                return
            write_manifest(place.target, manifest)
            self._tell_saved(write, manifest)
        except Exception as error:  # noqa: BLE001 - whatever it is, it costs this checkpoint and nothing else
            self._tell_failed(flight.name.step, f"the manifest could not be written: {_describe(error)}")
        else:
            self._remove_old(place)
        finally:
            write.busy = False

    def _remove_old(self, place: CheckpointPlace) -> None:
        try:
            remove_old(place.target, place.plan.keep)
        except Exception as error:  # noqa: BLE001 - the new one is written, whatever is wrong with the old ones
            self._events.append("checkpoints_not_removed", worker=self._me, reason=_describe(error))

    # --- events -------------------------------------------------------------------------------------

    def _tell_saved(self, write: _Write, manifest: Manifest) -> None:
        self._events.append(
            "checkpoint_saved",
            worker=self._me,
            step=manifest.step,
            seconds=time.monotonic() - write.began_s,
            bytes=manifest.content_bytes,
            workers=len(manifest.shares),
            path=f"{self._known_place().target.url}/{manifest.name.folder}",
        )

    def _tell_failed(self, step: int, why: str) -> None:
        self._events.append("checkpoint_failed", worker=self._me, step=step, reason=why)

    def _tell_skipped(self, main: WorkerId, step: int, busy: list[WorkerId]) -> None:
        if main == self._me:
            reason = f"{', '.join(busy)} still write the one before"
            self._events.append("checkpoint_skipped", worker=self._me, step=step, reason=reason)


def _describe(error: Exception) -> str:
    if isinstance(error, AbandonedError):
        return str(error)
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def _known(file: SavedFile | None) -> SavedFile:
    assert file is not None, "it has just been written"
    return file


def _write_share(target: Target, write: _Write) -> None:
    """Write a share, and with the first one the description. Raises OSError, AbandonedError."""
    folder, snapshot = write.name.folder, write.snapshot
    assert snapshot is not None, "a share is written when it has been taken"
    if snapshot.description:
        write.description = write_file(target, folder, DESCRIPTION_FILE, memoryview(snapshot.description))
    write.file = write_file(
        target,
        folder,
        share_file(write.share, write.shares),
        snapshot.content,
        is_abandoned=write.abandoned.is_set,
    )


def _make_manifest(
    place: CheckpointPlace, write: _Write, name: CheckpointName, shares: list[SavedFile]
) -> Manifest:
    snapshot = write.snapshot
    assert snapshot is not None, "its share was taken before any was written"
    return Manifest(
        job=place.job,
        virtual_workers=place.virtual_workers,
        generation=name.generation,
        step=snapshot.step,
        epoch=snapshot.epoch,
        state_bytes=snapshot.state_bytes,
        device_type=snapshot.device_type,
        torch_version=str(torch.__version__),
        written_at_s=time.time(),
        description=_known(write.description),
        shares=tuple(shares),
    )
