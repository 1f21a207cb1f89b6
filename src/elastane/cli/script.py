"""Look at a training script before a job is made of it, so that slips of the hand cost no job."""

import ast
import os
import re
import warnings
from pathlib import Path

from elastane.model.errors import ConfigError

SHOWN_SCRIPTS = 5
"""How many files of a folder are named: enough to recognise the right one."""


def check_script(path: Path) -> Path:
    """Return the absolute path of a script that can be run; nothing of it runs.

    Raises:
        ConfigError: it is missing, a folder, unreadable, no Python, or cannot be parsed.
    """
    if path.is_dir():
        scripts = sorted(file.name for file in path.glob("*.py"))[:SHOWN_SCRIPTS]
        there = f" (there are: {', '.join(scripts)})" if scripts else ""
        raise ConfigError(f"{path} is a folder; name the Python file in it that trains{there}")
    if not path.exists():
        raise ConfigError(f"the script {path} does not exist (looked at {path.absolute()}); check the path")
    if not path.is_file():
        raise ConfigError(f"{path} is no regular file; name the Python file that trains")
    if not os.access(path, os.R_OK):
        raise ConfigError(f"the script {path} cannot be read; allow it with: chmod u+r {path}")
    _check_python(path)
    return path.resolve()


def _check_python(path: Path) -> None:
    source = path.read_bytes()
    if b"\0" in source:
        raise ConfigError(f"{path} is no Python file but binary data; name the Python file that trains")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the script's own warnings are shown when it runs
            ast.parse(source, filename=str(path))
    except SyntaxError as error:
        where = f"{path}:{error.lineno}" if error.lineno else str(path)
        raise ConfigError(f"{where} is no valid Python: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is no valid Python: {error}") from error


def make_name(script: Path) -> str:
    """Return the name a job of this script gets if none is given: the file's, as far as names allow."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", script.stem).strip("-_")
    return name[:40] or "job"
