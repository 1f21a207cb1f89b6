"""The checkpoints that a target holds: write one, list them, check them, find the newest, remove old ones.

Knows bytes and sums, but not what they mean.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from elastane.checkpoint.manifest import (
    MANIFEST_NAME,
    MAX_MANIFEST_BYTES,
    Manifest,
    decode_manifest,
    encode_manifest,
)
from elastane.checkpoint.target import BLOCK_BYTES, Target
from elastane.core.checkpoints import CheckpointName, SavedFile, parse_folder, plan_removal
from elastane.model.errors import StateFileError, StateRefusedError
from elastane.model.ids import JobId


class AbandonedError(StateFileError):
    """Report that the writing of a checkpoint was given up; nothing of it counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Show one checkpoint of a target.

    Attributes:
        name: its name.
        manifest: what is said of it; None if that is missing or damaged.
        problem: what is wrong with it; "" if nothing is known to be.
        complete: its manifest is there: it was finished once.
    """

    name: CheckpointName
    manifest: Manifest | None = None
    problem: str = ""
    complete: bool = True


def write_file(
    target: Target,
    folder: str,
    name: str,
    content: memoryview,
    *,
    is_abandoned: Callable[[], bool] = lambda: False,
    progress: Callable[[int], None] = lambda _: None,
) -> SavedFile:
    """Write a file of a checkpoint and hash it on the way.

    Raises:
        OSError: the target is full, out of reach, not writable.
        AbandonedError: `is_abandoned` said so.
    """
    digest = hashlib.sha256()
    with target.writing(f"{folder}/{name}") as file:
        for start in range(0, len(content), BLOCK_BYTES):
            if is_abandoned():
                raise AbandonedError(f"{folder}/{name} was given up after {start} of {len(content)} bytes")
            block = content[start : start + BLOCK_BYTES]
            digest.update(block)
            _write_all(file.write, block)
            progress(len(block))
    return SavedFile(name=name, content_bytes=len(content), sha256=digest.hexdigest())


def _write_all(write: Callable[[memoryview], int | None], block: memoryview) -> None:
    # An unbuffered file may take a part only, as the disk fills up.
    while len(block):
        written = write(block)
        block = block[len(block) if written is None else written :]


def write_manifest(target: Target, manifest: Manifest) -> None:
    """Make a checkpoint valid, once all its files are written. Raises OSError."""
    write_file(target, manifest.name.folder, MANIFEST_NAME, memoryview(encode_manifest(manifest)))


def find_missing(target: Target, manifest: Manifest) -> str:
    """Return the name of a data file that is not where the manifest says; "" if all are. Raises OSError."""
    present = target.files(manifest.name.folder)
    return next((f.name for f in manifest.files if present.get(f.name) != f.content_bytes), "")


def list_checkpoints(target: Target) -> list[Listing]:
    """Return what the target holds, the newest first; sums of data files are not checked.

    Raises:
        OSError: the target cannot be listed.
    """
    names = filter(None, map(parse_folder, target.folders()))
    return [_look(target, name) for name in sorted(names, reverse=True)]


def _look(target: Target, name: CheckpointName) -> Listing:
    try:
        present = target.files(name.folder)
        if MANIFEST_NAME not in present:
            return Listing(name=name, problem="it was not finished", complete=False)
        manifest = read_manifest(target, name)
    except (OSError, StateFileError) as error:
        return Listing(name=name, problem=str(error))
    for file in manifest.files:
        if file.name not in present:
            return Listing(name=name, manifest=manifest, problem=f"{file.name} is missing")
        if present[file.name] != file.content_bytes:
            problem = f"{file.name} has {present[file.name]} bytes instead of {file.content_bytes}"
            return Listing(name=name, manifest=manifest, problem=problem)
    return Listing(name=name, manifest=manifest)


def read_manifest(target: Target, name: CheckpointName) -> Manifest:
    """Read what is said of a checkpoint.

    Raises:
        StateFileError: it is damaged, or belongs elsewhere.
        StateRefusedError: it was written by a newer elastane.
        OSError: it cannot be read.
    """
    path = f"{name.folder}/{MANIFEST_NAME}"
    with target.reading(path) as file:
        content = file.read(MAX_MANIFEST_BYTES)
    manifest = decode_manifest(content, f"{target.url}/{path}")
    if manifest.name != name:
        raise StateFileError(f"{target.url}/{path} is damaged: it is that of {manifest.name.folder}")
    return manifest


def verify_files(target: Target, manifest: Manifest) -> str:
    """Read all files of a checkpoint; return what is wrong, "" if all sums are right."""
    for saved in manifest.files:
        digest = hashlib.sha256()
        try:
            with target.reading(f"{manifest.name.folder}/{saved.name}") as file:
                while block := file.read(BLOCK_BYTES):
                    digest.update(block)
        except OSError as error:
            return f"{saved.name} cannot be read: {error}"
        if digest.hexdigest() != saved.sha256:
            return f"{saved.name} has sha256 {digest.hexdigest()[:16]}... instead of {saved.sha256[:16]}..."
    return ""


def check_usable(manifest: Manifest, where: str, *, job: JobId, virtual_workers: int | None) -> None:
    """Raise StateRefusedError if a checkpoint is that of another job or another N; None: any N will do."""
    if manifest.job != job:
        raise StateRefusedError(
            f"{where} holds checkpoints of job {manifest.job!r}, not of {job!r}; resume it under its own id"
        )
    if virtual_workers is not None and manifest.virtual_workers != virtual_workers:
        raise StateRefusedError(
            f"the checkpoint {manifest.name.folder} in {where} was written with "
            f"{_describe_n(manifest.virtual_workers)}, the script now asks for "
            f"{_describe_n(virtual_workers)}; this is fixed for a job's life: keep it"
        )


def _describe_n(virtual_workers: int) -> str:
    return f"{virtual_workers} virtual workers" if virtual_workers else "a batch policy"


def iterate_candidates(
    target: Target, *, job: JobId, virtual_workers: int | None = None
) -> Iterator[Listing]:
    """Yield what may be resumed from, the newest first; those with a problem too, so that it can be told.

    Raises:
        StateRefusedError: the newest is another job's, of another N, or in a newer format.
        OSError: the target cannot be listed.
    """
    names = filter(None, map(parse_folder, target.folders()))
    for name in sorted(names, reverse=True):
        listing = _look(target, name)
        if not listing.complete:
            continue
        if listing.manifest is None:
            _raise_if_newer_format(target, name)
        else:
            check_usable(listing.manifest, target.url, job=job, virtual_workers=virtual_workers)
        yield listing


def _raise_if_newer_format(target: Target, name: CheckpointName) -> None:
    try:
        read_manifest(target, name)
    except StateRefusedError:
        raise
    except (OSError, StateFileError):
        return  # damaged: the one before may be whole


def find_newest(target: Target, job: JobId) -> Manifest | None:
    """Return the newest checkpoint that looks whole; None if the job has none.

    Raises:
        StateFileError: there are some, but none is whole; the message says what is wrong with each.
        OSError: the target cannot be read.
    """
    problems = []
    for listing in iterate_candidates(target, job=job):
        if listing.manifest is not None and not listing.problem:
            return listing.manifest
        problems.append(f"{listing.name.folder}: {listing.problem}")
    if problems:
        raise all_damaged(target, problems)
    return None


def all_damaged(target: Target, problems: Iterable[str]) -> StateFileError:
    """Return the error that says that no checkpoint is whole."""
    return StateFileError(
        f"no checkpoint in {target.url} is whole ({'; '.join(problems)}); restore one from a copy, or remove "
        "them all to begin anew"
    )


def remove_old(target: Target, keep: int) -> list[str]:
    """Remove all but the newest `keep` good checkpoints, and what was abandoned; return the folders removed.

    To be called when a new one has just been written. Raises OSError.
    """
    listings = list_checkpoints(target)
    good = [listing.name for listing in listings if not listing.problem]
    removed = [name.folder for name in plan_removal(good, (listing.name for listing in listings), keep)]
    for folder in removed:
        target.remove(folder)
    return removed
