"""Load the newest valid checkpoint of a job, and say which ones were passed over, and why."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from elastane.checkpoint.catalog import all_damaged, iterate_candidates
from elastane.checkpoint.manifest import Manifest
from elastane.checkpoint.target import ReadableFile, Target
from elastane.core.checkpoints import SavedFile
from elastane.model.errors import StateFileError
from elastane.model.ids import JobId
from elastane.worker.snapshot import MAX_DESCRIPTION_BYTES, assemble_state
from elastane.worker.state import CapturedState


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Hold a checkpoint that was loaded, and what was wrong with newer ones, by folder."""

    manifest: Manifest
    state: CapturedState
    refused: dict[str, str]


def load_newest(
    target: Target,
    *,
    job: JobId,
    virtual_workers: int,
    note_run: Callable[[str], None] = lambda _: None,
) -> Loaded | None:
    """Load the newest checkpoint that is whole; None if the job has none.

    Args:
        target: where they are.
        job, virtual_workers: must be those of the checkpoint.
        note_run: told what is being read.

    Raises:
        StateRefusedError: the newest is another job's, of another N, or in a newer format.
        StateFileError: there are some, but none is whole.
    """
    refused: dict[str, str] = {}
    try:
        for listing in iterate_candidates(target, job=job, virtual_workers=virtual_workers):
            note_run(f"reading the checkpoint {listing.name.folder}")
            problem = listing.problem
            if listing.manifest is not None and not problem:
                try:
                    state = load_state(target, listing.manifest)
                    return Loaded(manifest=listing.manifest, state=state, refused=refused)
                except (OSError, StateFileError) as error:
                    problem = str(error)
            refused[listing.name.folder] = problem
    except OSError as error:
        raise StateFileError(
            f"the checkpoints in {target.url} cannot be listed ({error}); make the place reachable, "
            "or give another one"
        ) from error
    if refused:
        raise all_damaged(target, [f"{folder}: {problem}" for folder, problem in refused.items()])
    return None


def load_state(target: Target, manifest: Manifest) -> CapturedState:
    """Load one checkpoint and check all its sums.

    Raises:
        StateFileError: something is damaged.
        OSError: something cannot be read.
    """
    folder = manifest.name.folder
    saved = manifest.description
    with target.reading(f"{folder}/{saved.name}") as file:
        description = file.read(MAX_DESCRIPTION_BYTES)
    if hashlib.sha256(description).hexdigest() != saved.sha256:
        raise StateFileError(f"{saved.name} is damaged: its sum does not fit")

    def open_share(share: SavedFile) -> ReadableFile:
        return target.reading(f"{folder}/{share.name}")

    state = assemble_state(description, manifest.shares, open_share)
    if (state.step, state.epoch) != (manifest.step, manifest.epoch):
        raise StateFileError(f"{saved.name} is that of step {state.step}, the manifest says {manifest.step}")
    return state
