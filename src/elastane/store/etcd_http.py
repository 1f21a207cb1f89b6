"""One HTTP connection to one member of etcd, on which nothing ever waits beyond a deadline.

Theory of operation
- h11 knows HTTP/1.1, this module owns the socket. All of it happens in the caller's thread, but for the
  search of a name (etcd_lookup.py): no thread of ours that a fork could leave behind, nothing that runs while
  training does.
- A deadline is a time of `time.monotonic`. It bounds the search for the address, the connection, the TLS
  handshake and each answer as a whole, not just every read.
- A connection answers one request after another, or becomes the stream of one watch.
- `LinkFailed.sent` says whether the member may have seen the request: only then may it have taken effect.
Knows nothing of what is asked, nor of other members.
"""

import socket
import ssl
import time
from dataclasses import dataclass

import h11

from elastane.model.errors import StoreAccessError, StoreAddressError
from elastane.store.etcd_address import Endpoint
from elastane.store.etcd_lookup import Address, book

READ_BYTES = 1 << 16
MIN_WAIT_S = 0.001
"""0 would mean not to wait at all, which no connection can live with."""
NOT_YET = (TimeoutError, BlockingIOError, ssl.SSLWantReadError)
"""What a socket raises that has nothing to read within its time."""
KEEPALIVE = (
    (socket.SO_KEEPALIVE, socket.SOL_SOCKET, 1),
    *(
        (getattr(socket, name), socket.IPPROTO_TCP, value)
        for name, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3))
        if hasattr(socket, name)
    ),
)
"""A member whose machine vanished is noticed by a quiet watch after some 11 s, if nobody calls meanwhile."""


class LinkFailed(Exception):
    """Report that a member did not answer, why, and whether it may have seen the request."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.sent = sent


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Hold a whole HTTP answer."""

    status: int
    body: bytes


class Link:
    """Be a connection to one member. Raises LinkFailed if there is none before the deadline.

    Raises StoreAddressError or StoreAccessError where a setting is wrong and no retry will help.
    """

    def __init__(self, endpoint: Endpoint, tls: ssl.SSLContext | None, deadline_s: float) -> None:
        self.endpoint = endpoint
        self._http = h11.Connection(h11.CLIENT)
        self._doubt = "; write etcds:// if it wants TLS" if tls is None else ""  # until it has answered once
        self._socket = _connect(endpoint, deadline_s)
        if tls is not None:
            try:
                # Anew: the socket still has the time that the connection could have taken.
                self._socket.settimeout(max(_left_s(deadline_s), MIN_WAIT_S))
                self._socket = tls.wrap_socket(self._socket, server_hostname=endpoint.host)
            except OSError as error:
                self.close()
                raise _explain_tls(endpoint, error, sent=False) from error

    def request(self, path: str, body: bytes, token: str, deadline_s: float) -> Answer:
        """Return the answer to a POST."""
        self.send(path, body, token, deadline_s)
        status, parts = 0, []
        while not isinstance(event := self._next_event(deadline_s), h11.EndOfMessage):
            if isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                parts.append(bytes(event.data))
            elif not isinstance(event, h11.InformationalResponse):
                raise LinkFailed("it closed the connection without an answer" + self._doubt, sent=True)
        self._doubt = ""
        answer = Answer(status=status, body=b"".join(parts))
        if self._http.states == {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}:
            self._http.start_next_cycle()
        return answer

    def send(self, path: str, body: bytes, token: str, deadline_s: float) -> None:
        """Send a POST without waiting for its answer."""
        headers = [("Host", str(self.endpoint)), ("Content-Length", str(len(body)))]
        if token:
            headers.append(("Authorization", token))
        request = h11.Request(method="POST", target=path, headers=headers)
        parts = (request, h11.Data(data=body), h11.EndOfMessage())
        try:
            data = b"".join(self._http.send(part) or b"" for part in parts)
            self._socket.settimeout(_left_s(deadline_s))
            self._socket.sendall(data)
        except (OSError, h11.LocalProtocolError) as error:
            raise self._fail(error) from error

    def read_event(self, deadline_s: float) -> object | None:
        """Return the next part of an answer as h11 has it, None if there was none before the deadline.

        A deadline in the past only takes what is there.
        """
        try:
            return self._next_event(deadline_s)
        except LinkFailed as failure:
            if isinstance(failure.__cause__, NOT_YET):
                return None
            raise

    def is_usable(self) -> bool:
        """Return whether the member has kept the idle connection open."""
        if self._http.our_state is not h11.IDLE:
            return False
        try:
            self._socket.settimeout(0)
            self._socket.recv(1)
        except NOT_YET:
            return True
        except OSError:
            return False
        return False  # closed, or an answer that nobody asked for

    def close(self) -> None:
        """Close this process's end; harmless if called twice."""
        self._socket.close()

    def _next_event(self, deadline_s: float) -> object:
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                self._socket.settimeout(_left_s(deadline_s))
                self._http.receive_data(self._socket.recv(READ_BYTES))
        except (OSError, h11.RemoteProtocolError) as error:
            raise self._fail(error) from error
        return event

    def _fail(self, error: Exception) -> Exception:
        if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLWantReadError):
            return _explain_tls(self.endpoint, error, sent=True)
        if isinstance(error, h11.RemoteProtocolError):
            is_closed = self._http.trailing_data == (b"", True)
            reason = "it closed the connection without an answer" if is_closed else "it does not speak HTTP"
            return LinkFailed(reason + self._doubt, sent=True)
        if isinstance(error, ConnectionError):
            return LinkFailed(_describe(error) + self._doubt, sent=True)
        return LinkFailed(_describe(error), sent=True)


