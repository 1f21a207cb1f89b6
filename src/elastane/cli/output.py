"""Write what a command has to say: for people through rich, with --json as data that stays stable.

With --json standard output holds JSON and nothing else, also when something goes wrong: one document,
or one object a line where a command streams. Remarks go to standard error.
"""

import json
import math
import os
import sys
from typing import Any, TextIO

import msgspec
from rich.console import Console, RenderableType

from elastane.cli.exits import Exit

PIPE_WIDTH = 200
"""Columns of output that no terminal bounds."""


class Output:
    """Write the results and remarks of one command."""

    __slots__ = ("as_json", "people", "remarks")

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.people = _make_console(sys.stdout)
        self.remarks = _make_console(sys.stderr)

    def show(self, data: Any, rendered: RenderableType) -> None:
        """Write `data` as one JSON document, or `rendered` for people."""
        if self.as_json:
            write_json(data)
        else:
            self.people.print(rendered)

    def stream(self, data: Any, line: str, style: str = "") -> None:
        """Write `data` as one line of JSON, or `line` for people, at once."""
        if self.as_json:
            write_json_line(data)
        else:
            self.people.print(line, style=style, markup=False, soft_wrap=True)

    def remark(self, text: str, style: str = "dim") -> None:
        """Say something beside the result, on standard error."""
        self.remarks.print(text, style=style, markup=False, soft_wrap=True)

    def fail(self, code: Exit, message: str) -> None:
        """Say what went wrong."""
        if self.as_json:
            write_json_line(
                {"error": {"kind": code.name.lower(), "exit_code": int(code), "message": message}}
            )
        else:
            self.remarks.print(f"elastane: {message}", style="red", markup=False, soft_wrap=True)


def _make_console(stream: TextIO) -> Console:
    # Into a pipe or file goes what a wide terminal would show, so that no row is broken for `grep`.
    wide = None if stream.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
    return Console(file=stream, highlight=False, width=wide)


def write_json(data: Any) -> None:
    """Write one document, indented so that people can read it too."""
    text = json.dumps(to_plain(data), indent=2, ensure_ascii=False)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def write_json_line(data: Any) -> None:
    """Write one object on one line and flush it, so that a pipe sees it at once."""
    sys.stdout.write(json.dumps(to_plain(data), ensure_ascii=False) + "\n")
    sys.stdout.flush()


def to_plain(data: Any) -> Any:
    """Return records and dataclasses as plain data; numbers that JSON does not know become text."""
    return _without_specials(msgspec.to_builtins(data))


def _without_specials(data: Any) -> Any:
    if isinstance(data, dict):
        return {name: _without_specials(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [_without_specials(value) for value in data]
    if isinstance(data, float) and not math.isfinite(data):
        return str(data)
    return data
