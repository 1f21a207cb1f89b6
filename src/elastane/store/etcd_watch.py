"""Follow one prefix of an etcd store through a watch stream, across lost connections.

Theory of operation
- etcd sends changes by itself, whole revisions at a time; `poll` takes what has arrived, `wait` sleeps in the
  socket. There is no thread of ours: what nobody looks at waits in the kernel, or at etcd.
- `position` is the revision up to which everything has been told, by events or by etcd's notes of mere
  progress. A new stream begins right after it, on whichever member is in use then, so nothing is missed or
  repeated.
- A stream that breaks is opened again without a word for `timeout_s`; after that each look tries once more
  and says by StoreUnreachableError that it is blind.
- A member that is frozen or cut off is silent too. So if neither the stream nor any call has heard from etcd
  for a while, the watch asks; and when the client gives its member up, the stream moves with it.
- etcd's compactions do not touch a stream that is open, only one that begins before them.
"""

import time
from operator import attrgetter

from elastane.model.errors import CompactedError, StoreError, StoreHandleError, StoreUnreachableError
from elastane.store.base import Event, Watch
from elastane.store.etcd_client import EtcdClient
from elastane.store.etcd_errors import Refusal, to_store_error
from elastane.store.etcd_http import LinkFailed
from elastane.store.etcd_keys import KeySpace
from elastane.store.etcd_messages import WatchCreate, WatchReply, WatchRequest
from elastane.store.etcd_stream import WatchStream
from elastane.store.guard import HandleGuard

ASK_AFTER_S = 5.0
"""Silence after which a watch asks whether etcd is there: a read of a millisecond each time."""
REOPEN_PAUSE_S = 0.05
"""Between tries to open a lost stream: one that is back is found soon, one that stays away costs little."""
UNKNOWN = 2  # gRPC's code


