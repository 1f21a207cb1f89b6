"""Give the text lines of a trace file one after another: plain or gzip, with or without a byte-order mark.

Only one line is held at a time, so a file may be larger than memory. Knows nothing about columns.
Every way in which a file can fail to be text becomes a ConfigError that says what to do.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from elastane.model.errors import ConfigError

_GZIP_MAGIC = b"\x1f\x8b"
_FOREIGN_MAGIC = {
    b"PK\x03\x04": "a zip archive: unpack it first",
    b"(\xb5/\xfd": "compressed with zstd: unpack it first (`zstd -d`)",
    b"BZh": "compressed with bzip2: unpack it first (`bunzip2`)",
    b"\xfd7zXZ": "compressed with xz: unpack it first (`unxz`)",
    b"PAR1": "a Parquet file: export it as CSV first",
    b"SQLi": "an SQLite database: export the job table as CSV first",
    b"versi": "a Git LFS pointer, not the data: fetch the real file with `git lfs pull`",
}
_LONGEST_LINE = 1_000_000
"""A trace line has some hundred characters; a longer one means a file without line ends."""


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of `path` without their line ends.

    Raises ConfigError for a missing file, a folder, a foreign format, a cut-off archive, or bytes
    that are not text.
    """
    number = 0
    try:
        with path.open("rb") as raw:
            for number, line in enumerate(_text_of(raw, path), start=1):
                if len(line) > _LONGEST_LINE or "\0" in line:
                    raise ConfigError(f"{path}: line {number} is not text; a trace is a text file of rows.")
                yield line.rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}: after line {number} come bytes that are not UTF-8 text ({error.reason}); "
            "convert the file, e.g. `iconv -f latin1 -t utf-8`."
        ) from error
    except EOFError as error:
        raise ConfigError(
            f"{path}: the gzip archive is cut off after line {number}; copy or download it again. "
            "Jobs after the cut would be missing, so nothing was simulated."
        ) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise ConfigError(f"{path}: the gzip archive is damaged after line {number} ({error}).") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {_reason(error, path)}.") from error


def _text_of(raw: IO[bytes], path: Path) -> IO[str]:
    """Return the text stream of an open file; looks at its first bytes."""
    head = raw.read(8) if raw.seekable() else b""
    if raw.seekable():
        raw.seek(0)
    for magic, what in _FOREIGN_MAGIC.items():
        if head.startswith(magic):
            raise ConfigError(f"{path}: this is {what}.")
    packed = head.startswith(_GZIP_MAGIC)
    return io.TextIOWrapper(gzip.GzipFile(fileobj=raw) if packed else raw, encoding="utf-8-sig")


def _reason(error: OSError, path: Path) -> str:
    """Say in words why the file cannot be opened."""
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    if isinstance(error, IsADirectoryError) or path.is_dir():
        return "it is a folder; name one trace file in it"
    return error.strerror or str(error)
