"""Sum the virtual workers' gradients along the one fixed tree and hand the result to the optimizer.

Rules of the file: the bits of the result depend on N, the weights and the gradients, never on the
placement, the number of workers, the size of buckets or the way the data travel.
"""

from torch import nn

from elastane.model.topology import VrankRange
from elastane.worker.courier import Courier


class GradientReducer:
    """Reduce the gradients of one model over all virtual workers of a job.

    Call order: `enter` at every change of topology; then per step, for each local virtual worker in
    order, `begin_vrank`, forward and backward by the user, `end_vrank`; then once `finish`.
    `discard` may come at any point after `enter` and throws the step in flight away.

    Args:
        model: the user's model; its parameters that require gradients are reduced, its buffers are kept
            as DDP's broadcast_buffers keeps them: the step's new buffers are those vrank 0 left behind.
        virtual_workers: N.
        overlap: fold and send gradients from hooks while the backward pass runs (models above 1 MiB of
            gradients). False allows several backward passes per batch.

    Raises:
        UnsupportedModelError: no parameter requires a gradient, or they are on several devices.
    """

    def __init__(self, model: nn.Module, virtual_workers: int, *, overlap: bool = True) -> None:
        raise NotImplementedError

    def enter(self, ranges: tuple[VrankRange, ...], own: int, courier: Courier | None) -> None:
        """Reduce from now on with the members of a new generation.

        Args:
            ranges: the members' virtual workers, in topology order.
            own: this worker's position in `ranges`.
            courier: the courier of the generation's link, whose first peers are the members; None if there is
                one member only. It stays the caller's: the reducer abandons it when needed, never closes it.
        """
        raise NotImplementedError

    def begin_vrank(self, vrank: int, *, weight: float = 1.0, total_weight: float) -> None:
        """Prepare for one virtual worker's forward pass: committed buffers, no gradients.

        Args:
            vrank: the virtual worker; local ones come in ascending order.
            weight: n_r / b, its samples over the nominal batch size. At 1.0 nothing is multiplied; at 0.0 its
                gradients are ignored and zeros take their place in the sum.
            total_weight: sum of all N weights of the step; the sum of gradients is divided by it.
        """
        raise NotImplementedError

    def end_vrank(self) -> bool:
        """Fold the virtual worker's gradients in; tell whether it was the last local one of the step.

        Raises:
            UnsupportedModelError: a gradient is sparse.
            LinkBrokenError: a peer is lost; call `discard`.
        """
        raise NotImplementedError

    def finish(self, payload: bytes = b"") -> list[bytes]:
        """Complete the step: set every `p.grad` to the reduced gradient and the buffers to the new ones.

        Parameters that no virtual worker used keep `grad=None`.

        Args:
            payload: bytes for all other members, of any length.

        Returns:
            All members' payloads, in topology order.

        Raises:
            LinkBrokenError: a peer is lost; nothing was changed, call `discard`.
        """
        raise NotImplementedError

    def discard(self) -> None:
        """Throw the step in flight away and put the committed buffers back.

        If exchanges were in flight the courier is abandoned, since the peers can no longer agree on
        what comes next: `enter` again before the next step.
        """
        raise NotImplementedError

    def buffers_changed(self) -> None:
        """Take the model's present buffers as the committed ones, after state was loaded into it."""
        raise NotImplementedError
