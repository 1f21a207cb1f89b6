"""The manifest of a checkpoint: what it is of, and names, lengths and sha256 sums of its files.

It is written last: a folder without a manifest is no checkpoint. It carries a sum of itself.
"""

import hashlib

import msgspec

from elastane.core.checkpoints import CheckpointName, SavedFile
from elastane.model.errors import StateFileError, StateRefusedError
from elastane.model.ids import JobId

FORMAT_VERSION = 2
"""1 was the one state that a graceful stop wrote, in two files."""
MANIFEST_NAME = "manifest.json"
MAX_MANIFEST_BYTES = 4 << 20
"""A share takes some 150 bytes: room for more workers than a job can have."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Describe a checkpoint."""

    format_version: int = FORMAT_VERSION
    job: JobId
    virtual_workers: int
    """N; 0 under a batch policy."""
    generation: int
    step: int
    """Steps committed."""
    epoch: int
    state_bytes: int
    device_type: str
    torch_version: str
    written_at_s: float
    """Wall clock, seconds since the epoch; shown to people."""
    description: SavedFile
    """Which tensors the bytes are, and all that is no tensor."""
    shares: tuple[SavedFile, ...]
    """The bytes of all tensors, one after another, cut into as many files as there were workers."""
    sum: str = ""
    """sha256 of this manifest as compact JSON in which this field is empty."""

    @property
    def name(self) -> CheckpointName:
        """Return the name of the checkpoint."""
        return CheckpointName(self.generation, self.step)

    @property
    def files(self) -> tuple[SavedFile, ...]:
        """Return all data files."""
        return (self.description, *self.shares)

    @property
    def content_bytes(self) -> int:
        """Return the bytes of all data files."""
        return sum(file.content_bytes for file in self.files)


class _Version(msgspec.Struct, frozen=True):
    format_version: int


def _compute_sum(manifest: Manifest) -> str:
    plain = msgspec.json.encode(msgspec.structs.replace(manifest, sum=""))
    return hashlib.sha256(plain).hexdigest()


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the content of the manifest's file, with its sum."""
    signed = msgspec.structs.replace(manifest, sum=_compute_sum(manifest))
    return msgspec.json.format(msgspec.json.encode(signed), indent=2) + b"\n"


def decode_manifest(content: bytes, where: str) -> Manifest:
    """Read the content of a manifest's file, which lies at `where`.

    Raises:
        StateRefusedError: it was written by a newer elastane.
        StateFileError: it is damaged.
    """
    try:
        version = msgspec.json.decode(content, type=_Version).format_version
        if version != FORMAT_VERSION:
            raise StateRefusedError(
                f"{where} has format version {version}, this elastane reads version {FORMAT_VERSION}; "
                "resume with the version of elastane that wrote it"
            )
        manifest = msgspec.json.decode(content, type=Manifest)
    except msgspec.DecodeError as error:
        raise StateFileError(f"{where} is damaged: {error}") from error
    if manifest.sum != _compute_sum(manifest):
        raise StateFileError(f"{where} is damaged: its sum does not fit its content")
    names = [file.name for file in manifest.files]
    if any("/" in name or name in ("", ".", "..", MANIFEST_NAME) for name in names):
        raise StateFileError(f"{where} is damaged: it names files outside its folder ({names})")
    return manifest
