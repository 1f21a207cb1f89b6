"""Which checkpoints count: complete ones with right sums, of this job, the newest first."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from checkpoint_files import JOB, N, describe, write_checkpoint

from elastane.checkpoint.catalog import (
    AbandonedError,
    find_newest,
    iterate_candidates,
    list_checkpoints,
    read_manifest,
    remove_old,
    verify_files,
    write_file,
)
from elastane.checkpoint.manifest import decode_manifest, encode_manifest
from elastane.checkpoint.target import BLOCK_BYTES, Target, open_job_target, open_target
from elastane.core.checkpoints import CheckpointName, SavedFile
from elastane.model.errors import ConfigError, StateFileError, StateRefusedError
from elastane.model.records import CheckpointPlan


@pytest.fixture(params=["local", "memory"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    if request.param == "local":
        yield open_target(str(tmp_path / "checkpoints"))
        return
    import fsspec

    yield open_target(f"memory://{request.node.name}", "job-1")
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]


def folders(target: Target) -> list[str]:
    return target.folders()


def test_a_place_that_does_not_exist_yet_holds_nothing(target: Target) -> None:
    assert (list_checkpoints(target), find_newest(target, JOB)) == ([], None)


def test_the_newest_that_is_whole_wins(target: Target) -> None:
    write_checkpoint(target, 1, 100)
    newest = write_checkpoint(target, 2, 90)  # a later generation repeats steps of an earlier one
    write_checkpoint(target, 3, 200, finished=False)
    found = find_newest(target, JOB)
    assert found is not None
    assert (found.name, found.content_bytes) == (newest, 207)
    assert [(one.name.step, one.problem) for one in list_checkpoints(target)] == [
        (200, "it was not finished"),
        (90, ""),
        (100, ""),
    ]


def test_what_was_written_can_be_verified(target: Target) -> None:
    name = write_checkpoint(target, 1, 5)
    assert verify_files(target, read_manifest(target, name)) == ""


def test_only_older_ones_and_abandoned_ones_are_removed(target: Target) -> None:
    for step in (10, 20, 30, 40):
        write_checkpoint(target, 1, step, finished=step != 20)
    write_checkpoint(target, 2, 35, finished=False)  # somebody writes it now
    removed = remove_old(target, keep=2)
    assert removed == ["g000001-step-000000010", "g000001-step-000000020"]
    assert folders(target) == [
        "g000001-step-000000030",
        "g000001-step-000000040",
        "g000002-step-000000035",
    ]


def test_nothing_is_removed_while_no_checkpoint_is_good(target: Target) -> None:
    write_checkpoint(target, 1, 10, finished=False)
    assert remove_old(target, keep=1) == []


def test_what_others_keep_in_the_place_is_left_alone(target: Target) -> None:
    write_checkpoint(target, 1, 10)
    write_file(target, "notes", "a.txt", memoryview(b"keep"))
    remove_old(target, keep=1)
    assert folders(target) == ["g000001-step-000000010", "notes"]


def test_a_writer_that_is_told_to_give_up_stops_at_its_next_block(tmp_path: Path) -> None:
    asked = iter([False, True])
    content = memoryview(bytes(BLOCK_BYTES + 1))
    written: list[int] = []
    with pytest.raises(AbandonedError, match=f"given up after {BLOCK_BYTES} of"):
        write_file(
            open_target(str(tmp_path)),
            "f",
            "a",
            content,
            is_abandoned=lambda: next(asked),
            progress=written.append,
        )
    assert written == [BLOCK_BYTES]
    assert list((tmp_path / "f").iterdir()) == []


# --- damage ----------------------------------------------------------------------------------------


def rewrite(path: Path, change: Callable[[dict[str, object]], object]) -> None:
    """Change a manifest and let its sum fit again."""
    told = json.loads(path.read_text())
    change(told)
    path.write_text(json.dumps(told))


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


DAMAGES: list[tuple[Callable[[Path], object], str]] = [
    (lambda f: flip(f / "share-1-of-2.bin", 50), "share-1-of-2.bin has sha256"),
    (lambda f: flip(f / "description.msgpack", 0), "description.msgpack has sha256"),
    (lambda f: (f / "share-2-of-2.bin").write_bytes(b"short"), "share-2-of-2.bin has 5 bytes instead of 100"),
    (lambda f: (f / "share-2-of-2.bin").unlink(), "share-2-of-2.bin is missing"),
    (lambda f: rewrite(f / "manifest.json", lambda m: m.update(epoch=7)), "its sum does not fit its content"),
    (lambda f: (f / "manifest.json").write_text("{"), "is damaged"),
    (lambda f: (f / "manifest.json").write_text('{"name": "web-app"}'), "is damaged"),
]


@pytest.mark.parametrize(("damage", "told"), DAMAGES)
def test_a_damaged_one_is_told_of_and_the_one_before_is_used(
    tmp_path: Path, damage: Callable[[Path], object], told: str
) -> None:
    target = open_target(str(tmp_path))
    before = write_checkpoint(target, 1, 10)
    damaged = write_checkpoint(target, 1, 20)
    damage(tmp_path / damaged.folder)

    first, second = iterate_candidates(target, job=JOB, virtual_workers=N)

    problem = first.problem or (verify_files(target, first.manifest) if first.manifest else "")
    assert told in problem
    assert (second.name, second.problem) == (before, "")


def test_when_all_are_damaged_each_is_told_of(tmp_path: Path) -> None:
    target = open_target(str(tmp_path))
    for step in (10, 20):
        name = write_checkpoint(target, 1, step)
        (tmp_path / name.folder / "share-1-of-2.bin").unlink()
    with pytest.raises(StateFileError, match=r"no checkpoint in .* whole \(g000001-step-000000020: sh.*;"):
        find_newest(target, JOB)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"job": "job-2"}, "holds checkpoints of job 'job-2', not of 'job-1'"),
        ({"virtual_workers": 4}, "with 4 virtual workers, the script now asks for 8 virtual workers"),
        ({"virtual_workers": 0}, "with a batch policy, the script now asks for 8"),
        ({"format_version": 3}, "has format version 3, this elastane reads version 2"),
    ],
)
def test_what_is_not_this_jobs_is_refused_and_not_passed_over(
    target: Target, more: dict[str, object], told: str
) -> None:
    write_checkpoint(target, 1, 10)
    write_checkpoint(target, 1, 20, **more)
    with pytest.raises(StateRefusedError, match=told):
        list(iterate_candidates(target, job=JOB, virtual_workers=N))


def test_a_manifest_may_not_name_files_elsewhere() -> None:
    outside = SavedFile(name="../../secret", content_bytes=1, sha256="0")
    content = encode_manifest(describe(CheckpointName(1, 1), outside, []))
    with pytest.raises(StateFileError, match=r"names files outside its folder \(\['../../secret'\]\)"):
        decode_manifest(content, "m")


def test_a_folder_that_was_renamed_is_no_checkpoint(tmp_path: Path) -> None:
    target = open_target(str(tmp_path))
    name = write_checkpoint(target, 1, 10)
    (tmp_path / name.folder).rename(tmp_path / CheckpointName(1, 99).folder)
    assert "is that of g000001-step-000000010" in list_checkpoints(target)[0].problem


# --- places ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["s4://bucket/x", "nonsense://x"])
def test_a_protocol_without_a_plug_in_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=f"checkpoints cannot be kept at '{url}'"):
        open_target(url)


def test_each_job_has_a_part_of_its_own_of_a_common_place() -> None:
    assert open_job_target(CheckpointPlan(), "/jobs/j", JOB).url == "/jobs/j/checkpoints"
    assert open_job_target(CheckpointPlan(url="/data"), "/jobs/j", JOB).url == "/data/job-1"
    assert open_job_target(CheckpointPlan(url="file:///data/"), "/jobs/j", JOB).url == "/data/job-1"
    assert open_job_target(CheckpointPlan(url="memory://x/"), "/jobs/j", JOB).url == "memory://x/job-1"


def test_an_error_of_a_plug_in_is_an_error_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    class ClientError(Exception): ...

    def fail(*_: object, **__: object) -> None:
        raise ClientError("403 Forbidden")

    target = open_target("memory://denied")
    monkeypatch.setattr(target._system, "ls", fail)  # type: ignore[attr-defined]
    with pytest.raises(OSError, match="cannot list memory://denied: ClientError: 403 Forbidden"):
        list_checkpoints(target)


# --- killed while it writes ------------------------------------------------------------------------

WRITER = """
import sys
sys.path[:0] = {path!r}
from checkpoint_files import write_checkpoint
from elastane.checkpoint.catalog import remove_old
from elastane.checkpoint.target import open_target
target = open_target({place!r})
step = {step}
print("writes", flush=True)
while True:
    step += 1
    write_checkpoint(target, 1, step, shares=3)
    remove_old(target, keep=2)
"""


@pytest.mark.process
def test_a_writer_killed_a_hundred_times_at_any_moment_always_leaves_a_newest_one_that_is_whole(
    tmp_path: Path,
) -> None:
    generator = Random(7)
    target = open_target(str(tmp_path / "place"))
    newest = -1
    for _ in range(100):
        program = WRITER.format(path=[str(Path(__file__).parent)], place=target.url, step=max(newest, 0))
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"writes\n"
            try:
                writer.wait(timeout=generator.random() * 0.15)
            except subprocess.TimeoutExpired:
                writer.kill()
        found = find_newest(target, JOB)
        if found is None:
            continue
        assert verify_files(target, found) == ""
        assert found.step >= newest
        newest = found.step
    assert newest > 20
