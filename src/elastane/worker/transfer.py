"""Move the state of a step boundary from the workers that have it to those that need it.

1. Every supplier sends each receiver a header. 2. The first one sends the table of tensors and the
skeleton. 3. Every supplier sends its share of the bytes, all in parallel, straight from its tensors.
Which worker supplies and which receives was decided elsewhere; what the state means, too.
"""

import gc
import struct
import zlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import msgspec
import torch
from torch import Tensor

from elastane.model.errors import DeterminismError, LinkBrokenError
from elastane.worker.layout import (
    TensorEntry,
    allocate_tensor,
    choose_device,
    describe_tensor,
    flat_bytes,
)
from elastane.worker.slicing import Piece, Run, plan_pieces, plan_shares
from elastane.worker.state import CapturedState, JobState, find_targets

_MAGIC = b"elastan1"  # the last character is the version of the format
_HEADER = struct.Struct("<8sQQQII")

MAX_DESCRIPTION_BYTES = 1 << 28
"""256 MiB: a hundred bytes for each tensor of the largest models, and room for registered plain data."""
MAX_STATE_BYTES = 1 << 43
"""8 TiB: beyond the memory of any one worker; a larger number is a damaged one."""


class StateLink(Protocol):
    """Be the part of a link that a transfer needs; peers are numbers, tensors are flat uint8."""

    def exchange(self, sends: Sequence[tuple[int, Tensor]], recvs: Sequence[tuple[int, Tensor]]) -> None:
        """Send and receive all tensors at once; return when all have gone and come.

        Raises:
            LinkBrokenError: a peer can no longer be reached.
        """


class _Header(NamedTuple):
    magic: bytes
    step: int
    state_bytes: int
    description_bytes: int
    description_crc: int
    table_crc: int


class _Description(msgspec.Struct, frozen=True, array_like=True):
    """Say everything about a state but the bytes of its tensors."""

    step: int
    epoch: int
    device_type: str
    numbers: tuple[int, ...]
    """Number in the skeleton of each entry of the table."""
    table: bytes
    skeleton: dict[str, Any]


