"""The answer to a watch as replies: reads an HTTP answer that never ends, line by line.

Knows nothing of what the replies mean, nor of reconnecting.
"""

import math

import h11
import msgspec

from elastane.store.etcd_client import HTTP_OK, to_refusal
from elastane.store.etcd_errors import Refusal
from elastane.store.etcd_http import Answer, Link, LinkFailed
from elastane.store.etcd_messages import StreamLine, WatchReply, decode


class WatchStream:
    """Read the replies on the connection of one watch.

    `epoch` is the client's when it was opened, `accept_until_s` the time by which its first reply is due.
    """

    def __init__(self, link: Link, epoch: int, accept_until_s: float) -> None:
        self.epoch = epoch
        self.accept_until_s = accept_until_s
        self._link = link
        self._status = 0
        self._rest = b""

    def read(self, until_s: float) -> list[WatchReply]:
        """Return the next replies, none if nothing comes until a time; one in the past takes what is there.

        Raises LinkFailed if the stream has ended, Refusal if etcd will not have it.
        """
        while (event := self._link.read_event(until_s)) is not None:
            match event:
                case h11.Response(status_code=status):
                    self._status = status
                case h11.Data(data=data):
                    if replies := self._split(bytes(data)):
                        self.accept_until_s = math.inf
                        return replies
                case _:
                    self._check_status()
                    raise LinkFailed("it ended the watch", sent=True)
        return []

    def close(self) -> None:
        """End the watch."""
        self._link.close()

    def _split(self, data: bytes) -> list[WatchReply]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if self._status != HTTP_OK:  # its body is one error, and complete when the answer ends
            self._rest = b"\n".join([*lines, self._rest])
            return []
        return [self._decode(line) for line in lines if line.strip()]

    def _decode(self, line: bytes) -> WatchReply:
        try:
            parsed = decode(line, StreamLine)
        except msgspec.MsgspecError as error:
            raise LinkFailed(f"it sent a line that cannot be read ({error})", sent=True) from error
        if parsed.error is not None:
            code = parsed.error.code if parsed.error.grpc_code is None else parsed.error.grpc_code
            raise Refusal(code, parsed.error.message)
        return parsed.result or WatchReply()

    def _check_status(self) -> None:
        if self._status != HTTP_OK:
            raise to_refusal(Answer(status=self._status, body=self._rest))
