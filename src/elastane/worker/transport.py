"""Carry the canonical partial sums of one generation between its members and finish the tree.

Two ways, the same bits: `MessageTransport` sends everything of a small model to everybody in one round
and each member finishes the tree for itself; `BucketTransport` sends buckets while the backward pass
runs, each member finishes the tree for its share of every bucket, and shares are gathered.
The arithmetic of a member's own virtual workers is not done here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from elastane.core.tree import canonical_segments, merge_schedule
from elastane.model.topology import VrankRange
from elastane.worker.buckets import Bucket
from elastane.worker.buffers import CommittedBuffers
from elastane.worker.courier import Courier, Ticket
from elastane.worker.fold import add_and_divide
from elastane.worker.link import Link, Message
from elastane.worker.message import StepMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """Name the members of one generation and their segments of the tree.

    Attributes:
        ranges: virtual workers of the members, in order.
        own: position of this worker.
        virtual_workers: N.
    """

    ranges: tuple[VrankRange, ...]
    own: int
    virtual_workers: int

    @property
    def workers(self) -> int:
        """Return how many members there are."""
        return len(self.ranges)

    @property
    def others(self) -> tuple[int, ...]:
        """Return the positions of all other members."""
        return tuple(peer for peer in range(self.workers) if peer != self.own)

    @property
    def segment_counts(self) -> tuple[int, ...]:
        """Return how many canonical segments each member has."""
        return tuple(len(canonical_segments(vranks, self.virtual_workers)) for vranks in self.ranges)

    @property
    def schedule(self) -> tuple[tuple[int, int], ...]:
        """Return the additions over the segments of all members, in the members' order."""
        segments = [node for r in self.ranges for node in canonical_segments(r, self.virtual_workers)]
        return merge_schedule(segments, self.virtual_workers)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """Hold what a completed step brought besides gradients.

    Attributes:
        payloads: of all members, in order.
        used: per parameter, whether any virtual worker gave it a gradient.
    """

    payloads: list[bytes]
    used: list[bool]


class Transport(Protocol):
    """Move one step's sums; `targets` and `results` are fixed for the generation."""

    targets: list[list[Tensor]]
    """Per own segment, per parameter: where the sum of the segment goes."""
    results: list[Tensor]
    """Per parameter: the reduced gradient, after `complete`."""

    @property
    def in_flight(self) -> bool:
        """Tell whether exchanges of a step were submitted that is not complete."""
        ...

    def ready(self, index: int, divisor: float) -> None:
        """Take notice that all own segments of one parameter are in their targets."""
        ...

    def reset(self) -> None:
        """Forget a step of which nothing was sent yet."""
        ...

    def complete(self, used: Sequence[bool], payload: bytes, divisor: float) -> StepOutcome:
        """Exchange what is left, wait for everything, put the new buffers where `adopt` finds them.

        Raises:
            LinkBrokenError: a peer is lost.
        """
        ...