_Table = tuple[TensorEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stream:
    """Hold the tensors of a state in the order in which their bytes travel."""

    table: _Table
    tensors: tuple[Tensor, ...]

    def pieces(self, suppliers: int) -> tuple[tuple[Piece, ...], ...]:
        """Return the messages of each supplier."""
        lengths = [entry.nbytes for entry in self.table]
        lanes = [entry.device_type for entry in self.table]
        return tuple(plan_pieces(lengths, lanes, share) for share in plan_shares(sum(lengths), suppliers))


def send_state(
    link: StateLink, state: CapturedState, *, own: int, suppliers: Sequence[int], receivers: Sequence[int]
) -> None:
    """Send this supplier's share of the state to every receiver.

    Args:
        link: the link of the new generation.
        state: as captured at the switch step.
        own: this worker's number on the link, one of `suppliers`.
        suppliers: numbers on the link, in the same order at every peer.
        receivers: numbers on the link; with none, nothing is sent.

    Raises:
        LinkBrokenError: a receiver or the link is gone; this worker's state is untouched.
    """
    if not receivers:
        return
    stream, header, description = _describe_state(state)
    _send_to_all(link, receivers, [_as_tensor(header)])
    if own == suppliers[0]:
        _send_to_all(link, receivers, [_as_tensor(description)])
    views = [flat_bytes(tensor) for tensor in stream.tensors]
    own_pieces = stream.pieces(len(suppliers))[suppliers.index(own)]
    _send_to_all(link, receivers, [_gather_piece(views, piece) for piece in own_pieces])


def receive_state(link: StateLink, job_state: JobState, *, suppliers: Sequence[int], in_place: bool) -> None:
    """Receive the state from all suppliers and put it in place.

    Args:
        link: the link of the new generation.
        job_state: the live objects; its step and epoch are set too.
        suppliers: numbers on the link, in the same order at every peer.
        in_place: receive straight into the live tensors: fast, but a link that breaks in the middle leaves
            a mixture behind. Right for joiners; a survivor that is one step behind passes False: its
            state then changes only once all bytes are here.

    Raises:
        LinkBrokenError: a supplier is gone, or what it sent is damaged.
        DeterminismError: suppliers hold states of different steps or layouts.
        ModelMismatchError: the state is that of another model; nothing was changed.
    """
    # Before anything is received: the suppliers take their state apart at the same time.
    targets = find_targets(job_state.capture()) if in_place else {}
    header = _receive_headers(link, suppliers)
    with _collection_paused():
        _receive_body(link, job_state, suppliers, header, targets)


class _Mirror:
    """Be a link whose one peer is oneself: what is sent waits until it is received."""

    def __init__(self) -> None:
        self._waiting: deque[Tensor] = deque()

    def exchange(self, sends: Sequence[tuple[int, Tensor]], recvs: Sequence[tuple[int, Tensor]]) -> None:
        self._waiting.extend(tensor for _, tensor in sends)
        for _, tensor in recvs:
            tensor.copy_(self._waiting.popleft())


def rehearse_transfer(job_state: JobState) -> None:
    """Move the state from this worker to itself: the first real transfer then finds code and memory warm.

    The first one of a process takes 5 to 30 ms for a small model whose later ones take 2 ms, and all wait.
    """
    mirror = _Mirror()
    send_state(mirror, job_state.capture(), own=0, suppliers=(0,), receivers=(1,))
    receive_state(mirror, job_state, suppliers=(0,), in_place=True)


def _receive_body(
    link: StateLink,
    job_state: JobState,
    suppliers: Sequence[int],
    header: _Header,
    targets: Mapping[str, Tensor],
) -> None:
    description, table = _receive_description(link, suppliers[0], header)
    stream = _make_room(table, description.device_type, job_state.device, targets)
    state = CapturedState(
        step=description.step,
        epoch=description.epoch,
        device_type=description.device_type,
        skeleton=description.skeleton,
        tensors=_by_number(stream, description.numbers),
        host_tensors=frozenset(e.name for e in table if e.device_type != description.device_type),
        owned=True,
    )
    job_state.check_fits(state)
    _receive_bytes(link, suppliers, stream)
    if targets:
        job_state.adopt(state)
    else:
        job_state.restore(state)


@contextmanager
def _collection_paused() -> Iterator[None]:
    # Thousands of new containers set off full garbage collections, each as long as a small transfer:
    # 0.28 s instead of 0.13 s for 5,000 tensors.
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _describe_state(state: CapturedState) -> tuple[_Stream, bytes, bytes]:
    # Stream, header, description. Sorted: another worker's dicts may hold the same in another order.
    entries = [(describe_tensor(name, tensor), i) for i, (name, tensor) in enumerate(state.tensors.items())]
    entries.sort(key=lambda pair: (pair[0].device_type, pair[0].name))
    tensors = tuple(state.tensors.values())
    stream = _Stream(
        table=tuple(entry for entry, _ in entries), tensors=tuple(tensors[number] for _, number in entries)
    )
    table = msgspec.msgpack.encode(stream.table)
    description = msgspec.msgpack.encode(
        _Description(
            step=state.step,
            epoch=state.epoch,
            device_type=state.device_type,
            numbers=tuple(number for _, number in entries),
            table=table,
            skeleton=dict(state.skeleton),
        )
    )
    header = _Header(
        magic=_MAGIC,
        step=state.step,
        state_bytes=state.tensor_bytes,
        description_bytes=len(description),
        description_crc=zlib.crc32(description),
        table_crc=zlib.crc32(table),
    )
    return stream, _HEADER.pack(*header), description


def _send_to_all(link: StateLink, receivers: Sequence[int], messages: Sequence[Tensor]) -> None:
    link.exchange([(receiver, message) for message in messages for receiver in receivers], [])


def _gather_piece(views: Sequence[Tensor], piece: Piece) -> Tensor:
    runs = [_slice_run(views, run) for run in piece]
    return runs[0] if len(runs) == 1 else torch.cat(runs)


def _slice_run(views: Sequence[Tensor], run: Run) -> Tensor:
    return views[run.tensor][run.start : run.stop]


def _receive_headers(link: StateLink, suppliers: Sequence[int]) -> _Header:
    # The first supplier's header, after all have been found to agree with it.
    buffers = [torch.empty(_HEADER.size, dtype=torch.uint8) for _ in suppliers]
    link.exchange([], list(zip(suppliers, buffers, strict=True)))
    headers = [_Header(*_HEADER.unpack(_as_bytes(buffer))) for buffer in buffers]
    for supplier, header in zip(suppliers, headers, strict=True):
        _check_header(supplier, header)
    first = headers[0]
    for supplier, header in zip(suppliers, headers, strict=True):
        if (header.step, header.table_crc) != (first.step, first.table_crc):
            raise DeterminismError(
                f"peers {suppliers[0]} and {supplier} both supply state, but hold step {first.step} (table "
                f"{first.table_crc:08x}) and step {header.step} (table {header.table_crc:08x}); run with the "
                "drift check on to find the first tensor that differs"
            )
    return first


def _check_header(supplier: int, header: _Header) -> None:
    if header.magic != _MAGIC:
        raise LinkBrokenError(
            f"peer {supplier} sent {header.magic!r} where a state begins with {_MAGIC!r}; "
            "do all workers run the same version of elastane?"
        )
    if header.description_bytes > MAX_DESCRIPTION_BYTES or header.state_bytes > MAX_STATE_BYTES:
        raise LinkBrokenError(
            f"peer {supplier} announced a state of {header.state_bytes} bytes with a description of "
            f"{header.description_bytes} bytes; at most {MAX_STATE_BYTES} and {MAX_DESCRIPTION_BYTES} are "
            "possible: its message is damaged"
        )


def _receive_description(link: StateLink, supplier: int, header: _Header) -> tuple[_Description, _Table]:
    buffer = torch.empty(header.description_bytes, dtype=torch.uint8)
    link.exchange([], [(supplier, buffer)])
    content = _as_bytes(buffer)
    if zlib.crc32(content) != header.description_crc:
        raise LinkBrokenError(
            f"the description of the state ({len(content)} bytes) from peer {supplier} has another checksum "
            "than announced: bytes were lost or changed on the way"
        )
    try:
        description = msgspec.msgpack.decode(content, type=_Description)
        table = msgspec.msgpack.decode(description.table, type=_Table)
        _check_table(table, description.numbers, header.state_bytes)
    except ValueError as error:  # msgspec's errors are ValueErrors too
        raise LinkBrokenError(
            f"peer {supplier} sent a description of its state that makes no sense: {error}"
        ) from error
    return description, table


def _check_table(table: _Table, numbers: Sequence[int], state_bytes: int) -> None:
    if any(dim < 0 for entry in table for dim in entry.shape):
        raise ValueError("a dimension is negative")
    if any(entry.order and sorted(entry.order) != list(range(len(entry.shape))) for entry in table):
        raise ValueError("an order of dimensions is no permutation")
    if sorted(numbers) != list(range(len(table))):
        raise ValueError(f"{len(table)} tensors are not numbered from 0")
    described_bytes = sum(entry.nbytes for entry in table)
    if described_bytes != state_bytes:
        raise ValueError(f"{state_bytes} bytes are announced, but the tensors have {described_bytes}")


def _make_room(
    table: _Table, source_type: str, own_device: torch.device, targets: Mapping[str, Tensor]
) -> _Stream:
    # Live tensors of the very same kind are received into; the others are allocated.
    tensors = []
    for entry in table:
        device = choose_device(
            entry.name,
            on_host=entry.device_type != source_type,
            source_type=source_type,
            own=own_device,
        )
        target = targets.get(entry.name)
        fits = (
            target is not None
            and target.device.type == device.type
            and msgspec.structs.replace(entry, device_type=device.type) == describe_tensor(entry.name, target)
        )
        tensors.append(target if fits and target is not None else allocate_tensor(entry, device))
    return _Stream(table=table, tensors=tuple(tensors))


def _by_number(stream: _Stream, numbers: Sequence[int]) -> dict[str, Tensor]:
    places = sorted(range(len(numbers)), key=lambda place: numbers[place])
    return {stream.table[place].name: stream.tensors[place] for place in places}


def _receive_bytes(link: StateLink, suppliers: Sequence[int], stream: _Stream) -> None:
    views = [flat_bytes(tensor) for tensor in stream.tensors]
    recvs: list[tuple[int, Tensor]] = []
    packed: list[tuple[Piece, Tensor]] = []
    for supplier, pieces in zip(suppliers, stream.pieces(len(suppliers)), strict=True):
        for piece in pieces:
            if len(piece) == 1:
                recvs.append((supplier, _slice_run(views, piece[0])))
                continue
            device = views[piece[0].tensor].device
            staging = torch.empty(sum(run.nbytes for run in piece), dtype=torch.uint8, device=device)
            packed.append((piece, staging))
            recvs.append((supplier, staging))
    link.exchange([], recvs)
    for piece, staging in packed:
        parts = torch.split(staging, [run.nbytes for run in piece])
        torch._foreach_copy_([_slice_run(views, run) for run in piece], list(parts))


def _as_tensor(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def _as_bytes(buffer: Tensor) -> bytes:
    return buffer.numpy().tobytes()
