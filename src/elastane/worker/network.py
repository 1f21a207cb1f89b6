"""Choose the link that fits the worker's device and connect it: gloo for CPU, nccl for CUDA."""

import threading

import torch

from elastane.model.errors import LinkBrokenError
from elastane.store.base import Store
from elastane.worker.courier import Courier
from elastane.worker.direct import connect_direct
from elastane.worker.gloo import connect_gloo
from elastane.worker.link import Link
from elastane.worker.nccl import connect_nccl
from elastane.worker.rendezvous import Rendezvous

CONNECT_TIMEOUT_S = 30.0
"""Longest time for one attempt. The leader gives up before: see LeaderSettings.connect_timeout_s."""


def torch_device(device: str) -> torch.device:
    """Return the torch device of an elastane device id: all CPU slots ("cpu:3") are the one CPU."""
    return torch.device("cpu") if device.startswith("cpu") else torch.device(device)


def open_device(device: torch.device) -> None:
    """Make the context of an accelerator now, where what that takes can be told from what the script does."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def connect_link(
    store: Store, prefix: str, place: tuple[int, int], device: str, address: str, cancelled: threading.Event
) -> Courier:
    """Connect with all peers of a proposed generation; blocks until all have come.

    Args:
        store: a handle of the calling thread, through which the peers find each other.
        prefix: keys of this attempt.
        place: this worker's number among the peers, and how many peers there are.
        device: the worker's device id.
        address: under which the other peers reach this machine.
        cancelled: set to give up at once.

    Raises:
        LinkBrokenError: a peer did not come in time, or the proposal was dropped.
    """
    own, peers = place
    rendezvous = Rendezvous(store, prefix, timeout_s=CONNECT_TIMEOUT_S, cancelled=cancelled)
    target = torch_device(device)
    link: Link
    if target.type == "cuda":
        link = connect_nccl(rendezvous, own, peers, target)
    else:
        link = _shortened(connect_gloo(rendezvous, own, peers, address, CONNECT_TIMEOUT_S))
    return Courier(link, device=target)


def _shortened(link: Link) -> Link:
    """Let peers on the same machine read each other's memory."""
    try:
        return connect_direct(link)
    except LinkBrokenError:
        link.close()
        raise
