"""What all workers' models and optimizers must have in common, and what exact training cannot run.

Only what a script decides at its start is compared; what changes while training (frozen parameters, learning
rates) is state and travels.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from elastane.model.errors import ModelMismatchError, UnsupportedModelError
from elastane.model.records import ModelSignature
from elastane.worker.handing import Handing
from elastane.worker.layout import check_plain_tensor, memory_order
from elastane.worker.parts import capture_model, describe_kind
from elastane.worker.shards import ShardCatalogue
from elastane.worker.state import JobState, Stateful


def compute_signature(state: JobState, virtual_workers: int, batch: str = "") -> ModelSignature:
    """Describe the parameters, buffers, optimizers and registered objects of this worker's script.

    Args:
        state: of this worker.
        virtual_workers: N; under a batch policy the most workers.
        batch: the batch policy in words; "" if N is fixed.
    """
    entries: list[tuple[str, str]] = []
    for label, model in state.named_models().items():
        prefix = "" if label == "model" else f"{label}/"
        entries += _describe_tensors(prefix, capture_model(model))
    for label, optimizer in state.named_optimizers().items():
        group_sizes = ", ".join(str(len(group["params"])) for group in optimizer.param_groups)
        entries.append((label, f"{type(optimizer).__name__} with groups of {group_sizes} parameters"))
    entries += [(label, _describe_object(obj)) for label, obj in state.named_stateful().items()]
    return ModelSignature(virtual_workers=virtual_workers, batch=batch, entries=tuple(entries))


def _describe_tensors(prefix: str, captured: Mapping[str, Any]) -> list[tuple[str, str]]:
    parameters = [(prefix + name, _describe(tensor)) for name, tensor in captured["parameters"].items()]
    buffers = [
        (prefix + name, "buffer " + ("None" if tensor is None else _describe(tensor)))
        for name, tensor in captured["buffers"].items()
    ]
    return parameters + buffers


def _describe_object(obj: Stateful) -> str:
    return obj.text if isinstance(obj, ShardCatalogue | Handing) else type(obj).__name__


def _describe(tensor: Tensor) -> str:
    # Kernels, and so bits, depend on the order in memory too.
    order = memory_order(tensor)
    return describe_kind(tensor) + (f" in memory order {list(order)}" if order else "")


def check_signature(own: ModelSignature, other: ModelSignature) -> None:
    """Raise ModelMismatchError with the first difference unless the two are equal.

    Args:
        own: signature of this worker.
        other: signature that the job's first worker left.
    """
    if own.batch != other.batch:
        raise ModelMismatchError(
            f"this worker has {_describe_batch(own)}, the job {_describe_batch(other)}; it is fixed "
            "for a job's life: start a new job to change it"
        )
    if own.virtual_workers != other.virtual_workers:
        raise ModelMismatchError(
            f"this worker has {own.virtual_workers} virtual workers, the job {other.virtual_workers}; their "
            "number is fixed for a job's life: start a new job to change it"
        )
    own_entries, other_entries = dict(own.entries), dict(other.entries)
    for name in [*own_entries, *other_entries]:
        if own_entries.get(name) != other_entries.get(name):
            raise ModelMismatchError(
                f"{name} is {own_entries.get(name, 'absent')} in this worker and "
                f"{other_entries.get(name, 'absent')} in the job; all workers must build the same model "
                "and optimizer: was the script, its arguments or its data changed since the job was started?"
            )
    if own.entries != other.entries:
        raise ModelMismatchError(
            "this worker has the job's parameters and buffers, but in another order; build the model the "
            "same way in every worker (iterating over a set is a usual cause)"
        )


def _describe_batch(signature: ModelSignature) -> str:
    if signature.batch:
        return f"the batch policy {signature.batch}"
    return f"{signature.virtual_workers} virtual workers and no batch policy"


def check_supported(state: JobState, virtual_workers: int) -> None:
    """Raise UnsupportedModelError for what exact elastic training cannot run.

    That is: SyncBatchNorm with several virtual workers, a model wrapped in DistributedDataParallel, tensors
    that are not plain or not on the job's device, and parameters that only the optimizer knows.
    """
    for label, model in state.named_models().items():
        for name, module in model.named_modules():
            _check_module(f"{label}/{name}" if name else label, module, virtual_workers)
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            _check_tensor(f"{label}/{name}", tensor, state)
    _check_optimized_parameters(state)


def _check_module(name: str, module: nn.Module, virtual_workers: int) -> None:
    if isinstance(module, DistributedDataParallel):
        raise UnsupportedModelError(
            f"{name} is wrapped in DistributedDataParallel; pass the plain model to prepare(), "
            "which averages the gradients itself"
        )
    if isinstance(module, nn.SyncBatchNorm) and virtual_workers > 1:
        raise UnsupportedModelError(
            f"{name} is a SyncBatchNorm, which needs all {virtual_workers} virtual workers at the same "
            "time, while a worker may run several of them one after another; use BatchNorm2d, GroupNorm or "
            "LayerNorm"
        )


def _check_tensor(name: str, tensor: Tensor, state: JobState) -> None:
    check_plain_tensor(name, tensor)
    # A device without an index ("cuda") means the current one of its kind.
    wanted = state.device
    if tensor.device.type != wanted.type or (wanted.index is not None and tensor.device != wanted):
        raise UnsupportedModelError(
            f"{name} is on {tensor.device}, the job's device is {wanted}; move the whole model with "
            "model.to(job.device) before it is passed to prepare()"
        )


def _check_optimized_parameters(state: JobState) -> None:
    known = {id(parameter) for model in state.models for parameter in model.parameters()}
    for label, optimizer in state.named_optimizers().items():
        for i, group in enumerate(optimizer.param_groups):
            unknown = [tuple(p.shape) for p in group["params"] if id(p) not in known]
            if unknown:
                raise UnsupportedModelError(
                    f"{label}: {len(unknown)} parameters of group {i} belong to none of the models "
                    f"given to prepare() (the first has shape {list(unknown[0])}); pass their module "
                    "too, so that other workers get them"
                )
