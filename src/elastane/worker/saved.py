"""The state that a graceful stop writes and a resume reads.

A state is two data files, whose names no other state ever has, and `manifest.json`, which names them and
holds their checksums. The manifest replaces the one before it by a rename, once all else is on the disk:
at any moment the directory holds exactly one whole state, the old or the new one.
The tensors are a plain `torch.save` of {name: tensor}, so that any PyTorch opens them without elastane.
"""

import contextlib
import hashlib
import io
import os
import pickle  # for the name of an error only
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any

import msgspec
import torch
from torch import Tensor

from elastane.model.errors import StateFileError
from elastane.model.ids import JobId
from elastane.worker.state import CapturedState

FORMAT_VERSION = 1
MANIFEST_NAME = "manifest.json"
_MAX_MANIFEST_BYTES = 1 << 20  # a manifest has some 500 bytes; more is not one of ours


class SavedFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Name a data file of a saved state and how to tell that it is whole."""

    name: str
    content_bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Describe a saved state."""

    format_version: int
    job: JobId
    virtual_workers: int
    """N; 0 under a batch policy."""
    step: int
    epoch: int
    device_type: str
    torch_version: str
    tensors: SavedFile
    skeleton: SavedFile


class _SavedSkeleton(msgspec.Struct, frozen=True, array_like=True):
    parts: dict[str, Any]
    host_tensors: list[str]


class _Version(msgspec.Struct, frozen=True):
    format_version: int


def save_state(directory: Path, state: CapturedState, *, job: JobId, virtual_workers: int) -> Manifest:
    """Write a state so that a crash or a full disk at any moment leaves the old or the new one whole.

    Args:
        directory: made if absent; holds one state (usually `<job's folder>/final`).
        state: captured state; it must not change during the call.
        job: job id, checked at load.
        virtual_workers: N, checked at load; 0 under a batch policy, where it is the number of workers.

    Raises:
        StateFileError: the disk is full or not writable.
    """
    token = secrets.token_hex(4)
    names = [f"tensors-{state.step}-{token}.pt", f"skeleton-{state.step}-{token}.msgpack"]
    tensors = {name: _standalone(tensor) for name, tensor in state.tensors.items()}
    skeleton = msgspec.msgpack.encode(
        _SavedSkeleton(parts=dict(state.skeleton), host_tensors=sorted(state.host_tensors))
    )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        manifest = Manifest(
            format_version=FORMAT_VERSION,
            job=job,
            virtual_workers=virtual_workers,
            step=state.step,
            epoch=state.epoch,
            device_type=state.device_type,
            torch_version=str(torch.__version__),
            tensors=_write_file(directory / names[0], lambda file: torch.save(tensors, file)),
            skeleton=_write_file(directory / names[1], lambda file: file.write(skeleton)),
        )
        _commit_manifest(directory, manifest, token)
    except (OSError, RuntimeError) as error:  # torch reports a failed write as RuntimeError
        _remove_files(directory / name for name in [*names, _manifest_draft(token)])
        raise StateFileError(
            f"cannot save the state of step {state.step} ({state.tensor_bytes} bytes) to {directory}: "
            f"{error}; free some space or make it writable. A state saved there before is still whole"
        ) from error
    _remove_leftovers(directory, manifest)
    return manifest


def _standalone(tensor: Tensor) -> Tensor:
    # torch.save writes a view's whole storage; a part of a larger one is copied first.
    whole = tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
    return tensor if whole else tensor.clone()


