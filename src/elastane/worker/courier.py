"""A thread per link that runs exchanges in the order of their submission, and can be left behind.

A collective that waits for a frozen peer cannot be aborted from within torch. So no thread of
importance ever waits in one: the courier's thread does, and whoever waits for the courier waits on a
lock that `abandon` opens at once. An abandoned thread keeps the link and the tensors of its last
exchange alive on its own stack until the operating system lets it go, so late data of a slow peer lands
in memory that nobody else uses any more.

The courier knows nothing of what the exchanges are for.
"""

import _thread
import logging
import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable

import torch

from elastane.model.errors import LinkBrokenError
from elastane.worker.link import Link

Exchange = Callable[[Link], None]
"""Work for the courier's thread: one or more exchanges over the link and the arithmetic between them."""

_log = logging.getLogger(__name__)


class Ticket:
    """Stand for one submitted exchange; several threads may wait for it."""

    __slots__ = ("_courier", "_done", "_gate", "_stream_event")

    def __init__(self, courier: "Courier") -> None:
        self._courier = courier
        self._done = False
        self._gate = _thread.allocate_lock()
        self._gate.acquire()
        self._stream_event: torch.cuda.Event | None = None

    @property
    def done(self) -> bool:
        """Tell whether the exchange has ended well."""
        return self._done

    def wait(self) -> None:
        """Return when the exchange has ended.

        Raises:
            LinkBrokenError: the link broke or was abandoned before the exchange ended.
        """
        with self._gate:
            pass
        if not self._done:
            raise LinkBrokenError(self._courier.reason)
        if self._stream_event is not None:
            torch.cuda.current_stream().wait_event(self._stream_event)

    def _finish(self, stream_event: torch.cuda.Event | None) -> None:
        self._stream_event = stream_event
        self._done = True
        self._gate.release()

    def _fail(self) -> None:
        self._gate.release()


class Courier:
    """Run exchanges over one link, one after another, in a thread of its own.

    Args:
        link: the link; from now on it is the courier's alone.
        on_broken: called once with the reason, in the courier's thread, when an exchange fails. Not called
            after `abandon`, whose caller knows.
        device: where the tensors are. On CUDA the exchanges run on a side stream that waits for what the
            submitting thread's stream has done so far, and `Ticket.wait` makes the waiting stream follow.
    """

    def __init__(
        self,
        link: Link,
        on_broken: Callable[[str], None] | None = None,
        device: torch.device | None = None,
    ) -> None:
        self.own = link.own
        self.peers = link.peers
        self._on_broken = on_broken
        self._reason: str | None = None
        self._mutex = threading.Lock()
        self._open: deque[Ticket] = deque()
        self._queue: queue.SimpleQueue[tuple[Ticket, Exchange, torch.cuda.Event | None] | None] = (
            queue.SimpleQueue()
        )
        on_cuda = device is not None and device.type == "cuda"
        self._stream = torch.cuda.Stream(device) if on_cuda else None  # type: ignore[no-untyped-call]
        self._threads = torch.get_num_threads()
        self._link = weakref.ref(link)
        self._thread = threading.Thread(target=self._run, args=(link,), name="elastane-courier", daemon=True)
        self._thread.start()

    @property
    def broken(self) -> bool:
        """Tell whether the link broke, was abandoned or was closed."""
        return self._reason is not None

    @property
    def reason(self) -> str:
        """Return why the link is broken; empty while it is not."""
        return self._reason or ""

    def submit(self, exchange: Exchange) -> Ticket:
        """Queue `exchange` behind those already submitted; on a broken link the ticket's `wait` raises."""
        ticket = Ticket(self)
        with self._mutex:
            if self._reason is not None:
                ticket._fail()
                return ticket
            self._open.append(ticket)
        ready = None
        if self._stream is not None:
            ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
            ready.record()
        self._queue.put((ticket, exchange, ready))
        return ticket

    def abandon(self, reason: str) -> None:
        """Make all present and future waits raise LinkBrokenError, at once; callable from any thread.

        The thread ends by itself when its present exchange does, if ever.
        """
        if self._break(reason):
            self._queue.put(None)
            if (link := self._link()) is not None:
                link.abort()

    def close(self) -> None:
        """End the thread after what was submitted, and free the link; returns at once."""
        with self._mutex:
            idle = not self._open
        if idle:
            self.abandon("the link was closed")
        else:
            self._queue.put(None)

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread to end, which it does only after `close` or `abandon`; tell whether it has."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _break(self, reason: str) -> bool:
        with self._mutex:
            if self._reason is not None:
                return False
            self._reason = reason
            waiting, self._open = self._open, deque()
        for ticket in waiting:
            ticket._fail()
        return True

    def _run(self, link: Link) -> None:
        # Intra-op threads are a setting per thread: without this every core would join in sums of gradients.
        torch.set_num_threads(self._threads)
        try:
            while (job := self._queue.get()) is not None:
                if self._reason is not None:
                    continue
                if not self._serve(link, *job):
                    break
                del job
        finally:
            self._break("the link was closed")
            link.close()

    def _serve(self, link: Link, ticket: Ticket, exchange: Exchange, ready: torch.cuda.Event | None) -> bool:
        try:
            finished = self._call(link, exchange, ready)
        except Exception as error:  # noqa: BLE001 - whatever stops an exchange is handed to those who wait for it
            reason = str(error) or repr(error)
            if self._break(reason):
                _log.warning("link of peer %d broke: %s", self.own, reason)
                if self._on_broken is not None:
                    self._on_broken(reason)
            return False
        with self._mutex:
            if self._reason is not None:
                return False
            self._open.popleft()
        ticket._finish(finished)
        return True

    def _call(
        self, link: Link, exchange: Exchange, ready: torch.cuda.Event | None
    ) -> torch.cuda.Event | None:
        if self._stream is None or ready is None:
            exchange(link)
            return None
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(ready)
            exchange(link)
            finished = torch.cuda.Event()  # type: ignore[no-untyped-call]
            finished.record(self._stream)
        return finished
