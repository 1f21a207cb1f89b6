"""Ask a cluster: which member, when to try another, when to log in, and what a failure means.

Theory of operation
- Each call has one deadline, `timeout_s` after it began. It is asked of the member in use, then once of each
  other; while there are others, a member gets half of the time that is left, so that a frozen one leaves
  some for the next.
- A call that changes nothing if it is made twice (a read, a renewal, a login) goes on to the next member
  whatever happened. A transaction does so only if it was certainly not seen: no connection, or turned away
  for its login. If it may have been seen, StoreUnreachableError says so and the caller decides.
- An idle connection is looked at before it is used, so that a member that has been restarted since costs
  nothing but a new connection, even for transactions.
- `newest_revision` is that of the last read or transaction; etcd never goes back unless somebody replaces it.
- `epoch` grows whenever the member in use has failed: watches that hang on it then move too.
Knows nothing of keys, leases and watches.
"""

import logging
import ssl
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec

from elastane.model.errors import StoreError, StoreUnreachableError
from elastane.store.etcd_address import EtcdAddress
from elastane.store.etcd_errors import UNAVAILABLE, UNIMPLEMENTED, Refusal, to_store_error
from elastane.store.etcd_http import Answer, Link, LinkFailed, make_tls
from elastane.store.etcd_keys import KeySpace
from elastane.store.etcd_messages import (
    AuthenticateReply,
    AuthenticateRequest,
    ErrorReply,
    RangeReply,
    RangeRequest,
    decode,
)

HTTP_OK = 200

_log = logging.getLogger(__name__)

T = TypeVar("T")


