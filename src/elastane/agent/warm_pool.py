"""The agent's end of the preloaded parent: starts it, asks it for workers, replaces it when it dies.

A request waits here until the parent has preloaded; so the first workers of a job start when one import of
torch is done instead of each importing it. A parent that dies is replaced and what it had not answered is
asked again: a worker announces itself, so an unanswered request has certainly started nothing. Parents that
die before they get that far are given up, and requests are handed back to be started cold.
"""

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from elastane.agent.children import Children
from elastane.agent.launcher import Notice, PoolReported, StartFailed
from elastane.agent.messages import (
    MAX_FRAME_BYTES,
    Answer,
    Fork,
    Forked,
    ForkFailed,
    Preload,
    Preloaded,
    Request,
)
from elastane.agent.spawn import open_log, spawn_python
from elastane.model.ids import WorkerId
from elastane.worker.context import WorkerContext

ZYGOTE_NAME = "(preloaded parent)"
"""Name of the parent among the agent's children; no worker id has brackets."""

_FRUITLESS_LIMIT = 2
"""Parents in a row that die while preloading or forking, after which workers are started cold."""

_REQUESTS = msgspec.msgpack.Encoder()
_ANSWERS: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    """Hold what a preloaded parent is started with."""

    script: str
    entry: str
    preload: tuple[str, ...]
    environment: dict[str, str]
    directory: str
    """The job's folder; the parent's own output goes to its `logs/zygote.log`."""


