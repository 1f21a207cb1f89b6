"""The state that a graceful stop writes and a resume reads."""

from pathlib import Path

from elastane.model.ids import JobId
from elastane.worker.state import CapturedState


def save_state(directory: Path, state: CapturedState, *, job: JobId, virtual_workers: int) -> None:
    """Write a state so that a crash or a full disk at any moment leaves the old or the new one whole.

    Args:
        directory: made if absent; holds one state (usually `<job's folder>/final`).
        state: captured state; it must not change during the call.
        job: job id, checked at load.
        virtual_workers: N, checked at load.

    Raises:
        StateFileError: the disk is full or not writable.
    """
    raise NotImplementedError


def load_state(directory: Path, *, job: JobId, virtual_workers: int) -> CapturedState:
    """Read what `save_state` wrote; pass it to `JobState.restore`.

    Raises:
        StateFileError: nothing was saved, or it is damaged, of another job, N or format version.
    """
    raise NotImplementedError