class Messages:
    """Exchange the step's messages between all members of a generation."""

    def __init__(
        self, generation: Generation, parameters: int, buffers: CommittedBuffers, buckets: Sequence[Bucket]
    ) -> None:
        self._buffers = buffers
        self._own = generation.own
        self._others = generation.others
        self.all = [
            StepMessage(
                parameters,
                buffers.packed.numel() if peer == 0 else 0,
                buckets,
                segments,
                buffers.packed.device,
            )
            for peer, segments in enumerate(generation.segment_counts)
        ]
        own_block = self.all[self._own].block
        self._sends: list[Message] = [(peer, own_block) for peer in self._others]
        self._recvs: list[Message] = [(peer, self.all[peer].block) for peer in self._others]
        self._payload = b""
        self._long_payloads: dict[int, Tensor] = {}

    def write(self, used: Sequence[bool], payload: bytes) -> None:
        """Fill in the own message; the owner of virtual worker 0 is always the first member."""
        own = self.all[self._own]
        is_owner = self._own == 0
        own.write_head(used, payload, self._buffers.large_changed if is_owner else ())
        if is_owner:
            own.buffers.copy_(self._buffers.packed)
        self._payload = payload
        self._long_payloads = {}

    def exchange(self, link: Link) -> None:
        """Run the first round and, if a message announces it, the second."""
        link.exchange(self._sends, self._recvs)
        for peer in self._others:
            self.all[peer].read_head()
        sends = self._second_sends()
        recvs = self._second_recvs()
        if sends or recvs:
            link.exchange(sends, recvs)

    def read(self) -> StepOutcome:
        """Return what all members said, and hand received buffers over."""
        if self._own != 0:
            self._buffers.packed.copy_(self.all[0].buffers)
        payloads = [self._payload_of(peer) for peer in range(len(self.all))]
        used = np.logical_or.reduce([message.used for message in self.all])
        return StepOutcome(payloads=payloads, used=used.tolist())

    def _second_sends(self) -> list[Message]:
        own = self.all[self._own]
        tensors = []
        if not own.payload_fits:
            tensors.append(torch.frombuffer(bytearray(self._payload), dtype=torch.uint8).to(own.block.device))
        tensors += [self._buffers.large(number) for number in own.large_changed]
        return [(peer, tensor) for peer in self._others for tensor in tensors]

    def _second_recvs(self) -> list[Message]:
        recvs: list[Message] = []
        for peer in self._others:
            message = self.all[peer]
            if not message.payload_fits:
                received = message.block.new_empty(message.payload_bytes)
                self._long_payloads[peer] = received
                recvs.append((peer, received))
            recvs += [(peer, self._buffers.large(number)) for number in message.large_changed]
        return recvs

    def _payload_of(self, peer: int) -> bytes:
        if peer == self._own:
            return self._payload
        if peer in self._long_payloads:
            return self._long_payloads[peer].cpu().numpy().tobytes()
        return self.all[peer].payload


class MessageTransport:
    """Send all segments of a small model to all members inside the step's message."""

    def __init__(
        self,
        generation: Generation,
        parameters: Sequence[Tensor],
        buckets: Sequence[Bucket],
        buffers: CommittedBuffers,
        courier: Courier,
    ) -> None:
        self._courier = courier
        self._messages = Messages(generation, len(parameters), buffers, buckets)
        own = self._messages.all[generation.own]
        self.targets = [_views(row, buckets, parameters) for row in own.flats]
        segments = [row for message in self._messages.all for row in message.flats]
        self._sums = [list(column) for column in zip(*segments, strict=True)]
        self._schedule = generation.schedule
        self.results = _views(segments[0], buckets, parameters)
        self._ticket: Ticket | None = None

    @property
    def in_flight(self) -> bool:
        """Tell whether the step's exchange was submitted and is not complete."""
        return self._ticket is not None

    def ready(self, index: int, divisor: float) -> None:
        """Wait for `complete`: nothing of a small model is worth sending alone."""

    def reset(self) -> None:
        """Do nothing: sums that were not sent are overwritten by the next step."""

    def complete(self, used: Sequence[bool], payload: bytes, divisor: float) -> StepOutcome:
        """Run the one exchange of the step; see `Transport.complete`."""
        self._messages.write(used, payload)
        self._ticket = self._courier.submit(partial(self._exchange, divisor))
        self._ticket.wait()
        self._ticket = None
        return self._messages.read()

    def _exchange(self, divisor: float, link: Link) -> None:
        self._messages.exchange(link)
        for values in self._sums:
            add_and_divide(values, self._schedule, divisor)


