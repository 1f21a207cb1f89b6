"""A saved state is read back with the same bits, or refused with a reason; it is never half replaced."""

import json
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from replicas import CPU, Replica, make_replica
from torch import nn
from torch.optim import lr_scheduler

from elastane.model.errors import StateFileError
from elastane.model.ids import JobId
from elastane.worker import saved
from elastane.worker.saved import load_state, read_manifest, save_state
from elastane.worker.state import JobState

JOB = JobId("job-1")
N = 8


def adam_with_cosine(seed: int) -> Replica:
    return make_replica(
        seed,
        lambda groups: torch.optim.Adam(groups, lr=0.01, amsgrad=True),
        lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, T_max=20),
    )


def trained(steps: int) -> Replica:
    replica = adam_with_cosine(1)
    replica.train(steps)
    replica.state.epoch = 2
    return replica


def save(directory: Path, replica: Replica) -> None:
    save_state(directory, replica.state.capture(), job=JOB, virtual_workers=N)


def resume(directory: Path) -> Replica:
    replica = adam_with_cosine(2)
    replica.state.restore(load_state(directory, job=JOB, virtual_workers=N))
    return replica


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "job" / "final"


def test_a_resumed_job_goes_on_bit_identically(directory: Path) -> None:
    original = trained(5)
    save(directory, original)

    resumed = resume(directory)

    assert (resumed.state.step, resumed.state.epoch) == (5, 2)
    assert resumed.digest() == original.digest()
    original.train(5)
    resumed.train(5)
    assert resumed.digest() == original.digest()


def test_the_manifest_says_what_was_saved(directory: Path) -> None:
    save(directory, trained(5))
    manifest = json.loads((directory / "manifest.json").read_text())
    files = {kind: manifest.pop(kind) for kind in ("tensors", "skeleton")}
    assert manifest == {
        "format_version": 1,
        "job": "job-1",
        "virtual_workers": 8,
        "step": 5,
        "epoch": 2,
        "device_type": "cpu",
        "torch_version": str(torch.__version__),
    }
    for described in files.values():
        assert (directory / described["name"]).stat().st_size == described["content_bytes"]
    assert sorted(os.listdir(directory)) == sorted(["manifest.json", *(f["name"] for f in files.values())])


def test_the_tensors_can_be_read_with_plain_torch(directory: Path) -> None:
    replica = trained(1)
    save(directory, replica)
    tensors = torch.load(directory / read_manifest(directory).tensors.name, weights_only=True)
    assert torch.equal(tensors["model/parameters/conv.weight"], replica.net.get_parameter("conv.weight"))


def test_a_part_of_a_large_tensor_is_saved_alone(directory: Path) -> None:
    large = torch.zeros(1 << 20)
    net = nn.Module()
    net.register_buffer("part", large[5:10])
    save_state(directory, JobState(device=CPU, models=[net]).capture(), job=JOB, virtual_workers=N)
    assert read_manifest(directory).tensors.content_bytes < 10_000


def test_a_new_state_replaces_the_old_one(directory: Path) -> None:
    save(directory, trained(3))
    newer = trained(5)
    save(directory, newer)
    assert resume(directory).digest() == newer.digest()
    assert len(os.listdir(directory)) == 3


def test_the_restored_replica_does_not_depend_on_the_files(directory: Path) -> None:
    original = trained(3)
    save(directory, original)
    resumed = resume(directory)
    tensors = directory / read_manifest(directory).tensors.name
    tensors.write_bytes(bytes(tensors.stat().st_size))
    shutil.rmtree(directory)
    assert resumed.digest() == original.digest()


def test_tensors_that_a_cuda_job_kept_on_the_host_are_remembered(directory: Path) -> None:
    captured = trained(1).state.capture()
    host = frozenset(name for name in captured.tensors if name.endswith("/step"))
    told = {"skeleton": captured.skeleton, "tensors": captured.tensors, "host_tensors": host}
    state = saved.CapturedState(step=1, epoch=0, device_type="cuda", **told)
    save_state(directory, state, job=JOB, virtual_workers=N)
    loaded = load_state(directory, job=JOB, virtual_workers=N)
    assert (loaded.device_type, loaded.host_tensors) == ("cuda", host)


def rewrite_manifest(directory: Path, **changes: Any) -> None:
    path = directory / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def flip_tensor_byte(directory: Path) -> None:
    path = directory / read_manifest(directory).tensors.name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def truncate_tensors(directory: Path) -> None:
    path = directory / read_manifest(directory).tensors.name
    path.write_bytes(path.read_bytes()[:-100])


