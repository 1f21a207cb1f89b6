"""The agent: one per node and job. Runs workers so that the job has what it wants, until the job has ended.

Theory of operation. One loop, one thread: take what the launcher tells, write exit notices, read the whole
job, let `plan_staffing` compare, do what it says, sleep until something happens. Nothing is remembered
between turns but what only this node can know (its processes, and when it saw what). A second thread
(`Presence`) watches the store and keeps the agent's record alive. Decisions are in `core/staffing/`.
"""

import logging
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TypeVar

import msgspec

from elastane.agent.bulletin import Bulletin
from elastane.agent.farewell import Farewell, JobStop, NodeLeave
from elastane.agent.identity import is_alive, is_known_dead, read_own_birth
from elastane.agent.launcher import Launcher
from elastane.agent.patience import RETRY_S, insist
from elastane.agent.presence import Presence, PresenceSettings
from elastane.agent.settings import AgentPlace, AgentSettings
from elastane.agent.shift import Shift
from elastane.core.view import encode
from elastane.jobs.registry import name_key
from elastane.jobs.requests import request_return
from elastane.model.errors import JobNotFoundError, JobStateError, StoreBusyError, StoreError
from elastane.model.records import AgentRecord, JobInfo, JobKeys, JobStatus
from elastane.observe.events import EventLog
from elastane.store.base import Store
from elastane.store.open import open_store

_log = logging.getLogger(__name__)

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
"""Each of them is a request to stop."""
_CLOSED = -1
_PREDECESSOR_LIVES = 3.0
"""How many lives of its lease an agent waits for one of its name that it cannot see to be dead."""
_PREDECESSOR_LOOK_S = 0.1

_T = TypeVar("_T")


