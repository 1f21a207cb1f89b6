"""Lay out what a worker tells all others once per step, as one block of bytes that needs no decoding.

Sections: header, used-mask (which parameters got a gradient from its virtual workers), payload, the new
small buffers (from the owner of virtual worker 0 only), and, for small models, the gradient segments.
A payload that does not fit, and large buffers that changed, follow in a second round, which the headers
announce. Nothing here sends anything.
"""

from collections.abc import Sequence

import numpy as np
import torch

from elastane.worker.buckets import Bucket
from elastane.worker.buffers import LARGE_BUFFERS

PAYLOAD_BYTES = 1024
"""Payload that travels in the first round: a few dozen logged values. Longer ones cost a second round."""

_HEADER_BYTES = 16
_ALIGNMENT = 64


class StepMessage:
    """Give views on one worker's message of a step.

    Args:
        parameters: length of the used-mask.
        buffer_bytes: size of the section of small buffers; 0 for all but the owner of virtual worker 0.
        buckets: layout of the gradients, empty if they do not travel in the message.
        segments: how many canonical segments the sender has.
        device: where the link wants its tensors.
    """

    def __init__(
        self,
        parameters: int,
        buffer_bytes: int,
        buckets: Sequence[Bucket],
        segments: int,
        device: torch.device,
    ) -> None:
        cursor = _Cursor()
        header = cursor.take(_HEADER_BYTES)
        used = cursor.take(parameters)
        payload = cursor.take(PAYLOAD_BYTES)
        head_bytes = cursor.end
        buffers = cursor.take(buffer_bytes)
        flats = [[cursor.take(bucket.nbytes) for bucket in buckets] for _ in range(segments)]
        self.block = torch.zeros(cursor.end, dtype=torch.uint8, device=device)
        self.buffers = self.block[buffers]
        self.flats = [
            [self.block[part].view(bucket.dtype) for part, bucket in zip(row, buckets, strict=True)]
            for row in flats
        ]
        """Flat gradients by segment and bucket."""
        self._on_device = device.type != "cpu"
        self._head = self.block[:head_bytes]
        self._host = torch.zeros(head_bytes, dtype=torch.uint8) if self._on_device else self._head
        array = self._host.numpy()
        self._header = array[header].view(np.int64)
        self._used = array[used]
        self._payload = array[payload]

    def write_head(self, used: Sequence[bool], payload: bytes, large_changed: Sequence[int]) -> None:
        """Fill in everything but buffers and gradients."""
        self._header[0] = len(payload)
        self._header[1] = sum(1 << number for number in large_changed)
        self._used[:] = used
        if len(payload) <= PAYLOAD_BYTES:
            self._payload[: len(payload)] = np.frombuffer(payload, np.uint8)
        if self._on_device:
            self._head.copy_(self._host)

    def read_head(self) -> None:
        """Make what was received readable; the accessors below tell of it."""
        if self._on_device:
            self._host.copy_(self._head)

    @property
    def used(self) -> "np.ndarray[tuple[int], np.dtype[np.uint8]]":
        """Return, per parameter, whether one of the sender's virtual workers used it."""
        return self._used

    @property
    def payload_bytes(self) -> int:
        """Return the length of the payload."""
        return int(self._header[0])

    @property
    def payload_fits(self) -> bool:
        """Tell whether the payload is in the message."""
        return self.payload_bytes <= PAYLOAD_BYTES

    @property
    def payload(self) -> bytes:
        """Return the payload, if it fits."""
        return self._payload[: self.payload_bytes].tobytes()

    @property
    def large_changed(self) -> tuple[int, ...]:
        """Return the numbers of the large buffers whose new values follow in the second round."""
        mask = int(self._header[1])
        return tuple(number for number in range(LARGE_BUFFERS) if mask >> number & 1)


class _Cursor:
    def __init__(self) -> None:
        self.end = 0

    def take(self, length: int) -> slice:
        start = self.end
        self.end = -(-(start + length) // _ALIGNMENT) * _ALIGNMENT
        return slice(start, start + length)
