"""Which bytes of a state which supplier sends, and in which pieces: arithmetic on lengths, no tensors.

The state is one stream of bytes, its tensors one after another. Each supplier has an equal share of the
stream, cut without regard to tensors; within a share large runs go as they lie, small ones are packed.
Sender and receiver compute the same pieces from the same lengths.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

CUT_BYTES = 64  # shares begin at multiples of a cache line, so that no two senders touch one line

PACK_BELOW_BYTES = 256 * 1024
"""Runs below this are copied into one staging piece with their neighbours.

A message costs some 50 us on loopback, in which memory is copied at about 5 GB/s.
"""

PACK_BYTES = 4 * 1024 * 1024
"""Staging pieces are not made larger than this: sending begins while the next is still small in cache."""

MAX_PIECE_BYTES = 256 * 1024 * 1024
"""Longer runs are cut; transports count a message's bytes in 32 bits here and there."""


class Run(NamedTuple):
    """Name bytes start..stop-1 of the tensor with number `tensor` in the stream."""

    tensor: int
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        """Return the length of the run."""
        return self.stop - self.start


Piece = tuple[Run, ...]
"""One message: a single run without a copy, or several small ones packed together."""


def plan_shares(total_bytes: int, suppliers: int) -> tuple[range, ...]:
    """Cut the stream into contiguous shares, equal up to 2 * `CUT_BYTES`."""
    cuts = [total_bytes * i // suppliers // CUT_BYTES * CUT_BYTES for i in range(suppliers)]
    return tuple(range(start, stop) for start, stop in zip(cuts, [*cuts[1:], total_bytes], strict=True))


def plan_pieces(lengths: Sequence[int], lanes: Sequence[str], share: range) -> tuple[Piece, ...]:
    """Return the messages that carry a share of the stream, in order.

    Args:
        lengths: bytes of each tensor, in stream order.
        lanes: kind of memory of each tensor; one message never mixes two.
        share: the part of the stream to carry.
    """
    pieces: list[Piece] = []
    pack: list[Run] = []
    packed_bytes = 0
    for run in iterate_runs(lengths, share):
        small = run.nbytes < PACK_BELOW_BYTES
        if pack and not (small and packed_bytes < PACK_BYTES and lanes[pack[-1].tensor] == lanes[run.tensor]):
            pieces.append(tuple(pack))
            pack, packed_bytes = [], 0
        if small:
            pack.append(run)
            packed_bytes += run.nbytes
        else:
            pieces.append((run,))
    if pack:
        pieces.append(tuple(pack))
    return tuple(pieces)


def iterate_runs(lengths: Sequence[int], share: range) -> Iterator[Run]:
    """Yield the runs that a share of the stream consists of, in order.

    Args:
        lengths: bytes of each tensor, in stream order.
        share: the part of the stream.
    """
    begin = 0
    for tensor, length in enumerate(lengths):
        start, stop = max(share.start - begin, 0), min(share.stop - begin, length)
        while start < stop:
            end = min(start + MAX_PIECE_BYTES, stop)
            yield Run(tensor, start, end)
            start = end
        begin += length