def make_tls(ca: str | None, cert: str | None, key: str | None) -> ssl.SSLContext:
    """Return the TLS settings of an address. Raises StoreAccessError if a file cannot be used."""
    named = ca or "the machine's certificate authorities"
    try:
        context = ssl.create_default_context(cafile=ca)
        context.set_alpn_protocols(["http/1.1"])  # etcd's port speaks gRPC to whoever prefers HTTP/2
        if cert is not None:
            named = f"{cert} and {key}"
            context.load_cert_chain(cert, key, password=_refuse_password)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise StoreAccessError(
            f"the TLS files of the etcd store cannot be used: {named}: {_describe(error)}; "
            "give readable PEM files with ca=, cert= and key= in its URL"
        ) from error
    return context


def _refuse_password() -> str:
    raise ValueError("the key is encrypted; give one without a pass phrase that only you can read")


def _connect(endpoint: Endpoint, deadline_s: float) -> socket.socket:
    reason = "it has no address"
    addresses = _look_up(endpoint, deadline_s)
    for tried, (family, address) in enumerate(addresses):
        link = socket.socket(family, socket.SOCK_STREAM)
        try:
            # An even share: the first address of a host may lead nowhere, as IPv6 does in some networks.
            link.settimeout(max(_left_s(deadline_s) / (len(addresses) - tried), MIN_WAIT_S))
            link.connect(address)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for option, level, value in KEEPALIVE:
                link.setsockopt(level, option, value)
        except OSError as error:
            link.close()
            reason = _describe(error)
        else:
            return link
    raise LinkFailed(reason, sent=False)


def _look_up(endpoint: Endpoint, deadline_s: float) -> list[Address]:
    try:
        return book.look_up(endpoint.host, endpoint.port, max(deadline_s, time.monotonic() + MIN_WAIT_S))
    except TimeoutError as error:
        raise LinkFailed("its name could not be looked up in time", sent=False) from error
    except OSError as error:
        raise LinkFailed(f"its name is unknown ({_describe(error)})", sent=False) from error


def _explain_tls(endpoint: Endpoint, error: Exception, *, sent: bool) -> Exception:
    """Return the error for a failure of TLS: a wrong setting, or a member that is away."""
    text = str(error).lower()
    if isinstance(error, ssl.SSLCertVerificationError):
        return StoreAccessError(
            f"the certificate of etcd at {endpoint} is not to be trusted: {error.verify_message}; "
            "name its authority with ?ca=FILE in the store's URL, and the host as the certificate does"
        )
    if "wrong_version_number" in text or "http_request" in text or "record_layer" in text:
        return StoreAddressError(
            f"etcd at {endpoint} does not speak TLS; write etcd:// without ca=, cert= and key="
        )
    if "alert" in text:
        return StoreAccessError(
            f"etcd at {endpoint} does not accept our TLS client certificate ({error}); "
            "name one of its authority's with ?cert=FILE&key=FILE in the store's URL"
        )
    if "eof" in text or isinstance(error, ConnectionError):
        return LinkFailed("it ended the TLS connection; write etcd:// if it speaks no TLS", sent=sent)
    return LinkFailed(_describe(error), sent=sent)


def _left_s(deadline_s: float) -> float:
    return max(0.0, deadline_s - time.monotonic())


def _describe(error: Exception) -> str:
    if isinstance(error, NOT_YET):
        return "it did not answer in time"
    return str(getattr(error, "strerror", None) or error).lower()
