"""Links between threads of one process, with faults on demand."""

import queue
from collections import defaultdict
from collections.abc import Sequence

from torch import Tensor

from elastane.model.errors import LinkBrokenError
from elastane.worker.link import Message

DEADLINE_S = 20.0
_HANG_UP = None


class FakeNetwork:
    """Connect `peers` fake links; the exchange number `break_at` of peer `victim` kills that peer."""

    def __init__(self, peers: int, *, victim: int = -1, break_at: int = -1) -> None:
        self.peers = peers
        self.victim = victim
        self.break_at = break_at
        self.wires: dict[tuple[int, int], queue.Queue[Tensor | None]] = defaultdict(queue.Queue)
        self.sent_bytes: dict[int, int] = defaultdict(int)
        self._links = [FakeLink(self, own) for own in range(peers)]
        for a in range(peers):
            for b in range(peers):
                self.wires[a, b]  # made now: several threads use the dictionary

    def links(self) -> list["FakeLink"]:
        return self._links


class FakeLink:
    """Be one end; sends copy at once, receives wait."""

    def __init__(self, network: FakeNetwork, own: int) -> None:
        self.own = own
        self.peers = network.peers
        self.exchanges = 0
        self.closed = False
        self.aborted = False
        self._network = network

    def exchange(self, sends: Sequence[Message], recvs: Sequence[Message]) -> None:
        network = self._network
        if self.own == network.victim and self.exchanges == network.break_at:
            raise LinkBrokenError(f"peer {self.own} fails on purpose in exchange {self.exchanges}")
        self.exchanges += 1
        for peer, tensor in sends:
            assert tensor.is_contiguous()
            assert peer != self.own
            if tensor.numel():
                network.sent_bytes[self.own] += tensor.nbytes
                network.wires[self.own, peer].put(tensor.clone())
        for peer, tensor in recvs:
            if tensor.numel():
                self._receive(peer, tensor)

    def _receive(self, peer: int, tensor: Tensor) -> None:
        wire = self._network.wires[peer, self.own]
        received = wire.get(timeout=DEADLINE_S)
        if received is _HANG_UP:
            wire.put(_HANG_UP)
            raise LinkBrokenError(f"peer {peer} hung up")
        assert received.shape == tensor.shape
        assert received.dtype == tensor.dtype
        tensor.copy_(received)

    def abort(self) -> None:
        self.aborted = True
        self._hang_up()

    def close(self) -> None:
        self.closed = True
        self._hang_up()

    def _hang_up(self) -> None:
        for peer in range(self.peers):
            self._network.wires[self.own, peer].put(_HANG_UP)
