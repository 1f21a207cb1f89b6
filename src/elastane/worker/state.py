"""The replicated state of a job at a step boundary: everything that decides its future.

`JobState` knows the live objects (models, optimizers, schedulers, registered objects) and takes them
apart into tensors and plain data, or puts received ones back in place. It knows neither links nor files.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from elastane.model.errors import ConfigError, ModelMismatchError, UnsupportedModelError
from elastane.worker.layout import choose_device, memory_order, same_memory
from elastane.worker.parts import (
    capture_model,
    capture_optimizer,
    check_model_state,
    check_optimizer_state,
    restore_model,
    restore_optimizer,
)
from elastane.worker.skeleton import Skeleton, TensorSplitter, join_tensors

_T = TypeVar("_T")


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
        skeleton: by part ("model", "optimizer", "scheduler", "registered/ema"), nested plain data in which
            each tensor is replaced by its number (see `skeleton.py`).
        tensors: the tensors by name, references and not copies, in the order of their numbers.
        host_tensors: names of the tensors on the CPU, when the job runs elsewhere.
        owned: whether the tensors belong to nobody else, so that restoring may keep them.
    """

    step: int
    epoch: int
    device_type: str
    skeleton: Mapping[str, Skeleton]
    tensors: Mapping[str, Tensor]
    host_tensors: frozenset[str] = frozenset()
    owned: bool = False

    @property
    def tensor_bytes(self) -> int:
        """Return the bytes of all tensors together."""
        return sum(t.numel() * t.element_size() for t in self.tensors.values())


@dataclass(slots=True, kw_only=True)
class JobState:
    """Know the live objects whose state is replicated, and the job's counters.

    Attributes:
        device: device on which the models lie.
        models: usually one; their order is the same in every worker.
        optimizers: as torch made them, not wrapped.
        schedulers: learning-rate schedulers.
        registered: anything else with state_dict and load_state_dict, by name.
        step: steps committed so far.
        epoch: epoch of the next step.
    """

    device: torch.device
    models: Sequence[nn.Module]
    optimizers: Sequence[torch.optim.Optimizer] = ()
    schedulers: Sequence[Stateful] = ()
    registered: dict[str, Stateful] = field(default_factory=dict)
    step: int = 0
    epoch: int = 0

    def register(self, name: str, obj: Stateful) -> None:
        """Add an object (EMA, GradScaler, meter) to the state.

        Raises:
            ConfigError: the name is taken.
            UnsupportedModelError: the object cannot hand out its state.
        """
        if name in self.registered:
            raise ConfigError(
                f"register({name!r}): an object of this name is already registered; choose another name"
            )
        if not all(callable(getattr(obj, method, None)) for method in ("state_dict", "load_state_dict")):
            raise UnsupportedModelError(
                f"register({name!r}): {type(obj).__name__} lacks state_dict or load_state_dict; "
                "give it both, so that workers that join later can take over its state"
            )
        self.registered[name] = obj

    def capture(self) -> CapturedState:
        """Take the state apart; the tensors are the live ones, so use them before the next step.

        Raises:
            UnsupportedModelError: a state_dict holds something that is neither plain data nor a tensor.
        """
        splitter = TensorSplitter()
        skeleton: dict[str, Skeleton] = {}
        for name, model in self.named_models().items():
            skeleton[name] = splitter.split(capture_model(model), name)
        for name, optimizer in self.named_optimizers().items():
            skeleton[name] = splitter.split(capture_optimizer(optimizer), name)
        for name, obj in self.named_stateful().items():
            skeleton[name] = splitter.split(obj.state_dict(), name)
        return CapturedState(
            step=self.step,
            epoch=self.epoch,
            device_type=self.device.type,
            skeleton=skeleton,
            tensors=splitter.tensors,
            host_tensors=self._host_tensors(splitter.tensors),
        )

    def restore(self, state: CapturedState) -> None:
        """Put a captured, received or loaded state in place, without changing a bit of it.

        Parameters and buffers are copied into the existing tensors, and so is the state of optimizers
        where tensors of the same kind exist: user code and captured graphs hold references to them.

        Raises:
            ModelMismatchError: the state is that of another model or optimizer; nothing was changed.
        """
        self.check_fits(state)
        self.adopt(replace(state, tensors=self._settle(state)))

    def adopt(self, state: CapturedState) -> None:
        """Put a state in place whose tensors are live ones of this worker, or belong to nobody else.

        The last step of `restore`; for those who have received into the live tensors and checked before.
        """
        tensors = tuple(state.tensors.values())
        parts = {name: join_tensors(skeleton, tensors) for name, skeleton in state.skeleton.items()}
        for name, model in self.named_models().items():
            restore_model(model, parts[name])
        for name, optimizer in self.named_optimizers().items():
            restore_optimizer(optimizer, parts[name])
        for name, obj in self.named_stateful().items():
            obj.load_state_dict(parts[name])
        self.step, self.epoch = state.step, state.epoch

    def check_fits(self, state: CapturedState) -> None:
        """Raise ModelMismatchError if the state is that of another model, optimizer or set of objects."""
        own = {*self.named_models(), *self.named_optimizers(), *self.named_stateful()}
        if own != set(state.skeleton):
            raise ModelMismatchError(
                f"this worker's script gave the job {sorted(own)}, the state holds {sorted(state.skeleton)}; "
                "all workers must pass the same objects to prepare() and register()"
            )
        tensors = tuple(state.tensors.values())
        for name, model in self.named_models().items():
            check_model_state(name, model, join_tensors(state.skeleton[name], tensors))
        for name, optimizer in self.named_optimizers().items():
            check_optimizer_state(name, optimizer, join_tensors(state.skeleton[name], tensors))

    def named_models(self) -> dict[str, nn.Module]:
        """Return the models under the names that they have in a state: "model", "model2", ..."""
        return _numbered("model", self.models)

    def named_optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """Return the optimizers under the names that they have in a state: "optimizer", "optimizer2", ..."""
        return _numbered("optimizer", self.optimizers)

    def named_stateful(self) -> dict[str, Stateful]:
        """Return schedulers and registered objects: "scheduler", "scheduler2", ..., "registered/ema", ..."""
        return {
            **_numbered("scheduler", self.schedulers),
            **{f"registered/{name}": obj for name, obj in self.registered.items()},
        }

    def _host_tensors(self, tensors: Mapping[str, Tensor]) -> frozenset[str]:
        if self.device.type == "cpu":
            return frozenset()
        return frozenset(name for name, tensor in tensors.items() if tensor.device.type == "cpu")

    def _settle(self, state: CapturedState) -> dict[str, Tensor]:
        # The state's tensors: as live ones, overwritten, where such exist; as new ones otherwise.
        targets = find_targets(self.capture())
        settled = {}
        with torch.no_grad():
            for name, tensor in state.tensors.items():
                device = choose_device(
                    name, on_host=name in state.host_tensors, source_type=state.device_type, own=self.device
                )
                settled[name] = _settle_tensor(tensor, device, targets.get(name), owned=state.owned)
        return settled


