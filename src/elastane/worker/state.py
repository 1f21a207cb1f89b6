"""The replicated state of a job at a step boundary: everything that decides its future.

`JobState` knows the live objects (models, optimizers, schedulers, registered objects) and takes them
apart into tensors and plain data, or puts received ones back in place. It knows neither links nor files.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn


class Stateful(Protocol):
    """Be anything that can hand out and take back its state: schedulers, scalers, meters, EMA models."""

    def state_dict(self) -> Mapping[str, Any]:
        """Return the state: plain data and tensors."""

    def load_state_dict(self, state_dict: dict[str, Any], /) -> object:
        """Take over a state that `state_dict` of an equal object returned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedState:
    """Hold the state at one step boundary, taken apart.

    Attributes:
        step: steps committed so far.
        epoch: epoch of the next step.
        device_type: kind of device the job ran on, "cpu" or "cuda".
        skeleton: nested plain data in which each tensor is replaced by its number (see `skeleton.py`).
        tensors: the tensors by name, references and not copies, in the order of their numbers.
    """

    step: int
    epoch: int
    device_type: str
    skeleton: Any
    tensors: Mapping[str, Tensor]

    @property
    def tensor_bytes(self) -> int:
        """Return the bytes of all tensors together."""
        return sum(t.numel() * t.element_size() for t in self.tensors.values())


class JobState:
    """Know the live objects whose state is replicated; `step` and `epoch` are the job's counters."""

    def __init__(
        self,
        *,
        device: torch.device,
        models: Sequence[nn.Module],
        optimizers: Sequence[torch.optim.Optimizer] = (),
        schedulers: Sequence[Stateful] = (),
    ) -> None:
        self.device = device
        self.models = tuple(models)
        self.optimizers = tuple(optimizers)
        self.schedulers = tuple(schedulers)
        self.registered: dict[str, Stateful] = {}
        self.step = 0
        self.epoch = 0

    def register(self, name: str, obj: Stateful) -> None:
        """Add an object (EMA, GradScaler, meter) to the state. Raise ConfigError if the name is taken."""
        raise NotImplementedError

    def capture(self) -> CapturedState:
        """Take the state apart; the tensors are the live ones, so use them before the next step.

        Raises:
            UnsupportedModelError: a state_dict holds something that is neither plain data nor a tensor.
        """
        raise NotImplementedError

    def restore(self, state: CapturedState) -> None:
        """Put a captured, received or loaded state in place, without changing a bit of it.

        Parameters and buffers are copied into the existing tensors; optimizer state of equal shape too.

        Raises:
            ModelMismatchError: the state is that of another model or optimizer; nothing was changed.
        """
        raise NotImplementedError
