"""Where an embedded store may lie: on a local disk, in folders and files that only their owner can read.

Processes that share an SQLite file in WAL mode share memory through it and rely on POSIX locks. Network file
systems give neither reliably (sqlite.org/wal.html), so they are refused rather than trusted.
"""

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

import psutil

from elastane.model.errors import StoreAccessError, StoreAddressError

PRIVATE_DIRECTORY = 0o700
NETWORK_FILE_SYSTEMS = frozenset(
    {
        *(
            "nfs",
            "nfs4",
            "cifs",
            "smb3",
            "smbfs",
            "9p",
            "afs",
            "afpfs",
            "webdav",
            "davfs",
            "virtiofs",
            "vboxsf",
        ),
        *(
            "ceph",
            "lustre",
            "gpfs",
            "beegfs",
            "glusterfs",
            "panfs",
            "orangefs",
            "pvfs2",
            "ocfs2",
            "gfs2",
            "wekafs",
        ),
        *(
            "fuse.sshfs",
            "fuse.ceph",
            "fuse.glusterfs",
            "fuse.beegfs",
            "fuse.s3fs",
            "fuse.gcsfuse",
            "fuse.rclone",
        ),
        *("fuse.juicefs", "fuse.moosefs", "fuse.davfs", "fuse.goofys", "fuse.smbnetfs"),
    }
)
"""As named in /proc/mounts: shared between machines, or between a virtual machine and its host."""


def read_mounts() -> list[tuple[str, str]]:
    """Return (mount point, file system type) of everything mounted here, oldest mount first."""
    return [(mount.mountpoint, mount.fstype) for mount in psutil.disk_partitions(all=True)]


def find_file_system(path: Path, mounts: Iterable[tuple[str, str]]) -> str:
    """Return the type of the file system that an absolute, resolved path lies on, "" if nobody tells.

    Of mounts stacked on one point the youngest is the visible one.
    """
    found, found_depth = "", -1
    for mount_point, file_system in mounts:
        depth = len(Path(mount_point).parts)
        if depth >= found_depth and path.is_relative_to(mount_point):
            found, found_depth = file_system, depth
    return found


def check_local(path: Path, mounts: Iterable[tuple[str, str]]) -> None:
    """Raise StoreAddressError if `path` lies on a network file system."""
    file_system = find_file_system(path.resolve(), mounts)
    if file_system in NETWORK_FILE_SYSTEMS:
        raise StoreAddressError(
            f"the store {path} lies on a network file system ({file_system}), where SQLite's locks and "
            "shared memory cannot be trusted; put it on a local disk, or use etcd for several machines"
        )


def create_private_file(path: Path) -> None:
    """Create an empty file that only its owner can read, and its missing folders; keep what is there.

    The file appears by a link to one that is closed already: to close a descriptor of a store that another
    thread has just opened would drop that thread's locks (POSIX locks belong to the process).
    Raises StoreAddressError or StoreAccessError if the path does not allow it.
    """
    try:
        for folder in reversed(path.parents):
            if not folder.exists():
                folder.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)
        if not path.exists():
            descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
            os.close(descriptor)
            try:
                os.link(draft, path)
            except FileExistsError:
                pass  # another process was faster; its file is as good
            finally:
                os.unlink(draft)
    except OSError as error:
        raise to_path_error(path, error) from error


def check_file(path: Path) -> None:
    """Raise StoreAddressError or StoreAccessError unless `path` is a file that exists."""
    try:
        mode_is_file = path.is_file()
        exists = path.exists()
    except OSError as error:
        raise to_path_error(path, error) from error
    if not exists:
        raise StoreAddressError(f"there is no store at {path}; check the path, or start a job to create it")
    if not mode_is_file:
        raise StoreAddressError(f"the store path {path} is no file (a directory or a device); name a file")


def to_path_error(path: Path, error: OSError) -> StoreAddressError | StoreAccessError:
    """Return the error to raise when the operating system refuses something about `path`."""
    if isinstance(error, NotADirectoryError | FileExistsError):
        return StoreAddressError(
            f"the store path {path} goes through {error.filename!r}, which is no directory; choose another"
        )
    return StoreAccessError(
        f"cannot reach or create the store {path}: {error.strerror} ({error.filename!r}); "
        "check the permissions and free space, or choose another path"
    )