class EtcdClient:
    """Send requests to a cluster. For one thread; connects when first asked."""

    def __init__(self, address: EtcdAddress) -> None:
        self.address = address
        self.epoch = 0
        self.heard_at_s = time.monotonic()
        self.newest_revision = 0
        self._tls = _make_context(address)
        self._current = 0
        self._link: Link | None = None
        self._token = ""
        self._is_logged_in = False

    @property
    def url(self) -> str:
        """Return the address without secrets, for messages."""
        return self.address.url

    def call(self, path: str, request: msgspec.Struct, kind: type[T], *, repeatable: bool = True) -> T:
        """Return the reply to a request.

        `repeatable`: the request may be made twice without harm.
        Raises StoreUnreachableError after `timeout_s` at most, and other StoreErrors for what etcd refuses.
        """
        body = msgspec.json.encode(request)
        deadline_s = time.monotonic() + self.address.timeout_s

        def attempt(share_s: float) -> T:
            # What cannot be asked of the next member gets all the time for its answer.
            answer_by_s = share_s if repeatable else deadline_s
            return self._read(self._ask_logged_in(path, body, share_s, answer_by_s), kind)

        return self._try_members(attempt, deadline_s, repeatable)

    def open_stream(self, path: str, request: msgspec.Struct) -> Link:
        """Send a request whose answer is a stream, on a connection of its own; does not wait for the answer.

        Raises StoreErrors like `call`.
        """
        body = msgspec.json.encode(request)

        def attempt(share_s: float) -> Link:
            self._log_in(share_s)
            link = Link(self.address.endpoints[self._current], self._tls, share_s)
            try:
                link.send(path, body, self._token, share_s)
            except BaseException:
                link.close()
                raise
            return link

        return self._try_members(attempt, time.monotonic() + self.address.timeout_s, repeatable=True)

    def read_revision(self, keys: KeySpace) -> int:
        """Return the revision of the cluster, not just of one member. Raises StoreErrors like `call`."""
        first, beyond = keys.bounds("")
        request = RangeRequest(key=first, range_end=beyond, limit=1, keys_only=True)
        self.newest_revision = self.call("/v3/kv/range", request, RangeReply).header.revision
        return self.newest_revision

    def forget_login(self) -> None:
        """Log in anew before the next request."""
        self._token = ""
        self._is_logged_in = False

    def give_up_member(self) -> None:
        """Use the next member from now on; of a single one, a new connection."""
        self.epoch += 1
        self.close()
        self._current = (self._current + 1) % len(self.address.endpoints)

    def close(self) -> None:
        """Close the connection."""
        if self._link is not None:
            self._link.close()
            self._link = None

    # --- which member ------------------------------------------------------------------------------------

    def _try_members(self, attempt: Callable[[float], T], deadline_s: float, repeatable: bool) -> T:
        """Return what an attempt with one member returns; it is given the time by which to give up."""
        failures: dict[str, str] = {}
        for share_s in self._choose_members(deadline_s):
            try:
                return attempt(share_s)
            except LinkFailed as failure:
                self._note_failure(failures, failure.reason)
                if failure.sent and not repeatable:
                    raise self._unreachable(failures, seen=True) from failure
            except Refusal as refusal:
                if not refusal.is_passing:
                    raise to_store_error(refusal, self.url) from refusal
                self._note_failure(failures, refusal.message)
                if not repeatable:
                    raise self._unreachable(failures, seen=True) from refusal
        raise self._unreachable(failures, seen=False)

    def _choose_members(self, deadline_s: float) -> Iterator[float]:
        """Yield a deadline for the member in use, after a failure for the next, until all had their turn.

        A kept connection that breaks earns its member a second turn: it may just have been restarted.
        """
        turns = len(self.address.endpoints)
        if self._link is not None:
            if self._link.is_usable():
                turns += 1
            else:
                self.close()
        while turns and (now_s := time.monotonic()) < deadline_s:
            turns -= 1
            others = turns > 0 and len(self.address.endpoints) > 1
            yield now_s + (deadline_s - now_s) / 2 if others else deadline_s

    def _note_failure(self, failures: dict[str, str], reason: str) -> None:
        failures[str(self.address.endpoints[self._current])] = reason
        self.give_up_member()

    def _unreachable(self, failures: dict[str, str], *, seen: bool) -> StoreUnreachableError:
        reasons = ", ".join(f"{member}: {reason}" for member, reason in failures.items())
        effect = (
            "the transaction may or may not have taken effect"
            if seen
            else "check that etcd runs there, its address, and the network"
        )
        return StoreUnreachableError(
            f"the store {self.url} does not answer ({reasons or 'no time was left'}); {effect}"
        )

    # --- asking one --------------------------------------------------------------------------------------

    def _ask_logged_in(self, path: str, body: bytes, connect_by_s: float, answer_by_s: float) -> Answer:
        self._log_in(connect_by_s)
        answer = self._ask(path, body, connect_by_s, answer_by_s)
        if self.address.credentials and answer.status != HTTP_OK and to_refusal(answer).is_stale_login:
            self.forget_login()  # tokens end with the member that gave them, or when users change
            self._log_in(connect_by_s)
            answer = self._ask(path, body, connect_by_s, answer_by_s)
        return answer

    def _log_in(self, deadline_s: float) -> None:
        credentials = self.address.credentials
        if credentials is None or self._is_logged_in:
            return
        request = AuthenticateRequest(name=credentials.user, password=credentials.password)
        try:
            answer = self._ask("/v3/auth/authenticate", msgspec.json.encode(request), deadline_s, deadline_s)
            self._token = self._read(answer, AuthenticateReply).token
        except LinkFailed as failure:  # what was to follow has not been sent
            raise LinkFailed(failure.reason, sent=False) from failure
        except Refusal as refusal:
            if refusal.is_passing:
                raise LinkFailed(refusal.message, sent=False) from refusal
            if not refusal.is_auth_off:
                raise
            _log.warning("%s knows no users; its user and password are not used", self.url)
        self._is_logged_in = True

    def _ask(self, path: str, body: bytes, connect_by_s: float, answer_by_s: float) -> Answer:
        if self._link is not None and not self._link.is_usable():
            self.close()
        if self._link is None:
            self._link = Link(self.address.endpoints[self._current], self._tls, connect_by_s)
        answer = self._link.request(path, body, self._token, answer_by_s)
        self.heard_at_s = time.monotonic()
        return answer

    def _read(self, answer: Answer, kind: type[T]) -> T:
        if answer.status != HTTP_OK:
            raise to_refusal(answer)
        try:
            return decode(answer.body, kind)
        except msgspec.MsgspecError as error:
            raise StoreError(f"the store {self.url} answered what cannot be read: {error}") from error


def to_refusal(answer: Answer) -> Refusal:
    """Return what an answer other than HTTP's 200 says."""
    try:
        reply = decode(answer.body, ErrorReply)
    except msgspec.MsgspecError:
        code = UNAVAILABLE if answer.status >= 500 else UNIMPLEMENTED
        text = answer.body[:200].decode(errors="replace").strip()
        return Refusal(code, f"HTTP {answer.status} {text}")
    return Refusal(reply.code, reply.message)


def _make_context(address: EtcdAddress) -> ssl.SSLContext | None:
    if address.tls is None:
        return None
    ca, cert, key = (
        None if path is None else str(path) for path in (address.tls.ca, address.tls.cert, address.tls.key)
    )
    return make_tls(ca, cert, key)
