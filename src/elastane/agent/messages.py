"""What an agent and its preloaded parent say to each other: msgspec frames over a SOCK_SEQPACKET pair.

The kernel keeps the frames apart, so there is no framing of our own. A request to fork carries the
descriptor of the worker's log file beside its frame.
"""

import msgspec

from elastane.model.ids import WorkerId
from elastane.worker.context import WorkerContext

MAX_FRAME_BYTES = 1 << 16
"""Largest frame: below the 208 KiB that Linux allows one message on a Unix socket by default."""


class Preload(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Ask for modules to be imported; the first frame."""

    modules: tuple[str, ...]
    script: str


class Preloaded(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Answer `Preload`: what is loaded, what is not, and whether forking is safe."""

    modules: int
    failed: dict[str, str]
    took_s: float
    threads: int
    """Threads of the parent; more than one means that an import started some, which forks do not inherit."""
    cuda: bool
    """An import initialised CUDA: forked workers could not use it."""


class Fork(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Ask for a worker."""

    context: WorkerContext
    entry: str


class Forked(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Say, from the new worker itself, that it lives. So no worker is unknown if its parent dies."""

    worker: WorkerId
    pid: int


class ForkFailed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Say that the operating system refused to fork."""

    worker: WorkerId
    why: str


Request = Preload | Fork
Answer = Preloaded | Forked | ForkFailed
