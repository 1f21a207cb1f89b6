"""What all workers' models and optimizers must have in common, and what exact training cannot run."""

from elastane.model.records import ModelSignature
from elastane.worker.state import JobState


def compute_signature(state: JobState, virtual_workers: int) -> ModelSignature:
    """Describe the parameters, buffers and optimizers of this worker's script."""
    raise NotImplementedError


def check_signature(own: ModelSignature, other: ModelSignature) -> None:
    """Raise ModelMismatchError with the first difference unless the two are equal."""
    raise NotImplementedError


def check_supported(state: JobState, virtual_workers: int) -> None:
    """Raise UnsupportedModelError for SyncBatchNorm, or parameters that are not on the job's device."""
    raise NotImplementedError
