"""The commit's arithmetic: hooks, clipping, optimizer, scheduler, scaler, in the user's own objects.

The user's loop calls `optimizer.step()` and the like once per virtual worker. Those calls are only
counted here; what they stand for happens once per step, on the reduced gradient, when the trainer
commits. The methods are replaced in the user's objects, so that every reference to them is covered,
the scheduler's reference to its optimizer included.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from elastane.model.errors import UnsupportedModelError

Hook = Callable[[], object]


class Calls(NamedTuple):
    """Count how often each optimizer and each scheduler was stepped in one virtual worker's part."""

    optimizers: tuple[int, ...]
    schedulers: tuple[int, ...]


NO_CALLS = Calls((), ())


class Folding(Protocol):
    """Be what the update needs of the trainer."""

    @property
    def in_body(self) -> bool:
        """Tell whether the user's loop body is running for a virtual worker."""
        ...

    def fold(self) -> None:
        """Take the gradients of the virtual worker whose body runs."""
        ...


class Update:
    """Count the user's calls and carry them out at the commit.

    Args:
        model: the model, for clipping and warm-up.
        optimizers: in the order the user gave them.
        schedulers: likewise.
        grad_scaler: a torch GradScaler, or None.
        clip_grad_norm: largest norm of the reduced gradient, or None.
        warm_up: a loss of (model, batch) for a joiner's rehearsal; None tries model(first element).
    """

    def __init__(
        self,
        model: nn.Module,
        optimizers: Sequence[Optimizer],
        schedulers: Sequence[Any],
        *,
        grad_scaler: Any = None,
        clip_grad_norm: float | None = None,
        warm_up: Callable[[nn.Module, Any], Tensor] | None = None,
    ) -> None:
        self.reduced_hooks: list[Hook] = []
        self.commit_hooks: list[Hook] = []
        self._model = model
        self._optimizers = list(optimizers)
        self._schedulers = list(schedulers)
        self._scaler = grad_scaler
        self._clip_grad_norm = clip_grad_norm
        self._rehearsal = warm_up or _guess_loss
        self._optimizer_calls = [0] * len(self._optimizers)
        self._scheduler_calls = [0] * len(self._schedulers)
        self._real_steps: list[Callable[..., Any]] = [o.step for o in self._optimizers]
        self._real_schedules: list[Callable[..., Any]] = [s.step for s in self._schedulers]
        self._scaler_steps: Callable[..., Any] | None = None
        self._scaler_updates: Callable[..., Any] | None = None

    def attach(self, folding: Folding) -> None:
        """Replace the user's objects' methods by ones that count."""
        for number, optimizer in enumerate(self._optimizers):
            _replace(optimizer, "step", self._counting_step(number, folding))
            _replace(optimizer, "zero_grad", _clearing(folding, optimizer.zero_grad))
        for number, scheduler in enumerate(self._schedulers):
            _override_in_class(scheduler, "step", self._counting_schedule(number, folding))
        if self._scaler is not None:
            self._scaler_steps, self._scaler_updates = self._scaler.step, self._scaler.update
            _replace(self._scaler, "step", lambda optimizer, *_, **__: optimizer.step())
            _replace(self._scaler, "update", lambda *_, **__: None)
            _replace(self._scaler, "unscale_", _refuse_unscale)

    def begin_body(self) -> None:
        """Begin to count for another virtual worker."""
        self._optimizer_calls = [0] * len(self._optimizers)
        self._scheduler_calls = [0] * len(self._schedulers)

    def counts(self) -> Calls:
        """Return what was counted since `begin_body`."""
        return Calls(tuple(self._optimizer_calls), tuple(self._scheduler_calls))

    def apply(
        self, optimizer_calls: Sequence[int], scheduler_calls: Sequence[int], lr_scale: float = 1.0
    ) -> None:
        """Carry out the step on the reduced gradients, with the calls that virtual worker 0 made.

        Args:
            optimizer_calls: of each optimizer.
            scheduler_calls: of each scheduler.
            lr_scale: factor on all learning rates in this step; schedulers and the script see them without.
        """
        for hook in self.reduced_hooks:
            hook()
        called = [number for number, count in enumerate(optimizer_calls) if count]
        self._unscale(called)
        if self._clip_grad_norm is not None:
            nn.utils.clip_grad_norm_(self._model.parameters(), self._clip_grad_norm)
        for number in called:
            if lr_scale == 1.0:
                self._step_optimizer(number)
            else:
                with _scaled_rates(self._optimizers[number], lr_scale):
                    self._step_optimizer(number)
        if self._scaler_updates is not None:
            self._scaler_updates()
        for number, count in enumerate(scheduler_calls):
            for _ in range(count):
                self._real_schedules[number]()
        for hook in self.commit_hooks:
            hook()

    def _unscale(self, optimizers: Sequence[int]) -> None:
        if self._scaler is not None:
            for number in optimizers:
                type(self._scaler).unscale_(self._scaler, self._optimizers[number])

    def rehearse_body(self, batch: Any) -> None:
        """Run forward and backward on a batch, by a loss that was given or guessed."""
        self._rehearsal(self._model, batch).backward()  # type: ignore[no-untyped-call]

    def rehearse_step(self) -> None:
        """Step the optimizers on what gradients there are; allocates their state."""
        for step in self._real_steps:
            step()

    def _step_optimizer(self, number: int) -> None:
        if self._scaler_steps is None:
            self._real_steps[number]()
            return
        optimizer = self._optimizers[number]
        counting = optimizer.step
        _replace(optimizer, "step", self._real_steps[number])
        try:
            self._scaler_steps(optimizer)
        finally:
            _replace(optimizer, "step", counting)

    def _counting_step(self, number: int, folding: Folding) -> Callable[..., None]:
        def step(closure: object = None) -> None:
            if closure is not None:
                raise UnsupportedModelError(
                    "optimizer.step(closure) evaluates the loss several times per step, which cannot be "
                    "split over virtual workers; use an optimizer that needs no closure"
                )
            if not folding.in_body:
                raise UnsupportedModelError(
                    "optimizer.step() was called outside the loop over the loader; steps belong into its body"
                )
            self._optimizer_calls[number] += 1
            folding.fold()

        # torch's schedulers look for this mark of their own wrapper, and warn where they miss it.
        step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
        return step

    def _counting_schedule(self, number: int, folding: Folding) -> Callable[..., None]:
        real = self._real_schedules[number]

        def step(*arguments: Any, **keywords: Any) -> None:
            if folding.in_body:
                if arguments or keywords:
                    raise UnsupportedModelError(
                        "scheduler.step(value) in the loop body would use one virtual worker's value; call "
                        "it after the loop, with a value that is equal on all workers"
                    )
                self._scheduler_calls[number] += 1
            else:
                real(*arguments, **keywords)

        return step


