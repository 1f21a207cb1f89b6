"""Checkpoints of a few bytes, for the tests of what is done with files."""

from elastane.checkpoint.catalog import write_file, write_manifest
from elastane.checkpoint.manifest import Manifest
from elastane.checkpoint.target import Target
from elastane.core.checkpoints import CheckpointName, SavedFile, share_file
from elastane.model.ids import JobId

JOB = JobId("job-1")
N = 8


def describe(
    name: CheckpointName, description: SavedFile, shares: list[SavedFile], **more: object
) -> Manifest:
    """Return the manifest of a checkpoint with these files."""
    told: dict[str, object] = {
        "job": JOB,
        "virtual_workers": N,
        "generation": name.generation,
        "step": name.step,
        "epoch": 0,
        "state_bytes": sum(share.content_bytes for share in shares),
        "device_type": "cpu",
        "torch_version": "2.13.0",
        "written_at_s": 1000.0,
        "description": description,
        "shares": tuple(shares),
    }
    return Manifest(**{**told, **more})  # type: ignore[arg-type]


def write_checkpoint(
    target: Target, generation: int, step: int, *, shares: int = 2, finished: bool = True, **more: object
) -> CheckpointName:
    """Write a checkpoint of made-up bytes; one that is not finished lacks its manifest."""
    name = CheckpointName(generation, step)
    told = write_file(target, name.folder, "description.msgpack", memoryview(b"d" * 7))
    files = [
        write_file(target, name.folder, share_file(i, shares), memoryview(bytes([i]) * 100))
        for i in range(shares)
    ]
    if finished:
        write_manifest(target, describe(name, told, files, **more))
    return name
