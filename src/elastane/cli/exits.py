"""The exit codes of the command line, and which error ends with which; documented in `docs/cli.md`."""

import errno
from enum import IntEnum

from elastane.model.errors import (
    ConfigError,
    ElastaneError,
    FilesElsewhereError,
    JobNotFoundError,
    JobStateError,
    StateFileError,
    StoreError,
)


class Exit(IntEnum):
    """Name the exit codes. They are part of the interface: a code never changes its meaning."""

    DONE = 0
    """What was asked for is done; for `run` and `resume`: the training is finished."""
    FAILED = 1
    """The training script failed, or the job could not go on; for `doctor`: something does not work."""
    USAGE = 2
    """The command, a flag or a value cannot be used; nothing was changed."""
    NOT_FOUND = 3
    """There is no such job or worker, or more than one that fits."""
    REFUSED = 4
    """The job cannot take the request in its present phase."""
    ENVIRONMENT = 5
    """The store, the disk or another part of the machine does not work."""
    TIMED_OUT = 6
    """What was waited for did not happen in time; the request itself stands."""
    STOPPED = 10
    """The job was stopped and its state is saved: `elastane resume` goes on. Not 0, so that `run && evaluate`
    does not go on with a half-trained model."""
    INTERRUPTED = 130
    """Ended at once by a second Ctrl-C (128 + SIGINT, as in shells)."""


_ADVICE = {
    errno.ENOSPC: "free some space, or choose another home with --home",
    errno.EDQUOT: "free some space, or choose another home with --home",
    errno.EACCES: "allow it, or choose another home with --home",
    errno.EPERM: "allow it, or choose another home with --home",
    errno.EROFS: "choose a home that can be written with --home",
    errno.EMFILE: "allow more open files: ulimit -n 4096",
    errno.EAGAIN: "allow more processes (ulimit -u), or end some",
    errno.ENOMEM: "end other programs, or ask for fewer workers",
}
"""What to do about errors of the operating system."""

_CODES: tuple[tuple[type[Exception], Exit], ...] = (
    (ConfigError, Exit.USAGE),
    (JobNotFoundError, Exit.NOT_FOUND),
    (JobStateError, Exit.REFUSED),
    (FilesElsewhereError, Exit.ENVIRONMENT),
    (StateFileError, Exit.ENVIRONMENT),
    (StoreError, Exit.ENVIRONMENT),
    (ElastaneError, Exit.FAILED),
    (OSError, Exit.ENVIRONMENT),
)


def compute_exit(error: Exception) -> Exit:
    """Return the exit code for an error: that of the first kind in the table that it is of."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), Exit.FAILED)


def describe_error(error: Exception) -> str:
    """Return what an error says to people; those of the operating system with what to do."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    where = f"{error.filename}: " if error.filename else ""
    advice = _ADVICE.get(error.errno or 0)
    return f"{where}{error.strerror}{f'; {advice}' if advice else ''}"
