"""Move the state of a step boundary from the workers that have it to those that need it.

Every supplier sends an equal share of the bytes, all in parallel.
"""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from elastane.worker.state import CapturedState, JobState


class StateLink(Protocol):
    """Be the part of a link that a transfer needs; peers are numbers, tensors are flat uint8."""

    def exchange(self, sends: Sequence[tuple[int, Tensor]], recvs: Sequence[tuple[int, Tensor]]) -> None:
        """Send and receive all tensors at once; return when all have gone and come.

        Raises:
            LinkBrokenError: a peer can no longer be reached.
        """


def send_state(
    link: StateLink, state: CapturedState, *, own: int, suppliers: Sequence[int], receivers: Sequence[int]
) -> None:
    """Send this supplier's share of the state to every receiver (peers by link index).

    Raises:
        LinkBrokenError: a receiver or the link is gone; this worker's state is untouched.
    """
    raise NotImplementedError


def receive_state(link: StateLink, job_state: JobState, *, suppliers: Sequence[int], in_place: bool) -> None:
    """Receive the state from all suppliers and put it in place.

    Args:
        link: the link of the new generation.
        job_state: the live objects; its step and epoch are set too.
        suppliers: link indices, in the same order at every peer.
        in_place: receive straight into the live tensors: fast, but a link that breaks in the middle leaves
            a mixture behind. Right for joiners; a survivor that is one step behind passes False: its
            state then changes only once all bytes are here.

    Raises:
        LinkBrokenError: a supplier is gone, or what it sent is damaged.
        DeterminismError: suppliers hold states of different steps or layouts.
        ModelMismatchError: the state is that of another model.
    """
    raise NotImplementedError
