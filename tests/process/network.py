"""Machines of a test: network namespaces around a hub, with cables that can be cut, and an etcd in the hub.

    a (10.77.1.2) --- hub (10.77.0.1, etcd, forwards) --- b (10.77.2.2) ...

Nothing of the machine's own network is touched. Needs root and network namespaces.
"""

import contextlib
import ctypes
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from agent_world import DEADLINE_S
from etcd_server import find_etcd

CLONE_NEWNET = 0x40000000  # linux/sched.h
HUB_ADDRESS = "10.77.0.1"
ETCD_PORT = 2379
ETCD_FLAGS = (
    # Leases from 1 s up, and little load: see tests/contract/etcd_server.py.
    *("--heartbeat-interval", "20", "--election-timeout", "200", "--unsafe-no-fsync", "--log-level", "warn"),
    *("--listen-client-urls", f"http://0.0.0.0:{ETCD_PORT}"),
    *("--advertise-client-urls", f"http://{HUB_ADDRESS}:{ETCD_PORT}"),
    *("--listen-peer-urls", "http://127.0.0.1:2380"),
)


def why_not_possible() -> str:
    """Say why this machine cannot have machines of a test; "" if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "the command `ip` is missing (Debian/Ubuntu: apt-get install iproute2)"
    trial = f"elastane-trial-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", trial], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        return f"network namespaces cannot be made: {made.stderr.strip()}"
    ip("netns", "del", trial)
    return ""


def ip(*words: str) -> None:
    """Run `ip`; it must succeed."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (words, done.stderr)


@dataclass
class Network:
    """A hub and its nodes."""

    folder: Path
    nodes: tuple[str, ...]
    _etcd: "subprocess.Popen[bytes] | None" = None
    _cuts: list[tuple[str, ...]] = field(default_factory=list)

    @property
    def store_url(self) -> str:
        return f"etcd://{HUB_ADDRESS}:{ETCD_PORT}/test"

    def namespace(self, name: str) -> str:
        return f"elastane-{os.getpid()}-{name}"

    def address(self, node: str) -> str:
        return f"10.77.{self.nodes.index(node) + 1}.2"

    def prefix(self, node: str) -> tuple[str, ...]:
        """Return what a command begins with that is to run on a node."""
        return ("ip", "netns", "exec", self.namespace(node))

    def build(self) -> None:
        hub = self.namespace("hub")
        for name in ("hub", *self.nodes):
            ip("netns", "add", self.namespace(name))
            ip("-n", self.namespace(name), "link", "set", "lo", "up")
        ip("-n", hub, "address", "add", f"{HUB_ADDRESS}/32", "dev", "lo")
        # What is forbidden comes before what is local, so that the way to the hub itself can be cut, too.
        ip("-n", hub, "rule", "add", "pref", "1000", "lookup", "local")
        ip("-n", hub, "rule", "del", "pref", "0")
        with self.inside("hub"):
            Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        for number, node in enumerate(self.nodes, start=1):
            name, cable = self.namespace(node), f"cable{number}"
            ip("link", "add", "up0", "netns", name, "type", "veth", "peer", "name", cable, "netns", hub)
            ip("-n", hub, "address", "add", f"10.77.{number}.1/24", "dev", cable)
            ip("-n", hub, "link", "set", cable, "up")
            ip("-n", name, "address", "add", f"10.77.{number}.2/24", "dev", "up0")
            ip("-n", name, "link", "set", "up0", "up")
            ip("-n", name, "route", "add", "default", "via", f"10.77.{number}.1")

    def tear_down(self) -> None:
        self.stop_etcd()
        for name in ("hub", *self.nodes):
            subprocess.run(["ip", "netns", "del", self.namespace(name)], capture_output=True, check=False)

    @contextlib.contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """Let the calling thread be on a machine: sockets made within the block are its."""
        own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            other = os.open(f"/var/run/netns/{self.namespace(name)}", os.O_RDONLY)
            try:
                _enter(other)
            finally:
                os.close(other)
            try:
                yield
            finally:
                _enter(own)
        finally:
            os.close(own)

    # --- the store -----------------------------------------------------------------------------------

    def start_etcd(self) -> None:
        data = self.folder / "etcd"
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith(("ETCD_", "ELASTANE_"))
        }
        with (self.folder / "etcd.log").open("ab") as log:
            self._etcd = subprocess.Popen(
                [*self.prefix("hub"), str(find_etcd()), "--data-dir", str(data), *ETCD_FLAGS],
                env=environment,
                stdout=log,
                stderr=log,
            )
        deadline_s = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline_s:
            with self.inside("hub"), contextlib.suppress(OSError):
                socket.create_connection((HUB_ADDRESS, ETCD_PORT), 1.0).close()
                return
            assert self._etcd.poll() is None, (self.folder / "etcd.log").read_text()
            time.sleep(0.02)
        raise AssertionError("etcd did not start")

    def stop_etcd(self) -> None:
        if self._etcd is not None:
            self._etcd.kill()
            self._etcd.wait()
            self._etcd = None

    # --- cables --------------------------------------------------------------------------------------

    def drop(self, source: str, target: str) -> None:
        """Lose all packets from one machine to another, in this direction only and without a word."""
        rule = ("from", self._place(source), "to", self._place(target), "blackhole")
        ip("-n", self.namespace("hub"), "rule", "add", "pref", "10", *rule)
        self._cuts.append(rule)

    def cut(self, node: str) -> None:
        """Pull a node's cable: nothing comes or goes."""
        for rule in (("from", self.address(node), "blackhole"), ("to", self.address(node), "blackhole")):
            ip("-n", self.namespace("hub"), "rule", "add", "pref", "10", *rule)
            self._cuts.append(rule)

    def heal(self) -> None:
        """Let all packets through again."""
        for rule in self._cuts:
            ip("-n", self.namespace("hub"), "rule", "del", "pref", "10", *rule)
        self._cuts.clear()

    def _place(self, name: str) -> str:
        return HUB_ADDRESS if name == "hub" else self.address(name)


@contextlib.contextmanager
def network(folder: Path, *nodes: str) -> Iterator[Network]:
    """Give machines and a store that all of them reach; in the end nothing is left of them."""
    made = Network(folder, nodes)
    try:
        made.build()
        made.start_etcd()
        yield made
    finally:
        made.tear_down()


def _enter(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