def remove_skeleton(directory: Path) -> None:
    (directory / read_manifest(directory).skeleton.name).unlink()


def truncate_manifest(directory: Path) -> None:
    path = directory / "manifest.json"
    path.write_bytes(path.read_bytes()[:40])


def foreign_manifest(directory: Path) -> None:
    (directory / "manifest.json").write_text('{"name": "my-web-app"}')


def future_version(directory: Path) -> None:
    rewrite_manifest(directory, format_version=2, tensors="elsewhere")


def outside_name(directory: Path) -> None:
    described = json.loads((directory / "manifest.json").read_text())["skeleton"]
    rewrite_manifest(directory, skeleton={**described, "name": "../../secret"})


def replace_file(directory: Path, kind: str, content: bytes) -> None:
    """Put other content in place, with a checksum that fits."""
    described = saved._write_file(directory / "forged", lambda file: file.write(content))
    rewrite_manifest(
        directory,
        **{
            kind: {
                "name": "forged",
                "content_bytes": described.content_bytes,
                "sha256": described.sha256,
            }
        },
    )


def pickle_as_tensors(directory: Path) -> None:
    path = directory / "pickle"
    torch.save({"a": Replica}, path)
    replace_file(directory, "tensors", path.read_bytes())


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (flip_tensor_byte, "damaged: tensors-5-.*has sha256"),
        (truncate_tensors, "damaged: tensors-5-.*bytes instead of"),
        (remove_skeleton, "damaged: skeleton-5-.*No such file"),
        (truncate_manifest, "damaged: manifest.json"),
        (foreign_manifest, "damaged: manifest.json"),
        (future_version, "format version 2, this elastane reads version 1"),
        (outside_name, "names the file '../../secret' outside"),
        (lambda d: (d / "manifest.json").unlink(), "no saved state in .*was stopped"),
        (lambda d: rewrite_manifest(d, job="job-2"), "of job 'job-2', not of 'job-1'"),
        (lambda d: rewrite_manifest(d, virtual_workers=4), "with 4 virtual workers.*asks for 8"),
        (lambda d: replace_file(d, "skeleton", b"\xc1"), "damaged"),
        (lambda d: replace_file(d, "tensors", b"no zip file"), "damaged"),
        (pickle_as_tensors, "damaged"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_reason(
    directory: Path, damage: Callable[[Path], None], told: str
) -> None:
    save(directory, trained(5))
    damage(directory)
    with pytest.raises(StateFileError, match=told):
        load_state(directory, job=JOB, virtual_workers=N)


def test_a_directory_in_place_of_the_manifest_is_refused(directory: Path) -> None:
    (directory / "manifest.json").mkdir(parents=True)
    with pytest.raises(StateFileError, match="cannot read"):
        read_manifest(directory)


@contextmanager
def file_limit(limit_bytes: int) -> Iterator[None]:
    """Let writes beyond `limit_bytes` of a file fail, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("limit_bytes", [0, 1000, 10_000])
def test_a_full_disk_leaves_the_old_state_whole(directory: Path, limit_bytes: int) -> None:
    old = trained(3)
    save(directory, old)
    before = sorted(os.listdir(directory))

    with file_limit(limit_bytes), pytest.raises(StateFileError, match=r"cannot save.*step 5.*still whole"):
        save(directory, trained(5))

    assert sorted(os.listdir(directory)) == before
    assert resume(directory).digest() == old.digest()


@pytest.mark.parametrize("survived_writes", [0, 1, 2, 3, 4])
def test_a_crash_at_any_moment_leaves_one_state_whole(
    directory: Path, monkeypatch: pytest.MonkeyPatch, survived_writes: int
) -> None:
    class CrashError(BaseException):
        """Not an Exception: nothing may tidy up after a crash."""

    old, new = trained(3), trained(5)
    save(directory, old)
    writes = 0
    real = os.fsync

    def crashing(descriptor: int) -> None:
        nonlocal writes
        if writes == survived_writes:
            raise CrashError
        writes += 1
        real(descriptor)

    monkeypatch.setattr(os, "fsync", crashing)
    with pytest.raises(CrashError):
        save(directory, new)
    monkeypatch.undo()
    # The last of the five is that after the rename.
    assert resume(directory).digest() == (new if survived_writes == 4 else old).digest()

    save(directory, new)
    assert resume(directory).digest() == new.digest()
    assert len(os.listdir(directory)) == 3


def test_a_place_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateFileError, match="cannot save the state of step 1"):
        save(tmp_path / "file" / "final", trained(1))
