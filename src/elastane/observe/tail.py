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

    def skip_to_last(self, count: int) -> None:
        """Go on with the last `count` whole lines there are (1 or more), however long the file is.

        Raises:
            OSError: the file exists but cannot be read.
        """
        lines, whole_bytes = read_last_lines(self.path, count)
        self._offset = whole_bytes - sum(len(line) + 1 for line in lines)

    def poll(self, *, last: bool = False) -> list[bytes]:
        """Return the whole lines that appeared since the last call, without their line ends.

        With `last` no more is expected, and what stands after the last line end is a line, too.

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
        if last and torn:
            lines.append(torn)
            torn = b""
        self._offset += len(data) - len(torn)
        return lines


def read_last_lines(path: Path, count: int) -> tuple[list[bytes], int]:
    """Return the last whole lines of a file, without line ends, and how many bytes end with them.

    At most `count` lines (1 or more), fewer if the file has fewer; the cost does not depend on its length.
    What lies beyond the bytes is a torn line. Without a file or a whole line: ([], 0).

    Raises:
        OSError: the file exists but cannot be read.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return [], 0
    with file:
        start = file.seek(0, os.SEEK_END)
        data = b""
        # One line end more than lines: the one before the first of them.
        while start > 0 and data.count(b"\n") <= count:
            length = min(BLOCK_BYTES, start)
            start -= length
            file.seek(start)
            data = file.read(length) + data
    lines = data.split(b"\n")
    torn = lines.pop()
    whole_bytes = start + len(data) - len(torn) if lines else 0
    return lines[-count:], whole_bytes