def copy_state(state: CapturedState) -> CapturedState:
    """Return a captured state with tensors of its own, which later steps do not change."""
    tensors = {name: tensor.detach().clone() for name, tensor in state.tensors.items()}
    return replace(state, tensors=tensors)


def find_targets(state: CapturedState) -> dict[str, Tensor]:
    """Return the live tensors into which a received state may be written, by name.

    They are those of models and optimizers: what schedulers and registered objects hand out may be copies,
    or belong to others. Tensors that begin at the same address are left out: the sender may have told
    them apart.
    """
    owners = Counter(tensor.data_ptr() for tensor in state.tensors.values())
    return {
        name: tensor
        for name, tensor in state.tensors.items()
        if name.startswith(("model", "optimizer"))
        and owners[tensor.data_ptr()] == 1
        and memory_order(tensor) is not None
    }


def _settle_tensor(tensor: Tensor, device: torch.device, target: Tensor | None, *, owned: bool) -> Tensor:
    if target is not None and _alike(target, tensor, device):
        return target if same_memory(target, tensor) else target.copy_(tensor)
    if tensor.device.type != device.type:
        return tensor.to(device)
    return tensor if owned else tensor.clone()


def _alike(target: Tensor, tensor: Tensor, device: torch.device) -> bool:
    return (
        target.dtype == tensor.dtype
        and target.shape == tensor.shape
        and memory_order(target) == memory_order(tensor)
        and target.device.type == device.type
    )


def _numbered(kind: str, objects: Sequence[_T]) -> dict[str, _T]:
    return {kind if i == 0 else f"{kind}{i + 1}": obj for i, obj in enumerate(objects)}
