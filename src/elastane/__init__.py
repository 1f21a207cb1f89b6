"""Elastic PyTorch training: jobs that grow, shrink, move and survive without changing a bit.

A training script needs `Job`; everything else is the command line's. torch is imported only when a name
that needs it is asked for, so that `elastane ps` starts at once.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elastane.core.batching import CappedLocal, FixedGlobal
    from elastane.worker.job import Job
    from elastane.worker.shards import shards
    from elastane.worker.standing import Left

__all__ = ["CappedLocal", "FixedGlobal", "Job", "Left", "shards"]
__version__ = "0.1.0"

_HOMES = {
    "CappedLocal": "elastane.core.batching",
    "FixedGlobal": "elastane.core.batching",
    "Job": "elastane.worker.job",
    "Left": "elastane.worker.standing",
    "shards": "elastane.worker.shards",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'elastane' has no attribute {name!r}")
    import importlib  # noqa: PLC0415

    return getattr(importlib.import_module(_HOMES[name]), name)
