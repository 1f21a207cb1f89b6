"""Places in a worker's life at which a test lets it die, freeze, hang or fail; imported by `kill_script`.

The test writes an order into a file; whoever it names carries it out at the named place. The places inside
the product are reached by wrapping its functions here, in the worker's process: it knows nothing of it.
"""

import ctypes
import functools
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import Dataset

from elastane.core.duty import WriteDecision
from elastane.core.stance import Stance
from elastane.worker import direct, elastic, reducer, standing
from elastane.worker.bootstrap import running_control
from elastane.worker.connector import Connector
from elastane.worker.errands import Errands
from elastane.worker.gloo import GlooLink
from elastane.worker.peer_memory import PeerMemory
from elastane.worker.trainer import Trainer

NEWCOMER = "newcomer"
"""Stands for the first worker that comes to the place before it has taken part in a generation."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """Tell workers, by id or `NEWCOMER`, at which place they carry out the action."""

    number: int
    victims: dict[str, str]
    action: str = "kill"
    """kill, freeze, hang (with the interpreter's lock held), stall (without), mute (send nothing over the
    present link any more, and say nothing of it), raise, devour (memory)."""


class Orders:
    """Read the newest order; looking costs a microsecond while there is no new one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._seen_ns = 0
        self._order: Order | None = None

    def newest(self) -> Order | None:
        try:
            changed_ns = os.stat(self.folder / "order").st_mtime_ns
        except FileNotFoundError:
            return None
        if changed_ns != self._seen_ns:
            self._seen_ns = changed_ns
            self._order = msgspec.json.decode((self.folder / "order").read_bytes(), type=Order)
        return self._order

    def claim(self, order: Order, victim: str, worker: str) -> bool:
        """Tell whether this worker is the one that carries out the order: each is carried out once."""
        path = done_path(self.folder, order.number, victim)
        mine = path.with_name(f"{path.name}.{worker}")
        mine.write_text(worker)
        try:
            os.link(mine, path)  # appears with its text in it, and only once
        except FileExistsError:
            return False
        return True


def done_path(folder: Path, number: int, victim: str) -> Path:
    """Return the file that says which worker has come to a victim's place."""
    return folder / f"done-{number}-{victim}"


orders: Orders | None = None


def reach(place: str) -> None:
    """Be at a place: carry out the newest order if it is meant."""
    control = running_control()
    order = orders.newest() if orders is not None else None
    if control is None or order is None or orders is None:
        return
    joins = control.standing.gate.generation == 0
    names = (control.context.worker, *((NEWCOMER,) if joins else ()))
    for victim in names:
        if order.victims.get(victim) == place and orders.claim(order, victim, names[0]):
            ACTIONS[order.action]()


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def freeze() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def hang() -> None:
    """Hang in native code that does not give the interpreter's lock back: no thread of Python goes on.

    A mutex that the thread holds already: no signal but SIGKILL ends the wait.
    """
    libc, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(64)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)


def stall() -> None:
    """Let this thread go on no more, and all others live."""
    time.sleep(3600)


def mute() -> None:
    """Lose whatever this worker sends over its present link, as a network does that is cut one way."""
    silence.clear()
    silence.append(None)


silence: list[Any] = []
"""Empty, or the link over which nothing is sent; None until the link is known."""


def _mute_link() -> None:
    inner = GlooLink.exchange

    def exchange(self: GlooLink, sends: Any, recvs: Any) -> None:
        if silence == [None]:
            silence[0] = self
        inner(self, () if self in silence else sends, recvs)

    GlooLink.exchange = exchange  # type: ignore[method-assign]


def fail() -> None:
    raise ValueError("this worker fails as it was told")


def devour() -> None:
    """Ask for more memory than the cgroup named by the test allows, until the kernel ends this process."""
    Path(os.environ["KILL_TEST_CGROUP"], "cgroup.procs").write_text(str(os.getpid()))
    hoard = [bytearray(os.urandom(1 << 20)) for _ in range(1 << 14)]
    raise AssertionError(f"{len(hoard)} MiB were there to be had")


ACTIONS: Mapping[str, Callable[[], None]] = {
    "kill": kill,
    "freeze": freeze,
    "hang": hang,
    "stall": stall,
    "mute": mute,
    "raise": fail,
    "devour": devour,
}


class Watched(Dataset):
    """Pass a place whenever a sample is fetched."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, index: int) -> Any:
        reach("fetch")
        return self.inner[index]


def watch_model(model: nn.Sequential, optimizer: Optimizer) -> None:
    """Put places into forward and backward passes and around the optimizer's arithmetic."""
    model[2].register_forward_hook(lambda *_: reach("forward"))
    model[0].weight.register_hook(lambda _: reach("backward"))
    optimizer.register_step_pre_hook(lambda *_: reach("update"))
    optimizer.register_step_post_hook(lambda *_: reach("updated"))


def watch_product(folder: Path, *, small_ones_are_read: bool = False) -> None:
    """Put places into the worker's runtime; called once, before the job object is made.

    Tensors so small as those of these tests travel as messages, unless they are to be read like large ones.
    """
    global orders  # noqa: PLW0603 - one per process
    orders = Orders(folder)
    standing.SILENCE_S = 3.0
    _mute_link()
    _surround(GlooLink, "exchange", "exchange", "exchanged")
    _surround(PeerMemory, "read", "reading", "read")
    if small_ones_are_read:
        direct.LARGE_BYTES, reducer.SMALL_BYTES = 1, 0
    _surround(elastic.ElasticSession, "end_commit", "committing", "committed")
    _surround(elastic.ElasticSession, "pass_boundary", "boundary", "begin")
    _surround(elastic.ElasticSession, "_enter", "entering", "entered")
    _surround(elastic.ElasticSession, "_save", "saving", "saved")
    _surround(Trainer, "take_seat", "seating", "seated")
    _surround(Stance, "_halt", "halting", "halted")
    _surround(Connector, "_connect", "connecting", "connected")
    elastic.send_state = _with_watched_link(elastic.send_state, "supplying")
    elastic.receive_state = _with_watched_link(elastic.receive_state, "receiving")
    _watch_leader()


def _surround(owner: type, name: str, before: str, after: str) -> None:
    inner = getattr(owner, name)

    @functools.wraps(inner)
    def watched(*arguments: Any, **named: Any) -> Any:
        reach(before)
        result = inner(*arguments, **named)
        reach(after)
        return result

    setattr(owner, name, watched)


class _WatchedLink:
    """Pass a place between the messages of one transfer."""

    def __init__(self, inner: Any, place: str) -> None:
        self._inner = inner
        self._place = place

    def exchange(self, sends: Any, recvs: Any) -> None:
        self._inner.exchange(sends, recvs)
        reach(self._place)


def _with_watched_link(inner: Callable[..., None], place: str) -> Callable[..., None]:
    def watched(link: Any, *arguments: Any, **named: Any) -> None:
        inner(_WatchedLink(link, place), *arguments, **named)

    return watched


def _watch_leader() -> None:
    inner = Errands.run

    def watched(self: Errands, store: Any, errand: Any) -> Any:
        event = errand.decision.event if isinstance(errand, WriteDecision) else ""
        if event:
            reach(f"about to write {event}")
        outcome = inner(self, store, errand)
        if event and outcome.succeeded:
            reach(f"wrote {event}")
        return outcome

    Errands.run = watched  # type: ignore[method-assign]
