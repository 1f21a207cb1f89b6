"""A member of etcd that answers what a test tells it to: a script, one step for each request."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

CLOSE = "close"  # reads the request, then closes the connection
HANG = "hang"  # reads the request, and never answers
GARBAGE = "garbage"  # answers what is not HTTP


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One request as it came."""

    path: str
    token: str
    body: dict[str, object]


def answer(body: object, status: int = 200) -> bytes:
    """Return a whole HTTP answer; text is sent as it is."""
    text = body if isinstance(body, str) else json.dumps(body)
    return f"HTTP/1.1 {status} Whatever\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode()


def refuse(code: int, message: str) -> bytes:
    """Return etcd's way to refuse."""
    return answer({"error": message, "code": code, "message": message}, status=400)


def stream(*lines: object, end: bool = False) -> bytes:
    """Return the beginning of an answer without end: each line is a part of its own."""
    parts = [json.dumps(line) + "\n" for line in lines]
    chunks = "".join(f"{len(part):x}\r\n{part}\r\n" for part in parts) + ("0\r\n\r\n" if end else "")
    return f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}".encode()


@dataclass(kw_only=True)
class FakeMember:
    """Serve one connection at a time; `script` is used up step by step, its last step for ever."""

    script: list[bytes | str]
    seen: list[Seen] = field(default_factory=list)
    port: int = 0
    _listener: socket.socket = field(default_factory=socket.socket)
    _links: list[socket.socket] = field(default_factory=list)

    def start(self) -> None:
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen()
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for link in self._links:
            link.close()

    def _serve(self) -> None:
        while True:
            try:
                link, _ = self._listener.accept()
            except OSError:
                return  # stopped
            self._links.append(link)
            threading.Thread(target=self._answer_all, args=(link,), daemon=True).start()

    def _answer_all(self, link: socket.socket) -> None:
        try:
            with link.makefile("rb") as reader:
                while self._read(reader.readline, reader.read):
                    step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
                    if step == CLOSE:
                        link.shutdown(socket.SHUT_RDWR)
                        return
                    if step == GARBAGE:
                        link.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
                    elif isinstance(step, bytes):
                        link.sendall(step)
        except OSError:
            return  # the client has gone, or the test is over

    def _read(self, readline: object, read: object) -> bool:
        assert callable(readline)
        assert callable(read)
        path = readline().decode().split(" ")[1:2]
        headers = {}
        while line := readline().strip():
            name, _, value = line.decode().partition(": ")
            headers[name.lower()] = value
        if not path:
            return False
        body = json.loads(read(int(headers["content-length"])))
        self.seen.append(Seen(path=path[0], token=headers.get("authorization", ""), body=body))
        return True


@contextmanager
def fake_member(*script: bytes | str) -> Iterator[FakeMember]:
    """Run a member for the time of the block."""
    member = FakeMember(script=list(script))
    member.start()
    try:
        yield member
    finally:
        member.stop()
