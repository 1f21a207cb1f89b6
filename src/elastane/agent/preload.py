"""Which modules a preloaded parent imports so that a worker forked from it starts at once.

Reads the job's script with `ast`; it never runs it. Only installed packages and the standard library are
named: the script's own modules may change, read their own folder or do work when imported.
"""

import ast
import importlib
import importlib.util
import site
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

WORKER_MODULES = (
    "torch",
    "torch.nn.functional",
    "torch.optim.lr_scheduler",
    "torch.utils.data",
    "torch.distributed",
    # The first optimizer of a process imports it: 0.95 s, as long as torch itself (2 cores, torch 2.13).
    "torch._dynamo",
    # `elastane.Job` imports it on first use.
    "elastane.worker.job",
)


def find_imports(source: str) -> tuple[str, ...]:
    """Return the modules that a script imports at its top level, in order; () if it cannot be parsed.

    `from a import b` names both "a" and "a.b": which of them is a module shows when it is imported.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return ()  # the worker will say so, with its traceback
    return tuple(dict.fromkeys(_imported(tree.body)))


def find_preloads(script: Path) -> tuple[str, ...]:
    """Return the installed modules that `script` imports at its top level; () if it cannot be read."""
    try:
        source = script.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ()  # the worker will say so, with its traceback
    folders = _installed_folders()
    return tuple(name for name in find_imports(source) if _is_installed(name.partition(".")[0], folders))


def preload(names: Iterable[str]) -> tuple[list[str], dict[str, str]]:
    """Import modules by name; return those that could be imported, and why the others could not."""
    done: list[str] = []
    failed: dict[str, str] = {}
    for name in names:
        try:
            importlib.import_module(name)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - any module may raise anything; it is reported
            if not _is_attribute(name):
                failed[name] = f"{type(error).__name__}: {error}"
        else:
            done.append(name)
    return done, failed


def _imported(statements: Iterable[ast.stmt]) -> Iterator[str]:
    for statement in statements:
        match statement:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                yield module
                yield from (f"{module}.{alias.name}" for alias in names if alias.name != "*")
            case ast.Try(body=body):
                yield from _imported(body)


def _is_attribute(name: str) -> bool:
    """Tell whether "a.b" failed to be imported only because b is no module but a thing in a."""
    module, _, attribute = name.rpartition(".")
    try:
        return bool(module) and hasattr(importlib.import_module(module), attribute)
    except (Exception, SystemExit):  # noqa: BLE001 - the module's own failure is reported under its own name
        return True


def _installed_folders() -> tuple[Path, ...]:
    paths = sysconfig.get_paths()
    named = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return tuple(
        Path(text).resolve() for text in (*named, *site.getsitepackages(), site.getusersitepackages())
    )


def _is_installed(package: str, folders: Iterable[Path]) -> bool:
    if package == "elastane":
        return True
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return False
    if spec is None or spec.origin is None:
        return False
    if spec.origin in ("built-in", "frozen"):
        return True
    return any(Path(spec.origin).resolve().is_relative_to(folder) for folder in folders)