class _HashingFile(io.RawIOBase):
    """Pass what is written on to a file, and hash it on the way."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()
        self.written_bytes = 0

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self._file.write(content)
        self.digest.update(content)
        written = memoryview(content).nbytes
        self.written_bytes += written
        return written


def _write_file(path: Path, write: Callable[[IO[bytes]], object]) -> SavedFile:
    with path.open("xb") as file:
        hashing: Any = _HashingFile(file)
        write(hashing)
        file.flush()
        os.fsync(file.fileno())
    return SavedFile(name=path.name, content_bytes=hashing.written_bytes, sha256=hashing.digest.hexdigest())


def _manifest_draft(token: str) -> str:
    return f"{MANIFEST_NAME}.{token}"


def _commit_manifest(directory: Path, manifest: Manifest, token: str) -> None:
    draft = directory / _manifest_draft(token)
    content = msgspec.json.format(msgspec.json.encode(manifest), indent=2)
    _write_file(draft, lambda file: file.write(content))
    _sync_directory(directory)  # the data files' names, before the manifest that refers to them
    draft.replace(directory / MANIFEST_NAME)
    _sync_directory(directory)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_files(paths: Iterable[Path]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):  # costs space only, and the next save tries again
            path.unlink(missing_ok=True)


def _remove_leftovers(directory: Path, manifest: Manifest) -> None:
    kept = {manifest.tensors.name, manifest.skeleton.name}
    patterns = ("tensors-*.pt", "skeleton-*.msgpack", f"{MANIFEST_NAME}.*")
    _remove_files(path for pattern in patterns for path in directory.glob(pattern) if path.name not in kept)


def _describe_n(virtual_workers: int) -> str:
    return f"{virtual_workers} virtual workers" if virtual_workers else "a batch policy"


def load_state(directory: Path, *, job: JobId, virtual_workers: int) -> CapturedState:
    """Read what `save_state` wrote; pass it to `JobState.restore`.

    Raises:
        StateFileError: nothing was saved, or it is damaged, of another job, N or format version.
    """
    manifest = read_manifest(directory)
    if manifest.job != job:
        raise StateFileError(
            f"{directory} holds the state of job {manifest.job!r}, not of {job!r}; resume it under its own id"
        )
    if manifest.virtual_workers != virtual_workers:
        raise StateFileError(
            f"the state in {directory} was saved with {_describe_n(manifest.virtual_workers)}, the script "
            f"now asks for {_describe_n(virtual_workers)}; this is fixed for a job's life: keep it"
        )
    skeleton_path, tensors_path = (
        _check_file(directory, saved) for saved in (manifest.skeleton, manifest.tensors)
    )
    try:
        skeleton = msgspec.msgpack.decode(skeleton_path.read_bytes(), type=_SavedSkeleton)
        tensors = torch.load(tensors_path, map_location="cpu", weights_only=True, mmap=True)
    except (OSError, RuntimeError, ValueError, EOFError, pickle.UnpicklingError) as error:
        raise _damaged(directory, str(error)) from error
    return CapturedState(
        step=manifest.step,
        epoch=manifest.epoch,
        device_type=manifest.device_type,
        skeleton=skeleton.parts,
        tensors=tensors,
        host_tensors=frozenset(skeleton.host_tensors),
    )


def read_manifest(directory: Path) -> Manifest:
    """Read what is said of a saved state, without reading the state.

    Raises:
        StateFileError: there is none, or it is damaged or of a newer version of elastane.
    """
    path = directory / MANIFEST_NAME
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_MANIFEST_BYTES)
    except FileNotFoundError as error:
        raise StateFileError(
            f"there is no saved state in {directory} (no {MANIFEST_NAME}); only a job that was stopped with "
            "its state saved can be resumed"
        ) from error
    except OSError as error:
        raise StateFileError(f"cannot read {path}: {error}; check the path and its permissions") from error
    try:
        version = msgspec.json.decode(content, type=_Version).format_version
        if version != FORMAT_VERSION:
            raise StateFileError(
                f"{path} has format version {version}, this elastane reads version {FORMAT_VERSION}; "
                "resume with the version of elastane that saved it"
            )
        return msgspec.json.decode(content, type=Manifest)
    except msgspec.DecodeError as error:
        raise _damaged(directory, f"{MANIFEST_NAME}: {error}") from error


def _check_file(directory: Path, saved: SavedFile) -> Path:
    path = directory / saved.name
    if Path(saved.name).name != saved.name:
        raise _damaged(directory, f"{MANIFEST_NAME} names the file {saved.name!r} outside the directory")
    try:
        found_bytes = path.stat().st_size
        if found_bytes != saved.content_bytes:
            raise _damaged(
                directory, f"{saved.name} has {found_bytes} bytes instead of {saved.content_bytes}"
            )
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _damaged(directory, f"{saved.name}: {error}") from error
    if found != saved.sha256:
        raise _damaged(directory, f"{saved.name} has sha256 {found} instead of {saved.sha256}")
    return path


def _damaged(directory: Path, what: str) -> StateFileError:
    return StateFileError(
        f"the saved state in {directory} is damaged: {what}; restore it from a copy, or start the job anew"
    )
