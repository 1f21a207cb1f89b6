"""Where checkpoints are kept: a folder on a local disk, or whatever an fsspec plug-in reaches.

A file appears under its name only when all of it is there. On a local disk it is written under another name,
synced, renamed, and its folder synced; object stores show an object when it is closed. The last file that is
written of a checkpoint is its manifest, so nothing else has to be atomic.
All errors are OSErrors, whatever a plug-in raises.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol, Self

from elastane.model.errors import ConfigError, ElastaneError
from elastane.model.ids import JobId
from elastane.model.records import CheckpointPlan

DEFAULT_FOLDER = "checkpoints"
"""Where a job's checkpoints are kept below its own folder, if nothing else was asked for."""
_DRAFT = ".part"
"""End of the name of a local file that is still being written."""
BLOCK_BYTES = 8 << 20
"""Most bytes that are written or read at once: a cancelled writer stops after so many."""


class ReadableFile(Protocol):
    """Be a file that is open for reading. All methods raise OSError if it cannot be read on."""

    def read(self, size: int = -1, /) -> bytes:
        """Return the next `size` bytes, fewer at the end; all that is left if negative."""
        ...

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Fill `buffer` from its start; return how many bytes that were, 0 at the end."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


class Target(Protocol):
    """Be a place for the checkpoints of one job. Paths are "FOLDER/NAME" below it."""

    url: str

    def folders(self) -> list[str]:
        """Return the names of all folders; none if the place does not exist yet. Raises OSError."""
        ...

    def files(self, folder: str) -> dict[str, int]:
        """Return the bytes of each file in a folder, without drafts. Raises OSError."""
        ...

    def reading(self, path: str) -> ReadableFile:
        """Open a file. Raises OSError; FileNotFoundError if it is not there."""
        ...

    @contextmanager
    def writing(self, path: str) -> Iterator[IO[bytes]]:
        """Write a file; it is there for good when the body has ended. Raises OSError."""
        ...

    def remove(self, folder: str) -> None:
        """Remove a folder with all that is in it; nothing happens if it is not there. Raises OSError."""
        ...


def open_target(url: str, folder: str = "") -> Target:
    """Return the target at `url`/`folder`; nothing is read or written.

    Args:
        url: a path, "file:///path", or "PROTOCOL://..." of an fsspec file system.
        folder: a part of its own for one job.

    Raises:
        ConfigError: there is no such protocol, or its plug-in is not installed.
    """
    if "://" not in url or url.startswith("file://"):
        return LocalTarget(Path(url.removeprefix("file://")).absolute() / folder)
    return RemoteTarget("/".join(filter(None, (url.rstrip("/"), folder))))


def open_job_target(plan: CheckpointPlan, directory: str, job: JobId) -> Target:
    """Return where a job keeps its checkpoints: below its own folder, or a part of what it was given.

    Raises:
        ConfigError: there is no such protocol, or its plug-in is not installed.
    """
    return open_target(plan.url, job) if plan.url else open_target(directory, DEFAULT_FOLDER)


