"""A link over NCCL's point-to-point operations, for CUDA tensors. Not yet run on several GPUs.

All operations of an exchange form one NCCL group, which may not order them otherwise than by peer. The
exchange ends when the device has ended it: the calling thread is the courier's, and only a host that
waits can tell a lost peer from a slow one. `abort` tears the communicator down from another thread.
"""

import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
from torch._C import _distributed_c10d

from elastane.model.errors import LinkBrokenError
from elastane.worker.link import Message
from elastane.worker.rendezvous import Rendezvous

ENVIRONMENT = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}
"""What a process must have set before its first group: otherwise torch's watchdog ends the process when
a peer is lost, instead of leaving it to the survivors."""

_PATIENCE = timedelta(days=7)
"""As for gloo: a peer may evaluate or save for long, and whether it is alive is decided elsewhere."""

_POLL_S = 0.0002
"""Between two looks at an exchange: about the time of the shortest exchange between two hosts."""


class NcclLink:
    """Exchange CUDA tensors over an NCCL group built for one generation."""

    def __init__(self, group: Any, device: torch.device) -> None:
        self._group = group
        self._device = device
        self._aborted = threading.Event()
        self.own: int = group.rank()
        self.peers: int = group.size()

    def exchange(self, sends: Sequence[Message], recvs: Sequence[Message]) -> None:
        """Send and receive all tensors; see `Link.exchange`."""
        group = self._group
        if group is None:
            raise LinkBrokenError("the link was closed")
        sends = [(peer, tensor) for peer, tensor in sends if tensor.numel()]
        recvs = [(peer, tensor) for peer, tensor in recvs if tensor.numel()]
        if not sends and not recvs:
            return
        try:
            group._start_coalescing(self._device)
            for peer, tensor in recvs:
                group.recv([tensor], peer, 0)
            for peer, tensor in sends:
                group.send([tensor], peer, 0)
            work = group._end_coalescing(self._device)
            self._follow(work)
            work.wait()  # makes the courier's stream wait for NCCL's
        except RuntimeError as error:
            raise LinkBrokenError(
                f"an exchange with {self.peers - 1} peers failed: {str(error).splitlines()[0]}; "
                "the step in flight is repeated without the lost peer"
            ) from error

    def abort(self) -> None:
        """End the exchange in progress, so that its kernels free the device."""
        self._aborted.set()
        if (group := self._group) is not None:
            group.abort()

    def close(self) -> None:
        """Free the communicator."""
        group, self._group = self._group, None
        if group is not None and not self._aborted.is_set():
            group.abort()  # unlike `shutdown` it waits for no peer, and nothing is in progress any more

    def _follow(self, work: Any) -> None:
        while not work.is_completed():
            if self._aborted.wait(_POLL_S):
                raise LinkBrokenError("the link was abandoned")


def connect_nccl(rendezvous: Rendezvous, own: int, peers: int, device: torch.device) -> NcclLink:
    """Connect with all peers of a proposed generation; blocks until all have come.

    Args:
        rendezvous: where the peers find each other; its deadline is the only one.
        own: this worker's number among the peers.
        peers: number of peers, this one included.
        device: this worker's CUDA device, with an index.

    Raises:
        LinkBrokenError: a peer did not come in time, the proposal was dropped, or torch has no NCCL.
    """
    nccl: Any = getattr(_distributed_c10d, "ProcessGroupNCCL", None)
    if nccl is None:
        raise LinkBrokenError("this build of torch has no NCCL; install a CUDA build or train on CPU")
    options = nccl.Options()
    options._timeout = _PATIENCE
    try:
        group = nccl(rendezvous, own, peers, options)
        # Otherwise the first exchange would make the communicator, and wait for it within a step.
        group.eager_connect_single_device(device)
        return NcclLink(group, device)
    except (RuntimeError, LinkBrokenError) as error:
        reason = rendezvous.failure or str(error).splitlines()[0]
        raise LinkBrokenError(f"peer {own} of {peers} could not connect: {reason}") from error
    finally:
        rendezvous.close()
