"""Digests of the committed state: equal exactly when all names, types, shapes and bits are equal."""

from collections.abc import Mapping

from torch import nn

from elastane.worker.state import CapturedState


def compute_digests(state: CapturedState) -> dict[str, str]:
    """Return the sha256 of every tensor and every plain value of a state, by name."""
    raise NotImplementedError


def compute_digest(state: CapturedState) -> str:
    """Return one sha256 (hex) for the whole state."""
    raise NotImplementedError


def compare_digests(own: Mapping[str, str], other: Mapping[str, str]) -> str | None:
    """Return the name of the first tensor or value that differs; None if all are equal."""
    raise NotImplementedError


def model_digest(model: nn.Module, *, buffers: bool = False) -> str:
    """Return one sha256 (hex) of a model's parameters (and buffers), whoever trained it."""
    raise NotImplementedError