@contextmanager
def _scaled_rates(optimizer: Optimizer, scale: float) -> Iterator[None]:
    rates = [group["lr"] for group in optimizer.param_groups]
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate * scale
    try:
        yield
    finally:
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate


def _override_in_class(owner: Any, name: str, function: Callable[..., Any]) -> None:
    # A scheduler's state_dict is its __dict__, in which a function must not turn up: override one level up.
    kind = type(owner)
    owner.__class__ = type(
        kind.__name__, (kind,), {name: staticmethod(function), "__module__": kind.__module__}
    )


def _replace(owner: object, name: str, function: Callable[..., Any]) -> None:
    setattr(owner, name, function)


def _clearing(folding: Folding, real: Callable[..., None]) -> Callable[..., None]:
    def zero_grad(set_to_none: bool = True) -> None:
        # Every virtual worker begins without gradients, and what it has left behind is not to be touched.
        if not folding.in_body:
            real(set_to_none)

    return zero_grad


def _refuse_unscale(*_: object, **__: object) -> None:
    raise UnsupportedModelError(
        "scaler.unscale_ in the loop body acts on one virtual worker's gradient; pass clip_grad_norm to "
        "job.prepare or use job.on_reduced, which see the reduced and unscaled gradient"
    )


def _guess_loss(model: nn.Module, batch: Any) -> Tensor:
    """Compute some loss: the sum of the floating-point outputs of model(first element of the batch)."""
    if isinstance(batch, Mapping):
        output = model(**batch)
    else:
        output = model(batch[0] if isinstance(batch, list | tuple) else batch)
    tensors = [
        t for t in torch.utils._pytree.tree_leaves(output) if isinstance(t, Tensor) and t.requires_grad
    ]
    if not tensors:
        raise ValueError("the model's output has no tensor that requires a gradient")
    return torch.stack([t.float().sum() for t in tensors]).sum()
