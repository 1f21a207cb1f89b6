"""Pin the kernels so that a virtual worker computes the same bits wherever it runs."""

import os
from typing import Literal

import torch

from elastane.model.errors import ConfigError

Determinism = Literal["placement", "off"]


def apply_determinism(level: Determinism, device: torch.device) -> None:
    """Set torch's switches for `level`; on CPU the kernels are deterministic for a fixed thread count.

    Raises:
        ConfigError: the level is unknown.
    """
    if level not in ("placement", "off"):
        raise ConfigError(f"determinism={level!r} is unknown; use 'placement' or 'off'")
    if level == "off" or device.type != "cuda":
        return
    # cuBLAS documents this setting as the condition for equal results between runs.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
