"""How models and optimizers hand out their state as nested data, and take it back in place.

Unlike Module.state_dict this covers everything that decides later steps: non-persistent buffers, which
parameters are frozen, which modules are in evaluation mode. Unlike Optimizer.load_state_dict it casts
nothing. Both leave the existing tensors where they are, since user code holds references to them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from elastane.model.errors import ModelMismatchError
from elastane.worker.layout import dtype_name, same_memory


def capture_model(model: nn.Module) -> dict[str, Any]:
    """Return everything of a model that decides the future, by kind and name; tensors are the live ones."""
    modules = dict(model.named_modules())
    parameters = dict(model.named_parameters())
    return {
        "parameters": parameters,
        "buffers": {name: module._buffers[key] for name, module, key in _iterate_buffers(model)},
        "extra_state": {name: modules[name].get_extra_state() for name in _modules_with_extra_state(modules)},
        "frozen": [name for name, parameter in parameters.items() if not parameter.requires_grad],
        "evaluating": [name for name, module in modules.items() if not module.training],
    }


def describe_model(captured: Mapping[str, Any]) -> dict[str, str]:
    """Return what must agree before a state fits: parameters with dtype and shape, names of the rest."""
    return {
        **{name: describe_kind(tensor) for name, tensor in captured["parameters"].items()},
        **{f"buffer {name}": "" for name in captured["buffers"]},
        **{f"extra state of {name or 'the model'}": "" for name in captured["extra_state"]},
    }


def describe_kind(tensor: Tensor) -> str:
    """Return dtype and shape, for example "float32 [16, 1, 3, 3]"."""
    return f"{dtype_name(tensor.dtype)} {list(tensor.shape)}"


def check_model_state(name: str, model: nn.Module, state: Mapping[str, Any]) -> None:
    """Raise ModelMismatchError unless `state` is that of a model like `model`."""
    own, other = describe_model(capture_model(model)), describe_model(state)
    for key in sorted({*own, *other}):
        if own.get(key) != other.get(key):
            raise ModelMismatchError(
                f"{name}: {key} is {_shown(own, key)} in this worker and {_shown(other, key)} in the state; "
                "all workers must build the same model"
            )


def _shown(described: Mapping[str, str], key: str) -> str:
    return described[key] or "present" if key in described else "absent"


def restore_model(model: nn.Module, state: Mapping[str, Any]) -> None:
    """Copy a state into the model's own tensors; buffers of another shape or dtype are replaced."""
    frozen, evaluating = set(state["frozen"]), set(state["evaluating"])
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not same_memory(parameter, state["parameters"][name]):
                parameter.copy_(state["parameters"][name])
            if parameter.requires_grad == (name in frozen):
                parameter.requires_grad_(name not in frozen)
        for name, module, key in _iterate_buffers(model):
            _restore_buffer(module, key, state["buffers"][name])
    for name, module in model.named_modules():
        module.training = name not in evaluating
        if name in state["extra_state"]:
            module.set_extra_state(state["extra_state"][name])


def _restore_buffer(module: nn.Module, key: str, value: Tensor | None) -> None:
    own = module._buffers[key]
    if own is None or value is None or describe_kind(own) != describe_kind(value):
        module._buffers[key] = value
    elif not same_memory(own, value):
        own.copy_(value)


def _iterate_buffers(model: nn.Module) -> Iterator[tuple[str, nn.Module, str]]:
    # Not named_buffers(): that leaves out buffers which are None now and tensors later.
    for prefix, module in model.named_modules():
        for key in module._buffers:
            yield f"{prefix}.{key}" if prefix else key, module, key


def _modules_with_extra_state(modules: Mapping[str, nn.Module]) -> list[str]:
    plain = nn.Module.get_extra_state
    return [name for name, module in modules.items() if type(module).get_extra_state is not plain]


def capture_optimizer(optimizer: Optimizer) -> dict[str, Any]:
    """Return an optimizer's state and settings; parameters are numbers, tensors the live ones."""
    return dict(optimizer.state_dict())


def check_optimizer_state(name: str, optimizer: Optimizer, state: Mapping[str, Any]) -> None:
    """Raise ModelMismatchError unless `state` has the parameter groups of `optimizer`."""
    own = [len(group["params"]) for group in optimizer.param_groups]
    other = [len(group["params"]) for group in state["param_groups"]]
    if own != other:
        raise ModelMismatchError(
            f"{name}: this worker's groups have {own} parameters, those of the state {other}; all workers "
            "must build the same groups, and groups added while training must be added by joining workers too"
        )


def restore_optimizer(optimizer: Optimizer, state: dict[str, Any]) -> None:
    """Take over a state without casting anything; a class with its own load_state_dict uses that."""
    if type(optimizer).load_state_dict is not Optimizer.load_state_dict:
        optimizer.load_state_dict(state)
        return
    for group, restored in zip(optimizer.param_groups, state["param_groups"], strict=True):
        parameters = group["params"]
        group.clear()
        group.update({**restored, "params": parameters})
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    by_parameter = {
        parameters[key] if isinstance(key, int) else key: value for key, value in state["state"].items()
    }
    optimizer.state.clear()
    optimizer.state.update(by_parameter)
    # Lets the class fill in what its version has and the state lacks; a no-op for a state of its own.
    optimizer.__setstate__({"state": optimizer.state, "param_groups": optimizer.param_groups})
