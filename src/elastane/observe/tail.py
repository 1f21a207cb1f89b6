"""Read a file of lines that other processes are still appending to.

Only whole lines are given out: the torn end of a line, left by a writer that is not done or was killed,
stays unread until its end arrives. What a line means is its reader's business.
"""

import os
from pathlib import Path

BLOCK_BYTES = 1 << 16
"""How much is read at once from the end of a file; a few hundred lines of metrics."""


class LineTail:
    """Give out the lines of a file as they appear; the file may not exist yet."""

    __slots__ = ("_offset", "path")

    def __init__(self, path: Path) -> None:
        """Start at the beginning of `path`."""
        self.path = path
        self._offset = 0

    def poll(self) -> list[bytes]:
        """Return the whole lines that appeared since the last call, without their line ends.

        Raises:
            OSError: the file exists but cannot be read.
        """
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        # A torn line is read again next time: until then a new writer may have cut it off.
        *lines, torn = data.split(b"\n")
        self._offset += len(data) - len(torn)
        return lines


def read_last_line(path: Path) -> tuple[bytes, int]:
    """Return the last whole line of a file, without its line end, and how many bytes end with it.

    What lies beyond those bytes is a torn line. Without a file or a whole line: (b"", 0).
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return b"", 0
    with file:
        start = file.seek(0, os.SEEK_END)
        data = b""
        while start > 0:
            length = min(BLOCK_BYTES, start)
            start -= length
            file.seek(start)
            data = file.read(length) + data
            last = data.rfind(b"\n")
            before = data.rfind(b"\n", 0, last) if last >= 0 else -1
            if before >= 0 or (last >= 0 and start == 0):
                return data[before + 1 : last], start + last + 1
    return b"", 0
