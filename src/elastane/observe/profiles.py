"""Write and read the files of measured profiles: JSON, whole or not at all.

What the figures mean is the business of `perf.measured`, which job they fit that of `core.profiling`.
"""

import os
from pathlib import Path

import msgspec

from elastane.model.errors import ConfigError
from elastane.model.profile import PROFILE_FORMAT, PROFILE_KIND, MeasuredProfile

MOST_BYTES = 64 << 20
"""A profile has a few hundred bytes for each size; a larger file was given by mistake."""


class _Head(msgspec.Struct):
    """Hold what tells whether the rest can be read."""

    kind: str = ""
    format: int = 0


def save_profile(profile: MeasuredProfile, path: Path) -> None:
    """Write a profile; a former file is replaced in one go.

    Raises:
        OSError: the file cannot be written; a former one is as it was.
    """
    text = msgspec.json.format(msgspec.json.encode(profile)) + b"\n"
    write_whole(path, text)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that appears whole or not at all.

    Raises:
        OSError: it cannot be written; what was there is as it was.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def load_profile(path: Path) -> MeasuredProfile:
    """Return the profile in a file.

    Raises:
        ConfigError: there is none, it is no profile, or of a format that this version does not know.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ConfigError(f"{path} has more than {MOST_BYTES} bytes: it is no profile")
        text = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"the profile {path} cannot be read: {error.strerror}") from error
    try:
        head = msgspec.json.decode(text, type=_Head)
        if head.kind != PROFILE_KIND:
            raise ConfigError(f"{path} is no profile that `elastane profile` has written")
        if head.format != PROFILE_FORMAT:
            raise ConfigError(
                f"the profile {path} has format {head.format}; this version of elastane reads format "
                f"{PROFILE_FORMAT}: measure it anew, or use the version that wrote it"
            )
        profile = msgspec.json.decode(text, type=MeasuredProfile)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path} is no profile that `elastane profile` has written: {error}") from error
    if not profile.points:
        raise ConfigError(f"the profile {path} has no measured size")
    return profile