class BucketTransport:
    """Send buckets in a fixed order as the backward pass completes them.

    Args:
        flats: per bucket, per own segment: a flat tensor that no other generation's exchange writes into.
    """

    def __init__(
        self,
        generation: Generation,
        parameters: Sequence[Tensor],
        buckets: Sequence[Bucket],
        buffers: CommittedBuffers,
        courier: Courier,
        flats: Sequence[Sequence[Tensor]],
    ) -> None:
        self._courier = courier
        self._messages = Messages(generation, len(parameters), buffers, ())
        rows = list(zip(*flats, strict=True))
        self.targets = [_views(row, buckets, parameters) for row in rows]
        self.results = self.targets[0]
        scratch = _Scratch(generation, buckets, buffers.packed.device)
        self._exchanges = [
            BucketExchange(generation, bucket, segments, scratch)
            for bucket, segments in zip(buckets, flats, strict=True)
        ]
        self._bucket_of = {index: place for place, b in enumerate(buckets) for index in b.indices}
        self._lengths = [len(bucket.indices) for bucket in buckets]
        self._missing = list(self._lengths)
        self._launched = 0
        self._submitted = False

    @property
    def in_flight(self) -> bool:
        """Tell whether buckets of a step that is not complete were launched."""
        return self._submitted

    def ready(self, index: int, divisor: float) -> None:
        """Launch the buckets that are full, in the one order that all members keep."""
        self._missing[self._bucket_of[index]] -= 1
        while self._launched < len(self._missing) and self._missing[self._launched] == 0:
            self._submitted = True
            self._courier.submit(partial(self._exchanges[self._launched].run, divisor))
            self._launched += 1

    def reset(self) -> None:
        """Forget which parameters are ready."""
        self._submitted = False
        self._missing = list(self._lengths)
        self._launched = 0

    def complete(self, used: Sequence[bool], payload: bytes, divisor: float) -> StepOutcome:
        """Exchange messages behind the buckets; see `Transport.complete`."""
        del divisor
        self._messages.write(used, payload)
        self._submitted = True
        # The courier keeps the order, so the last exchange ends after all others.
        self._courier.submit(self._messages.exchange).wait()
        self.reset()
        return self._messages.read()


class BucketExchange:
    """Reduce one bucket: swap shares, finish the tree for the own share, gather the results."""

    def __init__(
        self, generation: Generation, bucket: Bucket, segments: Sequence[Tensor], scratch: "_Scratch"
    ) -> None:
        own, workers, others = generation.own, generation.workers, generation.others
        shares = [bucket.share(peer, workers) for peer in range(workers)]
        received = scratch.rows(bucket, shares[own])
        self._reduce = (
            [(peer, segment[shares[peer]]) for peer in others for segment in segments],
            [(peer, row) for peer in others for row in received[peer]],
        )
        self._result = segments[0][shares[own]]
        own_values = [segment[shares[own]] for segment in segments]
        self._values = [
            value for peer in range(workers) for value in (own_values if peer == own else received[peer])
        ]
        self._schedule = generation.schedule
        self._gather = (
            [(peer, self._result) for peer in others],
            [(peer, segments[0][shares[peer]]) for peer in others],
        )

    def run(self, divisor: float, link: Link) -> None:
        """Do it, in the courier's thread."""
        link.exchange(*self._reduce)
        add_and_divide(self._values, self._schedule, divisor, self._result)
        link.exchange(*self._gather)


class _Scratch:
    """Hold what other members send for the own share; buckets use the same memory in turn."""

    def __init__(self, generation: Generation, buckets: Sequence[Bucket], device: torch.device) -> None:
        self._generation = generation
        counts = generation.segment_counts
        self._rows = sum(counts) - counts[generation.own]
        row_bytes = max(self._row_bytes(b, b.share(generation.own, generation.workers)) for b in buckets)
        self._block = torch.zeros(self._rows * row_bytes, dtype=torch.uint8, device=device)

    def rows(self, bucket: Bucket, share: slice) -> dict[int, list[Tensor]]:
        row_bytes = self._row_bytes(bucket, share)
        used_bytes = (share.stop - share.start) * bucket.dtype.itemsize
        starts = iter(range(0, self._rows * row_bytes, row_bytes or 1))
        return {
            peer: [
                self._block[start : start + used_bytes].view(bucket.dtype)
                for start in (next(starts, 0) for _ in range(self._generation.segment_counts[peer]))
            ]
            for peer in self._generation.others
        }

    @staticmethod
    def _row_bytes(bucket: Bucket, share: slice) -> int:
        share_bytes: int = (share.stop - share.start) * bucket.dtype.itemsize
        return -(-share_bytes // 64) * 64


def _views(flats: Sequence[Tensor], buckets: Sequence[Bucket], parameters: Sequence[Tensor]) -> list[Tensor]:
    found: dict[int, Tensor] = {}
    for flat, bucket in zip(flats, buckets, strict=True):
        found |= bucket.views(flat, parameters)
    return [found[index] for index in range(len(parameters))]
