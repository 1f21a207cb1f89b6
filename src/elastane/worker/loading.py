"""Own one torch DataLoader whose requests come from a live source, and its data-loading processes.

The source is asked for the next request whenever a data-loading process can take one, so the
DataLoader is never started anew because something else is wanted. Results come in the order of the
requests. Nothing here knows epochs, steps or virtual workers.

How the processes end, so that none is left behind: on `close` and at the interpreter's exit in the
DataLoader's own way, stuck ones by themselves after a grace time; when the training process is killed,
at once: each of them waits on a pipe whose other end dies with it. Signals meant for the training process (a
terminal's or a batch system's, sent to all processes) do not end them, since it still needs batches to
leave gracefully.
"""

import atexit
import multiprocessing
import multiprocessing.util
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any

import torch
from torch.utils.data import DataLoader, get_worker_info

from elastane.worker.data import FeedSettings, FetchRequest, RequestedBatches
from elastane.worker.parcel import pack, unpack

RequestSource = Callable[[], FetchRequest | None]
"""Gives the next request; None when there is nothing to fetch, which is answered by None."""

_STUCK_GRACE_S = 0.5
"""Time a data-loading process has to end between two batches; then it ends within one. Longer than the
few milliseconds in which the DataLoader's shutdown uses locks that it shares with the processes."""
_ORPHAN_POLL_S = 0.01
"""How often a process whose pipe has ended looks whether its parent lives: the kernel closes the files of
a killed process before its children get a new parent."""
_PARENTS_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class RequestPipe:
    """Answer the requests of `source` in order.

    Args:
        dataset: map-style data set.
        settings: how batches are loaded.
        source: called for each request, in the thread that calls `start` or `pull`.
    """

    def __init__(self, dataset: Any, settings: FeedSettings, source: RequestSource) -> None:
        self._dataset = dataset
        self._settings = settings
        self._source = source
        self._iterator: Any = None
        self._lifeline: Connection | None = None
        self._owner_pid = 0

    @property
    def depth(self) -> int:
        """Return how many requests are under way between two pulls."""
        return self._settings.num_workers * self._settings.prefetch_factor

    def start(self) -> None:
        """Start the data-loading processes and send them the first `depth` requests, unless they run."""
        if self._iterator is not None:
            return
        settings = self._settings
        if settings.num_workers == 0:
            # What a DataLoader does around one call takes longer than fetching rows of a tensor.
            self._iterator = iter(self._loader()) if settings.pin_memory else self._answer_here()
            return
        self._owner_pid = os.getpid()
        receiving, self._lifeline = multiprocessing.Pipe(duplex=False)
        _close_at_exit(self)
        try:
            self._iterator = iter(
                self._loader(
                    num_workers=settings.num_workers,
                    prefetch_factor=settings.prefetch_factor,
                    timeout=settings.timeout_s,
                    worker_init_fn=_ProcessStart(settings.worker_init_fn, receiving),
                    multiprocessing_context=settings.multiprocessing_context,
                )
            )
        finally:
            receiving.close()
            if self._iterator is None:
                self.close()

    def _answer_here(self) -> Iterator[Any]:
        batches = RequestedBatches(self._dataset, self._settings.collate_fn)
        while True:
            yield batches.__getitems__(self._source())

    def _loader(self, **process_settings: Any) -> DataLoader[Any]:
        return DataLoader(
            RequestedBatches(self._dataset, self._settings.collate_fn),  # type: ignore[arg-type]
            batch_sampler=_LiveSampler(self._source),  # type: ignore[arg-type]
            # Who pins memory must see the tensors.
            collate_fn=pack if self._settings.num_workers and not self._settings.pin_memory else _unchanged,
            pin_memory=self._settings.pin_memory,
            generator=torch.Generator(),  # else it draws from the generator that training uses
            **process_settings,
        )

    def pull(self) -> Any:
        """Return the answer to the oldest request: a batch, None, or a FetchFailure.

        Raises:
            RuntimeError: a data-loading process died or did not answer within `timeout_s`. All are ended;
                the next `start` or `pull` begins anew and asks the source from there.
        """
        self.start()
        try:
            return unpack(next(self._iterator))
        except BaseException:
            # Interrupted half-way (a signal, a dead process), the iterator's accounts are not reliable.
            self.close()
            raise

    def close(self) -> None:
        """End the data-loading processes; requests under way are lost."""
        iterator, self._iterator = self._iterator, None
        self.close_lifeline()
        if iterator is None or os.getpid() != self._owner_pid:  # no processes, or those of our parent
            return
        # Dropping the iterator would do the same, but later if a traceback still refers to it.
        iterator._shutdown_workers()
        for process in iterator._workers:
            if process.is_alive():  # it does not return from native code
                process.kill()
            process.join()

    def close_lifeline(self) -> None:
        """Close this process's end of the pipe that the data-loading processes watch."""
        if self._lifeline is not None:
            self._lifeline.close()
            self._lifeline = None


_started: weakref.WeakSet[RequestPipe] = weakref.WeakSet()
_exit_registered_in = 0


def _close_at_exit(pipe: RequestPipe) -> None:
    # At exit multiprocessing sends SIGTERM to the processes and waits for them without end. Our turn comes
    # before: by atexit also before torch refuses to shut down processes because the interpreter ends, and
    # by multiprocessing's finalizers in a child of multiprocessing, where atexit does nothing.
    global _exit_registered_in  # noqa: PLW0603 - once per process, and a forked child is another process
    _started.add(pipe)
    if _exit_registered_in != os.getpid():
        _exit_registered_in = os.getpid()
        atexit.register(_close_started)
        multiprocessing.util.Finalize(None, _close_started, exitpriority=100)


def _close_started() -> None:
    for pipe in list(_started):
        pipe.close()


class _LiveSampler:
    """Give a DataLoader whatever the source wants next, for ever."""

    def __init__(self, source: RequestSource) -> None:
        self._source = source

    def __iter__(self) -> Iterator[FetchRequest | None]:
        while True:
            yield self._source()


class _ProcessStart:
    """Prepare a data-loading process, then call the user's worker_init_fn."""

    def __init__(self, user_function: Callable[[int], None] | None, lifeline: Connection) -> None:
        self._user_function = user_function
        self._lifeline = lifeline

    def __call__(self, number: int) -> None:
        for pipe in list(_started):  # a forked process holds copies of the ends that must die with the parent
            pipe.close_lifeline()
        threading.Thread(target=_exit_with_parent, args=(self._lifeline, os.getppid()), daemon=True).start()
        signal.set_wakeup_fd(-1)  # a copy of the parent's would tell the parent of signals that came here
        for signum in _PARENTS_SIGNALS:
            signal.signal(signum, _leave_to_parent)
        info: Any = get_worker_info()
        # What user code reads there must be the user's data set, as with a plain DataLoader.
        object.__setattr__(info, "dataset", info.dataset.dataset)
        if self._user_function is not None:
            self._user_function(number)


def _exit_with_parent(lifeline: Connection, parent_pid: int) -> None:
    with suppress(EOFError, OSError):
        lifeline.recv_bytes()
    deadline_s = time.monotonic() + _STUCK_GRACE_S
    while os.getppid() == parent_pid and time.monotonic() < deadline_s:
        time.sleep(_ORPHAN_POLL_S)
    os._exit(0)


def _leave_to_parent(signum: int, frame: FrameType | None) -> None:
    """Do nothing; unlike an ignored signal, this is not inherited by programs that a data set runs."""


def _unchanged(batch: Any) -> Any:
    return batch
