"""Take a copy of one share of the state at a step boundary, and put shares together again.

The state is one stream of bytes: its tensors by name, each as it lies in memory, one after another. Shares
are cut from it without regard to tensors, so they are equally long whatever the model is like. A description
says which tensors the bytes are, and holds all that is no tensor. Knows neither files nor other workers.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import torch
from torch import Tensor

from elastane.checkpoint.target import ReadableFile
from elastane.core.checkpoints import SavedFile
from elastane.model.errors import StateFileError
from elastane.worker.layout import TensorEntry, allocate_tensor, describe_tensor, flat_bytes
from elastane.worker.slicing import Run, iterate_runs, plan_shares
from elastane.worker.state import CapturedState

MAX_DESCRIPTION_BYTES = 1 << 28
"""256 MiB: as much as a state that is sent to a newcomer may say of itself."""


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """Say everything about a state but the bytes of its tensors."""

    step: int
    epoch: int
    device_type: str
    tensors: tuple[TensorEntry, ...]
    """In the order of their bytes."""
    numbers: tuple[int, ...]
    """Number in the skeleton of each of them."""
    skeleton: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Hold one share of a state, apart from the live tensors.

    Attributes:
        step, epoch, device_type: as in `CapturedState`.
        state_bytes: of all tensors together.
        content: the share.
        description: encoded; empty unless it was asked for.
    """

    step: int
    epoch: int
    device_type: str
    state_bytes: int
    content: memoryview
    description: bytes


class SnapshotBuffer:
    """Hold the memory of one share, used again for the next: fresh pages cost thrice the copy."""

    def __init__(self) -> None:
        self._memory = torch.empty(0, dtype=torch.uint8)

    def take(self, state: CapturedState, *, share: int, shares: int, describe: bool) -> Snapshot:
        """Copy a share of a state; the one taken before is gone.

        Args:
            state: as captured at the boundary; it may change when this returns.
            share: which one, from 0.
            shares: into how many the state is cut.
            describe: whether the description is wanted too.
        """
        ordered = sorted((name, number) for number, name in enumerate(state.tensors))
        tensors = [state.tensors[name] for name, _ in ordered]
        views = [flat_bytes(tensor) for tensor in tensors]
        lengths = [len(view) for view in views]
        share_range = plan_shares(sum(lengths), shares)[share]
        if len(self._memory) < len(share_range):
            self._memory = torch.empty(len(share_range), dtype=torch.uint8)
        _copy_runs(views, list(iterate_runs(lengths, share_range)), self._memory)
        description = b""
        if describe:
            description = msgspec.msgpack.encode(
                Description(
                    step=state.step,
                    epoch=state.epoch,
                    device_type=state.device_type,
                    tensors=tuple(describe_tensor(name, state.tensors[name]) for name, _ in ordered),
                    numbers=tuple(number for _, number in ordered),
                    skeleton=dict(state.skeleton),
                )
            )
        return Snapshot(
            step=state.step,
            epoch=state.epoch,
            device_type=state.device_type,
            state_bytes=sum(lengths),
            content=_as_memory(self._memory)[: len(share_range)],
            description=description,
        )


def _copy_runs(views: list[Tensor], runs: list[Run], memory: Tensor) -> None:
    if not runs:
        return
    targets = torch.split(memory[: sum(run.nbytes for run in runs)], [run.nbytes for run in runs])
    sources = [views[run.tensor][run.start : run.stop] for run in runs]
    torch._foreach_copy_(list(targets), sources)


def assemble_state(
    description: bytes, shares: tuple[SavedFile, ...], open_share: Callable[[SavedFile], ReadableFile]
) -> CapturedState:
    """Read a state back from its shares, checking their sums on the way.

    Args:
        description: what `SnapshotBuffer.take` made, its sum checked.
        shares: all shares in order.
        open_share: opens one for reading.

    Raises:
        StateFileError: something is damaged; nothing but memory was touched.
        OSError: a share cannot be read.
    """
    try:
        told = msgspec.msgpack.decode(description, type=Description)
        tensors = [allocate_tensor(entry, torch.device("cpu")) for entry in told.tensors]
    except (ValueError, RuntimeError) as error:  # msgspec's errors are ValueErrors too
        raise StateFileError(f"its description makes no sense: {error}") from error
    if sorted(told.numbers) != list(range(len(tensors))):
        raise StateFileError(f"its description numbers {len(tensors)} tensors wrongly")
    views = [flat_bytes(tensor) for tensor in tensors]
    lengths = [len(view) for view in views]
    cuts = plan_shares(sum(lengths), len(shares))
    for saved, share_range in zip(shares, cuts, strict=True):
        if saved.content_bytes != len(share_range):
            raise StateFileError(
                f"{saved.name} has {saved.content_bytes} bytes, {len(share_range)} are described"
            )
        with open_share(saved) as file:
            _read_share(file, saved, [_host_view(views, run) for run in iterate_runs(lengths, share_range)])
    by_number = sorted(zip(told.numbers, told.tensors, tensors, strict=True), key=lambda item: item[0])
    return CapturedState(
        step=told.step,
        epoch=told.epoch,
        device_type=told.device_type,
        skeleton=told.skeleton,
        tensors={entry.name: tensor for _, entry, tensor in by_number},
        host_tensors=frozenset(e.name for e in told.tensors if e.device_type != told.device_type),
        owned=True,
    )


def _host_view(views: list[Tensor], run: Run) -> memoryview:
    return _as_memory(views[run.tensor][run.start : run.stop])


def _as_memory(tensor: Tensor) -> memoryview:
    content: memoryview = tensor.numpy().data
    return content


def _read_share(file: ReadableFile, saved: SavedFile, places: list[memoryview]) -> None:
    digest = hashlib.sha256()
    for place in places:
        filled = 0
        while filled < len(place):
            got = file.readinto(place[filled:])
            if not got:
                raise StateFileError(f"{saved.name} is shorter than {saved.content_bytes} bytes")
            filled += got
        digest.update(place)
    if digest.hexdigest() != saved.sha256:
        raise StateFileError(
            f"{saved.name} has sha256 {digest.hexdigest()[:16]}... instead of {saved.sha256[:16]}..."
        )
