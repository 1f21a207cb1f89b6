"""The first and last moments of a worker process, the same for forked (warm) and spawned (cold) ones.

Everything between is the entry's: a function of the context that runs the user's script and returns the exit
code. The process ends like any Python program: threads joined, `atexit` handlers run, output flushed;
but without tearing down the interpreter, which takes long with torch loaded and can crash in native code.
"""

import atexit
import importlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import NoReturn

import msgspec

from elastane.worker.context import WorkerContext, set_context

DEFAULT_ENTRY = "elastane.worker.bootstrap:main"

CODE_INTERRUPTED = 130
"""128 + SIGINT, as shells report it."""


def run_worker(context: WorkerContext, entry: str, began_at_s: float) -> NoReturn:
    """Run a worker's life in this process, which began then, and end the process with its exit code."""
    context = msgspec.structs.replace(context, began_at_s=began_at_s)
    _reset_signals()
    os.environ.update(context.environment)
    set_context(context)
    code = 1
    try:
        code = _call(context, entry)
        _finish()
    finally:
        _flush()
        os._exit(code)


def load_entry(entry: str) -> Callable[[WorkerContext], int]:
    """Return the function named "package.module:function"."""
    module, _, function = entry.partition(":")
    loaded: Callable[[WorkerContext], int] = getattr(importlib.import_module(module), function)
    return loaded


def _reset_signals() -> None:
    """Undo what was inherited: blocked signals, or ignored ones (shells do so for background jobs)."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _call(context: WorkerContext, entry: str) -> int:
    try:
        return load_entry(entry)(context)
    except SystemExit as exit_request:
        if exit_request.code is None or isinstance(exit_request.code, int):
            return exit_request.code or 0
        sys.stderr.write(f"{exit_request.code}\n")
        return 1
    except KeyboardInterrupt:
        return CODE_INTERRUPTED
    except BaseException:  # noqa: BLE001 - the last line of defence: shown in the worker's log, told by the code
        traceback.print_exc()
        return 1


def _finish() -> None:
    """Do what the interpreter does before it is torn down. Both names are private, and what
    `multiprocessing` calls at the same point of its forked children's lives."""
    for owner, name in ((threading, "_shutdown"), (atexit, "_run_exitfuncs")):
        getattr(owner, name)()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue  # closed by the script, or the disk is full: there is nobody left to tell
