"""Collect bytes from all members of a generation; used between steps, never during one."""

from collections.abc import Sequence

import torch

from elastane.worker.courier import Courier
from elastane.worker.link import Link, Message

_LENGTH_BYTES = 8
MAX_GATHERED_BYTES = 1 << 33
"""Longest contribution that is believed (8 GiB): a damaged length must not become an allocation."""


def gather_bytes(courier: Courier, members: int, payload: bytes) -> list[bytes]:
    """Return every member's payload, in topology order.

    Args:
        courier: of the generation's link, whose first `members` peers are the members.
        members: number of members.
        payload: this worker's contribution, of any length.

    Raises:
        LinkBrokenError: a member is gone.
    """
    own = courier.own
    others = [peer for peer in range(members) if peer != own]
    mine = torch.frombuffer(bytearray(payload or b"\0"), dtype=torch.uint8)
    length = torch.tensor([len(payload)], dtype=torch.int64).view(torch.uint8)
    parts: dict[int, torch.Tensor] = {}

    def exchange(link: Link) -> None:
        lengths = {peer: torch.empty(_LENGTH_BYTES, dtype=torch.uint8) for peer in others}
        link.exchange([(peer, length) for peer in others], list(lengths.items()))
        for peer, text in lengths.items():
            parts[peer] = torch.empty(_checked(int(text.view(torch.int64).item())), dtype=torch.uint8)
        sends: list[Message] = [(peer, mine) for peer in others] if payload else []
        link.exchange(sends, [(peer, part) for peer, part in parts.items() if part.numel()])

    courier.submit(exchange).wait()
    return [payload if peer == own else bytes(parts[peer].numpy()) for peer in range(members)]


def send_bytes(link: Link, peers: Sequence[int], payload: bytes) -> None:
    """Send bytes, at least one, to some peers. Raises LinkBrokenError."""
    length = torch.tensor([len(payload)], dtype=torch.int64).view(torch.uint8)
    content = torch.frombuffer(bytearray(payload), dtype=torch.uint8)
    link.exchange([(peer, length) for peer in peers], [])
    link.exchange([(peer, content) for peer in peers], [])


def receive_bytes(link: Link, peer: int) -> bytes:
    """Return what a peer sends by `send_bytes`. Raises LinkBrokenError."""
    length = torch.empty(_LENGTH_BYTES, dtype=torch.uint8)
    link.exchange([], [(peer, length)])
    content = torch.empty(_checked(int(length.view(torch.int64).item())), dtype=torch.uint8)
    link.exchange([], [(peer, content)])
    return bytes(content.numpy())


def _checked(length: int) -> int:
    if not 0 <= length <= MAX_GATHERED_BYTES:
        raise ValueError(
            f"a member announced {length} bytes, more than {MAX_GATHERED_BYTES} are not believed"
        )
    return length