class EtcdWatch(Watch):
    """Follow one prefix through an EtcdStore's handle."""

    def __init__(
        self, client: EtcdClient, keys: KeySpace, guard: HandleGuard, prefix: str, after_revision: int
    ) -> None:
        self.position = after_revision
        self._seen_revision = client.newest_revision
        self._client = client
        self._keys = keys
        self._guard = guard
        self._prefix = prefix
        self._lost_at_s: float | None = None
        self._retry_at_s = 0.0
        self._is_login_fresh = False
        self._news: list[Event] = []
        self._ended: CompactedError | None = None
        self._blind: StoreUnreachableError | None = None
        self.closed = False
        self._stream: WatchStream | None = self._open()

    def poll(self) -> list[Event]:
        """Return the events that have arrived since the last call; see Watch.

        Takes no time, or `timeout_s` at most where etcd has to be asked whether it is there.
        """
        return self._look(time.monotonic())

    def wait(self, timeout_s: float) -> list[Event]:
        """Return the events since the last call as soon as there are any; see Watch.

        May take `timeout_s` of the address longer, where etcd has to be asked whether it is there.
        """
        until_s = time.monotonic() + timeout_s
        while True:
            events = self._look(until_s)
            left_s = until_s - time.monotonic()
            if events or left_s <= 0:
                return events
            if self._stream is None:
                time.sleep(min(left_s, REOPEN_PAUSE_S))

    def close(self) -> None:
        """End the watch; see Watch."""
        self.closed = True
        self._drop()

    # --- one look ------------------------------------------------------------------------------------

    def _look(self, until_s: float) -> list[Event]:
        """Return what arrives until a time as soon as something does, or nothing if the stream is lost.

        What has arrived is told first, whatever became of the stream after it.
        """
        self._check_use()
        try:
            self._read(until_s)
        except LinkFailed as failure:
            self._lose(failure)
        except Refusal as refusal:
            self._refuse(refusal)
        except StoreError:
            self._drop()  # replies that were read and not taken must come again
            raise
        if self._news:
            events, self._news = self._news, []
            return sorted(events, key=attrgetter("revision", "key"))
        for error in (self._ended, self._blind):
            if error is not None:
                raise error
        return []

    def _read(self, until_s: float) -> None:
        stream = self._keep_stream()
        if stream is None:
            return
        ask_at_s = self._client.heard_at_s + ASK_AFTER_S
        replies = stream.read(min(until_s, ask_at_s, stream.accept_until_s))
        while replies:
            self._client.heard_at_s = time.monotonic()
            for reply in replies:
                if self._ended is None:
                    self._take(reply)
            replies = stream.read(0.0) if self._ended is None else []
        now_s = time.monotonic()
        if now_s >= stream.accept_until_s:
            self._client.give_up_member()
            raise LinkFailed("it did not accept the watch in time", sent=True)
        if not self._news and now_s >= self._client.heard_at_s + ASK_AFTER_S:
            self._client.read_revision(self._keys)

    def _take(self, reply: WatchReply) -> None:
        if reply.canceled:
            self._end(reply)
        elif reply.created:
            self._lost_at_s = self._blind = None
            self._check_past(reply.header.revision)
        else:
            self._is_login_fresh = False
            events = [self._keys.event(message) for message in reply.events]
            # Before 3.5.8 a member that caught up by a snapshot could tell the past again (etcd's changelog).
            self._news += [event for event in events if event.revision > self.position]
            # A header beside events may be ahead of them; without any it tells how far all has been told.
            told = max((event.revision for event in events), default=reply.header.revision)
            self.position = max(self.position, told)
            self._seen_revision = max(self._seen_revision, told)

    def _end(self, reply: WatchReply) -> None:
        if reply.compact_revision:
            self._ended = CompactedError(
                f"events under {self._prefix!r} after revision {self.position} were asked for, but those up "
                f"to {reply.compact_revision} are forgotten; read the range again and watch from its revision"
            )
        else:
            raise Refusal(UNKNOWN, reply.cancel_reason or "the watch was cancelled")

    def _refuse(self, refusal: Refusal) -> None:
        """Open the stream again where that may help, else raise what the refusal means."""
        if refusal.is_passing:
            self._client.give_up_member()
        elif self._client.address.credentials and not self._is_login_fresh:
            self._client.forget_login()  # an outdated login is refused in the words of a forbidden prefix
            self._is_login_fresh = True
        else:
            self._drop()
            raise to_store_error(refusal, self._client.url)
        self._lose(refusal)

    def _check_past(self, revision: int) -> None:
        """End the watch if etcd has a shorter past than it had before: it was restored or replaced.

        A member may lag behind the others; what a read returns does not. To ask for what is yet to come is no
        sign: hence not `position`.
        """
        seen = self._seen_revision
        if revision < seen and (newest := self._client.read_revision(self._keys)) < seen:
            self._ended = CompactedError(
                f"events under {self._prefix!r} after revision {self.position} were asked for, but the store "
                f"went back from {seen} to {newest}: it was replaced; read the range again and watch from "
                "its revision"
            )

    # --- the stream ----------------------------------------------------------------------------------

    def _keep_stream(self) -> WatchStream | None:
        """Return a stream on the member in use, None if there is none just now."""
        if self._stream is not None and self._stream.epoch != self._client.epoch:
            raise LinkFailed("its member was given up", sent=True)
        if self._stream is None and (self._blind is not None or time.monotonic() >= self._retry_at_s):
            try:
                self._stream = self._open()
            except StoreUnreachableError as error:
                self._lose(error)
        return self._stream

    def _open(self) -> WatchStream:
        first, beyond = self._keys.bounds(self._prefix)
        create = WatchCreate(
            key=first, range_end=beyond, start_revision=self.position + 1, progress_notify=True
        )
        link = self._client.open_stream("/v3/watch", WatchRequest(create_request=create))
        return WatchStream(link, self._client.epoch, time.monotonic() + self._client.address.timeout_s)

    def _lose(self, cause: Exception) -> None:
        """Give up the stream, and note it if there has been none for too long."""
        self._drop()
        now_s = time.monotonic()
        if self._lost_at_s is None:
            self._lost_at_s, self._retry_at_s = now_s, now_s
        else:
            self._retry_at_s = now_s + REOPEN_PAUSE_S
        lost_s = now_s - self._lost_at_s
        if lost_s >= self._client.address.timeout_s:
            self._blind = StoreUnreachableError(
                f"the watch on {self._prefix!r} has had no connection to {self._client.url} "
                f"for {lost_s:.1f} s ({cause}); it goes on where it was once etcd answers"
            )

    def _drop(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _check_use(self) -> None:
        self._guard.check_use()
        if self.closed:
            raise StoreHandleError(f"the watch on {self._prefix!r} is closed; open another")
        if self._ended is not None:
            raise self._ended