class Agent:
    """Run the workers of one job on one node."""

    def __init__(
        self,
        place: AgentPlace,
        launcher: Launcher,
        settings: AgentSettings | None = None,
        lifeline: int | None = None,
    ) -> None:
        """Prepare to serve the job at `place`; the launcher is closed when `run` ends.

        `lifeline` is a descriptor that somebody in the foreground holds: each byte from it is one request to
        stop, its end means that nobody looks after the job any more. It stays the caller's.
        """
        self._place = place
        self._launcher = launcher
        self._settings = settings or AgentSettings()
        self._stop_requests = 0
        self._farewell: Farewell = (NodeLeave if place.guest else JobStop)(place, self._settings)
        self._lifeline = lifeline
        self._alone_since_s: float | None = None
        self._wake_reader, self._wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def request_stop(self) -> None:
        """Ask once for a graceful stop, twice for an end at once. Safe in any thread and signal handler."""
        self._stop_requests += 1
        self._wake()

    def run(self) -> JobStatus:
        """Serve the job until it has ended, or this node has left it, and no process is left; return how it
        stands.

        In the main thread SIGINT, SIGTERM and SIGUSR1 count as `request_stop` meanwhile.

        Raises:
            JobNotFoundError: there is no such job, or it was deleted.
            JobStateError: another living job has taken the job's name.
            StoreError: the store stayed out of reach; the workers have been ended.
        """
        url = self._place.store_url
        # Who has frozen with an embedded store's lock in its hand holds up this agent too, which can end it.
        patience_s = self._settings.lease_ttl_s / 3
        try:
            with (
                self._signals(),
                self._insist(lambda: open_store(url, create=False, patience_s=patience_s)) as store,
            ):
                return self._serve(store)
        finally:
            self._launcher.close()
            descriptors = self._wake_reader, self._wake_writer
            self._wake_reader = self._wake_writer = _CLOSED  # a late request to stop finds no other's file
            for descriptor in descriptors:
                os.close(descriptor)

    def _serve(self, store: Store) -> JobStatus:
        place = self._place
        bulletin = Bulletin(store, place.job, place.node)
        info = self._insist(bulletin.read_info)
        if info is None:
            raise JobNotFoundError(f"no job {place.job!r} in {place.store_url}; `elastane ps` lists the jobs")
        self._insist(lambda: _check_name(store, info))
        presence = self._make_presence(info)
        events = EventLog(Path(place.directory or info.directory), f"agent {place.node}")
        shift = Shift(self._launcher, bulletin, info, events, place, self._settings)
        try:
            self._insist(lambda: self._take_place(store, presence), shift)
            shift.log("agent_started", node=place.node, devices=list(place.devices), pid=os.getpid())
            shift.take_over(self._insist(bulletin.read, shift))
            return self._loop(shift, store, presence)
        finally:
            presence.stop(store)
            events.close()

    def _insist(self, work: Callable[[], _T], shift: Shift | None = None) -> _T:
        """Do a step of the start as soon as the store lets it; not for longer than it is borne with later."""
        return insist(
            work,
            self._settings.store_patience_s,
            self._pause,
            (lambda error: shift.log("store_trouble", error=str(error))) if shift is not None else None,
        )

    def _make_presence(self, info: JobInfo) -> Presence:
        place, keys = self._place, JobKeys(self._place.job)
        record = AgentRecord(
            node=place.node,
            pid=os.getpid(),
            devices=place.devices,
            born=read_own_birth(),
            address=place.address,
            directory=place.directory or info.directory,
        )
        settings = PresenceSettings(
            store_url=place.store_url,
            prefix=keys.prefix,
            # What workers say to each other in the middle of a change is no business of the agent's.
            ignored=(keys.acks, keys.all_rendezvous),
            key=keys.agent(place.node),
            record=encode(record),
            shared={name_key(info.name): place.job.encode()},
            lease_ttl_s=self._settings.lease_ttl_s,
        )
        return Presence(settings, self._wake)

    def _take_place(self, store: Store, presence: Presence) -> None:
        """Register as the one agent of this node; wait for the lease of one that was killed to run out.

        Raises:
            JobStateError: an agent of this name lives.
        """
        patience_s = _PREDECESSOR_LIVES * self._settings.lease_ttl_s
        deadline_s = time.monotonic() + patience_s
        while not presence.start(store):
            entry = store.get(JobKeys(self._place.job).agent(self._place.node))
            if entry is None:
                continue
            other = msgspec.json.decode(entry.value, type=AgentRecord)
            if is_known_dead(other.pid, other.born) and entry.lease is not None:
                store.revoke(entry.lease)
            elif is_alive(other.pid, other.born) or time.monotonic() > deadline_s:
                raise JobStateError(
                    f"an agent of job {self._place.job} on a node called {self._place.node!r} lives already "
                    f"(process {other.pid}); give this machine another name with --node"
                )
            else:
                time.sleep(_PREDECESSOR_LOOK_S)

    def _return(self, store: Store) -> None:
        """Offer this node's devices, should it have left the job before."""
        try:
            request_return(store, self._place.job, self._place.node)
        except JobStateError as error:
            _log.info("this node's devices are not offered at this look: %s", error)

    def _loop(self, shift: Shift, store: Store, presence: Presence) -> JobStatus:
        trouble_since_s: float | None = None
        while True:
            if presence.displaced:
                raise JobStateError(
                    f"this agent was cut off for so long that another one serves {self._place.node!r} now"
                )
            try:
                wake_at_s, status = self._turn(shift, store)
                trouble_since_s = None
                if status is not None:
                    return status
            except StoreError as error:
                now_s = time.monotonic()
                if trouble_since_s is None:
                    trouble_since_s = now_s
                    shift.log("store_trouble", error=str(error))
                if now_s - trouble_since_s > self._settings.store_patience_s:
                    raise
                if isinstance(error, StoreBusyError):
                    shift.end_frozen()
                wake_at_s = now_s + RETRY_S
            self._sleep(wake_at_s)

    def _turn(self, shift: Shift, store: Store) -> tuple[float, JobStatus | None]:
        """Look once and act; return when to look again, and how the job stands if this agent is done."""
        if self._stop_requests > 1:
            self._farewell.cut_short(shift)
        shift.take_notices()
        picture = shift.bulletin.read()
        self._stop_if_alone(shift)
        if self._stop_requests:
            self._farewell.pursue(shift, store, picture.view, self._stop_requests)
            picture = shift.bulletin.read()
        elif self._place.node in picture.view.spec.vacating:
            self._return(store)
        wake_at_s = shift.staff(picture)
        status = picture.view.status
        if status.phase.ended and not shift.node.processes:
            shift.bulletin.withdraw_roster()
            shift.log("agent_ended", phase=status.phase.value, message=status.message)
            return wake_at_s, status
        if self._farewell.is_done(shift, picture.view):
            shift.bulletin.withdraw_roster()
            shift.log("agent_left", node=self._place.node)
            return wake_at_s, status
        deadline_s = self._farewell.deadline_s
        if deadline_s is None or deadline_s <= time.monotonic():  # one that has passed wakes nobody again
            return wake_at_s, None
        return min(wake_at_s, deadline_s), None

    def _stop_if_alone(self, shift: Shift) -> None:
        """Ask for a graceful stop when the foreground has been gone for long: nobody sees or ends the job."""
        grace_s = self._settings.workers.orphan_grace_s
        if self._alone_since_s is None or self._stop_requests:
            return
        if time.monotonic() - self._alone_since_s > grace_s:
            shift.log("foreground_lost", reason=f"nobody has looked after the job for {grace_s:g} s")
            self._stop_requests = 1

    def _sleep(self, wake_at_s: float) -> None:
        """Wait until something happens, or until it is time."""
        timeout_s = min(max(wake_at_s - time.monotonic(), 0.0), self._settings.look_s)
        self._listen([self._launcher.fileno()], timeout_s)

    def _pause(self, pause_s: float) -> bool:
        """Wait before the next attempt to start; tell whether nobody wants this agent any more."""
        self._listen([], pause_s)
        return self._stop_requests > 0

    def _listen(self, others: list[int], timeout_s: float) -> None:
        """Wait for a wake-up, a word of the foreground, or one of the `others`."""
        watched = [*others, self._wake_reader]
        if self._lifeline is not None:
            watched.append(self._lifeline)
        readable, _, _ = select.select(watched, [], [], timeout_s)
        if self._wake_reader in readable:
            os.read(self._wake_reader, 4096)
        if self._lifeline in readable:
            self._hear_foreground(self._lifeline)

    def _hear_foreground(self, lifeline: int) -> None:
        asked = len(os.read(lifeline, 4096))
        self._stop_requests += asked
        if not asked:
            self._lifeline, self._alone_since_s = None, time.monotonic()

    def _wake(self) -> None:
        if self._wake_writer == _CLOSED:
            return
        try:
            os.write(self._wake_writer, b"!")
        except BlockingIOError:
            return  # the pipe is full of wake-ups already

    @contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(_number: int, _frame: FrameType | None) -> None:
            self.request_stop()

        before = {number: signal.signal(number, stop) for number in STOP_SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _check_name(store: Store, info: JobInfo) -> None:
    holder = store.get(name_key(info.name))
    if holder is not None and (owner := holder.value.decode()) != info.job:
        raise JobStateError(
            f"the name {info.name!r} of job {info.job} now belongs to job {owner}, which lives"
        )
