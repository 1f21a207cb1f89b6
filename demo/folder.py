"""The folder of the results: made, emptied of what an earlier demonstration left, and of nothing else."""

import shutil
from pathlib import Path

from demo.processes import DemoError

MARKER = ".elastane-demo"
"""Tells a folder that an earlier demonstration made, and that the next may empty, from all others."""


def prepare_folder(out: Path) -> None:
    """Make the folder of the results, empty of those of an earlier demonstration.

    Raises:
        DemoError: it holds something else.
    """
    if out.exists() and not (out / MARKER).exists() and (not out.is_dir() or any(out.iterdir())):
        raise DemoError(f"{out} holds something that no demonstration made; give another folder with --out")
    clear_folder(out)
    out.mkdir(parents=True, exist_ok=True)
    (out / MARKER).touch()


def clear_folder(out: Path) -> None:
    """Delete what a demonstration leaves in its folder while it runs."""
    for name in ("elastic", "plain"):
        shutil.rmtree(out / name, ignore_errors=True)
    for name in ("elastic.log", "demo.png", "result.json"):
        (out / name).unlink(missing_ok=True)
