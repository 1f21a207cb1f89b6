"""Where an embedded store may lie, and what is created for it."""

from pathlib import Path

import pytest

from elastane.model.errors import StoreAccessError, StoreAddressError
from elastane.store.local_disk import (
    check_file,
    check_local,
    create_private_file,
    find_file_system,
    read_mounts,
    to_path_error,
)

MOUNTS = [
    ("/", "ext4"),
    ("/home", "nfs4"),
    ("/home/me/local", "xfs"),
    ("/data", "ext4"),
    ("/data", "fuse.sshfs"),
    ("/scratch", "nfs"),
    ("/scratch", "tmpfs"),
]


@pytest.mark.parametrize(
    ("path", "file_system"),
    [
        ("/var/store.db", "ext4"),
        ("/home/me/store.db", "nfs4"),
        ("/home/me/local/store.db", "xfs"),
        ("/homework/store.db", "ext4"),
        ("/data/store.db", "fuse.sshfs"),
        ("/scratch/store.db", "tmpfs"),
    ],
)
def test_a_path_lies_on_the_deepest_mount_above_it_and_on_the_youngest_of_a_stack(
    path: str, file_system: str
) -> None:
    assert find_file_system(Path(path), MOUNTS) == file_system


def test_without_a_mount_table_nobody_tells() -> None:
    assert find_file_system(Path("/store.db"), []) == ""


@pytest.mark.parametrize("path", ["/home/me/store.db", "/data/store.db"])
def test_a_network_file_system_is_refused_with_its_name(path: str) -> None:
    with pytest.raises(StoreAddressError, match=r"network file system \((nfs4|fuse.sshfs)\).*use etcd"):
        check_local(Path(path), MOUNTS)


def test_a_link_into_a_network_file_system_is_refused(tmp_path: Path) -> None:
    remote = tmp_path / "remote"
    remote.mkdir()
    (tmp_path / "link").symlink_to(remote)
    with pytest.raises(StoreAddressError, match="cifs"):
        check_local(tmp_path / "link" / "store.db", [("/", "ext4"), (str(remote.resolve()), "cifs")])


def test_this_machine_tells_its_mounts(tmp_path: Path) -> None:
    assert find_file_system(tmp_path.resolve(), read_mounts()) != ""


def test_files_and_missing_folders_are_private_and_nothing_else_is_left(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    path = tmp_path / "a" / "b" / "store.db"
    create_private_file(path)
    modes = [item.stat().st_mode & 0o777 for item in (path, path.parent, path.parent.parent, tmp_path)]
    assert modes == [0o600, 0o700, 0o700, 0o755]
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_is_there_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"kept")
    create_private_file(path)
    assert path.read_bytes() == b"kept"


def test_a_path_through_a_file_is_no_address(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreAddressError, match=r"goes through '.*file.*', which is no directory"):
        create_private_file(tmp_path / "file" / "folder" / "store.db")
    with pytest.raises(StoreAddressError, match=r"goes through '.*file.*', which is no directory"):
        create_private_file(tmp_path / "file" / "store.db")


def test_a_folder_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreAddressError, match="is no file"):
        check_file(tmp_path)


def test_a_missing_file_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(StoreAddressError, match=r"there is no store at .*nothing\.db"):
        check_file(tmp_path / "nothing.db")


def test_a_name_that_the_system_does_not_take_is_an_access_error(tmp_path: Path) -> None:
    with pytest.raises(StoreAccessError, match="File name too long"):
        create_private_file(tmp_path / ("n" * 300))


def test_denied_access_says_where_and_what_to_check() -> None:
    error = to_path_error(Path("/a/b/store.db"), PermissionError(13, "Permission denied", "/a/b"))
    assert (type(error), str(error)) == (
        StoreAccessError,
        "cannot reach or create the store /a/b/store.db: Permission denied ('/a/b'); "
        "check the permissions and free space, or choose another path",
    )
