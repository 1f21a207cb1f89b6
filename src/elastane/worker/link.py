"""What a reduction needs from a network: one blocking exchange of tensors between numbered peers.

A link connects the workers of one generation, in the topology's order. It knows nothing of gradients,
placement or failures' causes. Implementations: `GlooLink` (CPU), `NcclLink` (CUDA), and a fake for tests.
"""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

Message = tuple[int, Tensor]
"""Number of the peer, and a contiguous tensor to send from or to receive into, without a copy."""


class Link(Protocol):
    """Exchange tensors with the other peers of one generation.

    Used by one thread at a time. After an exception a link is good for nothing but `close`.
    """

    @property
    def own(self) -> int:
        """Return this worker's number among the peers."""
        ...

    @property
    def peers(self) -> int:
        """Return how many peers the link connects, this worker included."""
        ...

    def exchange(self, sends: Sequence[Message], recvs: Sequence[Message]) -> None:
        """Send and receive all tensors; return when all have been sent and received.

        The k-th tensor sent to a peer arrives in the k-th tensor that the peer receives from here, which
        must have as many bytes. Tensors without elements are left out on both sides.

        Raises:
            LinkBrokenError: a peer closed its end, died, or did not answer within the link's timeout.
        """
        ...

    def abort(self) -> None:
        """Make an exchange in progress fail if possible; callable from any thread."""
        ...

    def close(self) -> None:
        """Free sockets and threads. Never waits for a peer; closing twice does nothing."""
        ...