class WarmPool:
    """Turn requests for workers into forks of one preloaded parent. Used by one thread only."""

    def __init__(
        self,
        settings: PoolSettings,
        children: Children,
        adopt: Callable[[WorkerId, int], None],
        start_cold: Callable[[WorkerContext], None],
    ) -> None:
        self._settings = settings
        self._children = children
        self._adopt = adopt
        self._start_cold = start_cold
        self._channel: socket.socket | None = None
        self._ready = False
        self._preloaded = False
        self._fruitless = 0
        self._queue: dict[WorkerId, WorkerContext] = {}
        self._asked: dict[WorkerId, WorkerContext] = {}
        self._condemned: set[WorkerId] = set()

    @property
    def given_up(self) -> bool:
        """Tell whether preloaded parents do not work here."""
        return self._fruitless >= _FRUITLESS_LIMIT

    def open(self) -> None:
        """Start a parent, if none runs, so that it is ready when the first request comes.

        Raises:
            OSError: the job's folder cannot be written, or the system gives no more processes.
        """
        if self._channel is not None or self.given_up or ZYGOTE_NAME in self._children.names():
            return
        log = open_log(Path(self._settings.directory), "zygote")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            arguments = ("-m", "elastane.agent.zygote", str(theirs.fileno()))
            pid = spawn_python(arguments, self._settings.environment, log, passed=(theirs.fileno(),))
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(log)
        ours.setblocking(False)
        self._channel, self._preloaded = ours, False
        self._children.watch(ours.fileno())
        self._children.adopt(ZYGOTE_NAME, pid)
        module = self._settings.entry.partition(":")[0]
        self._send(Preload(modules=(*self._settings.preload, module), script=self._settings.script))

    def start(self, context: WorkerContext) -> list[Notice]:
        """Ask for a worker, now or as soon as a parent is ready; `poll` tells what becomes of it."""
        self._queue[context.worker] = context
        return self._ask(context) if self._ready else self._reopen()

    def cancel(self, worker: WorkerId) -> bool:
        """Take a request back; tell whether it was still here.

        A worker already asked for is killed when it answers; if one insists, with its parent.
        """
        if self._queue.pop(worker, None) is not None:
            return True
        if worker in self._condemned:
            self._children.kill(ZYGOTE_NAME)  # it hangs; whatever else it was asked is asked of the next one
        elif worker in self._asked:
            self._condemned.add(worker)
        return False

    def poll(self) -> list[Notice]:
        """Take the parent's answers, then send what waits for it."""
        notices = [notice for answer in self._receive() if (notice := self._take(answer)) is not None]
        if self._ready:
            for context in tuple(self._queue.values()):
                notices += self._ask(context)
        return notices

    def take_exit(self, code: int | None) -> list[Notice]:
        """Take the death of the parent: ask a new one for what this one did not answer."""
        notices = self.poll()  # workers announce themselves even after their parent has died
        self._close_channel()
        if self._asked or not self._preloaded:
            self._fruitless += 1
        waiting = {**self._asked, **self._queue}
        self._asked, self._queue = {}, {}
        for worker in self._condemned & waiting.keys():
            del waiting[worker]
            notices.append(StartFailed(worker=worker, why="taken back"))
        self._condemned = set()
        fields: dict[str, object] = {"code": code, "asked_again": len(waiting), "given_up": self.given_up}
        notices.append(PoolReported(kind="preloaded_parent_died", fields=fields))
        self._queue = waiting
        return notices + self._reopen()

    def close(self) -> None:
        """Close our end; the parent then ends by itself. Harmless if called twice."""
        self._close_channel()

    def _reopen(self) -> list[Notice]:
        """Start a parent for what is queued, or start that cold if parents do not work here."""
        notices: list[Notice] = []
        try:
            self.open()
        except OSError as error:
            self._fruitless = _FRUITLESS_LIMIT
            fields: dict[str, object] = {"error": str(error), "given_up": True}
            notices.append(PoolReported(kind="preloaded_parent_failed", fields=fields))
        if self.given_up:
            waiting, self._queue = self._queue, {}
            for context in waiting.values():
                self._start_cold(context)
        return notices

    def _close_channel(self) -> None:
        if self._channel is not None:
            self._children.unwatch(self._channel.fileno())
            self._channel.close()
            self._channel, self._ready = None, False

    def _ask(self, context: WorkerContext) -> list[Notice]:
        """Send one request with the descriptor of its log file; keep it queued if the socket is full."""
        worker = context.worker
        request = Fork(context=context, entry=self._settings.entry)
        if (size_bytes := len(_REQUESTS.encode(request))) > MAX_FRAME_BYTES:
            del self._queue[worker]
            why = f"its arguments and environment take {size_bytes} bytes; {MAX_FRAME_BYTES} are possible"
            return [StartFailed(worker=worker, why=why)]
        try:
            log = open_log(Path(context.directory), worker)
        except OSError as error:
            del self._queue[worker]
            return [StartFailed(worker=worker, why=f"its log file cannot be opened: {error}")]
        try:
            sent = self._send(request, log)
        finally:
            os.close(log)
        if sent:
            self._asked[worker] = self._queue.pop(worker)
        return []

    def _send(self, request: Request, *descriptors: int) -> bool:
        assert self._channel is not None
        try:
            socket.send_fds(self._channel, [_REQUESTS.encode(request)], descriptors)
        except (BlockingIOError, BrokenPipeError, ConnectionResetError):
            return False  # full: sent at the next look. Broken: the parent's exit is about to be told
        return True

    def _receive(self) -> list[Answer]:
        answers: list[Answer] = []
        while self._channel is not None:
            try:
                frame = self._channel.recv(MAX_FRAME_BYTES)
            except (BlockingIOError, ConnectionResetError):
                break
            if not frame:
                # The end of the stream stays readable; stop looking until the exit is told.
                self._close_channel()
                break
            answers.append(_ANSWERS.decode(frame))
        return answers

    def _take(self, answer: Answer) -> Notice | None:
        match answer:
            case Preloaded():
                return self._take_preloaded(answer)
            case Forked(worker=worker, pid=pid):
                self._fruitless = 0
                self._asked.pop(worker, None)
                self._adopt(worker, pid)
                if worker in self._condemned:
                    self._condemned.discard(worker)
                    self._children.kill(worker)
                return None
            case ForkFailed(worker=worker, why=why):
                self._asked.pop(worker, None)
                self._condemned.discard(worker)
                return StartFailed(worker=worker, why=why)

    def _take_preloaded(self, answer: Preloaded) -> Notice:
        self._ready, self._preloaded = not answer.cuda, True
        fields: dict[str, object] = msgspec.structs.asdict(answer)
        if answer.cuda:
            # Forked workers could not use CUDA: such parents are of no use, now or later.
            self._fruitless = _FRUITLESS_LIMIT
            self._children.kill(ZYGOTE_NAME)
            fields["given_up"] = "an import of the script initialises CUDA; workers start cold"
        return PoolReported(kind="preloaded", fields=fields)
