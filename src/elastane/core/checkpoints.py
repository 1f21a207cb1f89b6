"""Decide about checkpoints: when one is due, which shares make it whole, which ones are kept.

Theory of operation. The state is replicated, so each member writes a share of the bytes of one boundary. What
it has written rides along in its step reports; all members hear the same reports and so think the same of
the checkpoint that is under way, the *flight*. Its first writer puts the manifest beside the shares when it
has heard of all of them: with that, and not before, the checkpoint exists.
Knows no files, no clock and no tensors.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import msgspec

from elastane.model.ids import WorkerId
from elastane.model.records import CheckpointPlan
from elastane.model.topology import Topology

_FOLDER = re.compile(r"g(\d{6,})-step-(\d{9,})")


def is_due(plan: CheckpointPlan, step: int, since_s: float) -> bool:
    """Tell whether a checkpoint is due at the boundary before `step`, `since_s` after the one before."""
    by_steps = plan.every_steps is not None and step % plan.every_steps == 0
    return by_steps or (plan.every_s is not None and since_s >= plan.every_s)


class CheckpointName(NamedTuple):
    """Name a checkpoint. Names sort by age: a later generation may repeat steps of an earlier one.

    No two boundaries of a job have one name, and all members know it without asking.
    """

    generation: int
    step: int

    @property
    def folder(self) -> str:
        """Return the name of its folder."""
        return f"g{self.generation:06}-step-{self.step:09}"


def parse_folder(text: str) -> CheckpointName | None:
    """Return the name of the checkpoint in a folder; None if it is not one of ours."""
    match = _FOLDER.fullmatch(text)
    return CheckpointName(int(match[1]), int(match[2])) if match else None


def share_file(share: int, shares: int) -> str:
    """Return the name of the file that holds one share of the bytes."""
    return f"share-{share + 1}-of-{shares}.bin"


class SavedFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Name a data file of a checkpoint and how to tell that it is whole."""

    name: str
    content_bytes: int
    sha256: str


class ShareNote(msgspec.Struct, frozen=True, array_like=True):
    """Tell the other members, with a step, about checkpoints.

    Attributes:
        due: one should be taken after this step; only the main worker's word counts.
        busy: this worker still writes, or clears up.
        generation, step: name of the checkpoint that the rest is about.
        file: the share that this worker has written.
        failure: why it could not.
    """

    due: bool = False
    busy: bool = False
    generation: int = 0
    step: int = 0
    file: SavedFile | None = None
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """Show a checkpoint that is being written, as each of its writers sees it."""

    name: CheckpointName
    writers: tuple[WorkerId, ...]
    written: Mapping[WorkerId, SavedFile] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Tell whether all shares are written."""
        return len(self.written) == len(self.writers)

    @property
    def shares(self) -> list[SavedFile]:
        """Return the shares in order, once all are written."""
        return [self.written[worker] for worker in self.writers]


def hear_notes(flight: Flight, notes: Mapping[WorkerId, ShareNote]) -> Flight | str:
    """Return the flight after a step with these notes; a text if it has failed: why."""
    written = dict(flight.written)
    for worker, note in notes.items():
        if worker not in flight.writers or (note.generation, note.step) != flight.name:
            continue
        if note.failure:
            return f"{worker}: {note.failure}"
        if note.file is not None:
            written[worker] = note.file
    return replace(flight, written=written)


def find_obstacle(flight: Flight, topology: Topology) -> str:
    """Say why a flight comes to nothing when `topology` is entered; "" if it goes on."""
    if flight.whole:
        return ""
    if topology.mode.repairs:
        return f"a worker was lost before all shares were written ({topology.reason})"
    missing = [w for w in flight.writers if w not in flight.written and topology.member(w) is None]
    first = flight.writers[0]
    if missing or topology.member(first) is None:
        return f"{', '.join(missing or [first])} left before all shares were written"
    return ""


def plan_removal(
    good: Iterable[CheckpointName], present: Iterable[CheckpointName], keep: int
) -> tuple[CheckpointName, ...]:
    """Return which checkpoints and leftovers may go, when the newest good one has just been written.

    Args:
        good: those that are whole.
        present: all of which there is something.
        keep: how many good ones are kept, at least 1.

    Returns:
        Those older than the `keep` newest good ones, and whatever is no good and older than the newest good
        one: it was abandoned. Nothing while there is no good one.
    """
    ranked: Sequence[CheckpointName] = sorted(set(good), reverse=True)
    if not ranked:
        return ()
    kept = set(ranked[: max(1, keep)])
    return tuple(name for name in sorted(set(present)) if name not in kept and name < ranked[0])