class LocalTarget:
    """Keep checkpoints in a folder of a disk."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.url = str(root)

    def folders(self) -> list[str]:
        """Return the names of all folders."""
        if not self._root.exists():
            return []
        return sorted(entry.name for entry in self._root.iterdir() if entry.is_dir())

    def files(self, folder: str) -> dict[str, int]:
        """Return the bytes of each file in a folder."""
        found = (entry for entry in (self._root / folder).iterdir() if not entry.name.endswith(_DRAFT))
        return {entry.name: entry.stat().st_size for entry in found}

    def reading(self, path: str) -> ReadableFile:
        """Open a file."""
        return (self._root / path).open("rb")

    @contextmanager
    def writing(self, path: str) -> Iterator[IO[bytes]]:
        """Write a file that is on the disk, under its name, when the body has ended."""
        final = self._root / path
        draft = final.with_name(final.name + _DRAFT)
        self._make_folder(final.parent)
        try:
            with draft.open("wb", buffering=0) as file:
                yield file
                os.fsync(file.fileno())
            draft.replace(final)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        _sync_folder(final.parent)

    def _make_folder(self, folder: Path) -> None:
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        for path in missing:
            _sync_folder(path.parent)

    def remove(self, folder: str) -> None:
        """Remove a folder; its manifest first, so that what is left of it is never taken for whole."""
        path = self._root / folder
        if not path.exists():
            return
        (path / "manifest.json").unlink(missing_ok=True)
        shutil.rmtree(path, ignore_errors=False)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _as_os_errors(what: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ElastaneError, MemoryError):
        raise  # said what it is; or the machine's fault, and not the file's
    except Exception as error:  # plug-ins raise what their client libraries raise
        raise OSError(f"{what}: {type(error).__name__}: {error}") from error


class _RemoteFile:
    """Be an object that is being read. Plug-ins fetch its bytes late: an error may come at any read."""

    def __init__(self, file: Any, what: str) -> None:
        self._file = file
        self._what = what

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes."""
        with _as_os_errors(self._what):
            content: bytes = self._file.read(size)
            return content

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Fill a buffer."""
        with _as_os_errors(self._what):
            filled: int | None = self._file.readinto(buffer)
            return filled

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        with _as_os_errors(self._what):
            self._file.close()


class RemoteTarget:
    """Keep checkpoints wherever an fsspec file system reaches."""

    def __init__(self, url: str) -> None:
        import fsspec  # noqa: PLC0415 - takes 50 ms, which jobs with a local folder need not spend

        self.url = url
        try:
            self._system, self._root = fsspec.core.url_to_fs(url)
        except (ValueError, ImportError) as error:
            raise ConfigError(f"checkpoints cannot be kept at {url!r}: {error}") from error

    def folders(self) -> list[str]:
        """Return the names of all folders."""
        return [name for name, entry in self._entries("") if entry["type"] == "directory"]

    def files(self, folder: str) -> dict[str, int]:
        """Return the bytes of each object in a folder."""
        found = self._entries(folder)
        return {name: int(entry["size"] or 0) for name, entry in found if entry["type"] == "file"}

    def _entries(self, folder: str) -> list[tuple[str, Any]]:
        path = f"{self._root}/{folder}".rstrip("/")
        with _as_os_errors(f"cannot list {self.url}"):
            self._system.invalidate_cache()
            try:
                entries = self._system.ls(path, detail=True)
            except FileNotFoundError:
                return []
        return sorted((entry["name"].rstrip("/").rpartition("/")[2], entry) for entry in entries)

    def reading(self, path: str) -> ReadableFile:
        """Open an object."""
        what = f"cannot read {self.url}/{path}"
        with _as_os_errors(what):
            return _RemoteFile(self._system.open(f"{self._root}/{path}", "rb"), what)

    @contextmanager
    def writing(self, path: str) -> Iterator[IO[bytes]]:
        """Write an object; after an error a part of it may stay, without harm: no manifest names it."""
        full = f"{self._root}/{path}"
        with _as_os_errors(f"cannot write {self.url}/{path}"):
            self._system.makedirs(full.rpartition("/")[0], exist_ok=True)
            with self._system.open(full, "wb") as file:
                yield file

    def remove(self, folder: str) -> None:
        """Remove a folder; its manifest first, so that what is left of it is never taken for whole."""
        full = f"{self._root}/{folder}"
        with _as_os_errors(f"cannot remove {self.url}/{folder}"):
            # One by one: `rm` would take a name with brackets for a pattern.
            for name in sorted(self.files(folder), key=lambda name: name != "manifest.json"):
                self._system.rm_file(f"{full}/{name}")
            if self._system.isdir(full):  # object stores have no empty folders
                self._system.rmdir(full)
