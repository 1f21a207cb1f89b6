"""What an administrator does to an etcd: certificates, users, a cluster of three. For the tests."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import trustme
from etcd_server import EtcdServer, find_free_ports

from elastane.store.etcd_address import parse_address
from elastane.store.etcd_client import EtcdClient


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """PEM files of one authority: for 127.0.0.1 as a server, and for a client."""

    ca: Path
    server: Path
    client: Path


def make_certificates(folder: Path) -> Certificates:
    folder.mkdir()
    authority = trustme.CA()
    files = Certificates(ca=folder / "ca.pem", server=folder / "server.pem", client=folder / "client.pem")
    authority.cert_pem.write_to_path(str(files.ca))
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(files.server))
    client = authority.issue_cert("worker@example.org")
    client.private_key_and_cert_chain_pem.write_to_path(str(files.client))
    return files


class Order(msgspec.Struct, omit_defaults=True):
    """A request of etcd's administration."""

    name: str = ""
    password: str = ""
    user: str = ""
    role: str = ""
    perm: Mapping[str, object] | None = None


def administer(url: str, *orders: tuple[str, Order]) -> None:
    client = EtcdClient(parse_address(url, {}))
    for path, order in orders:
        client.call(f"/v3/auth/{path}", order, dict, repeatable=False)
    client.close()


def enable_users(server: EtcdServer) -> None:
    """Turn authentication on: root/root-secret may do all, worker/worker-secret what is under `team/`."""
    team = {"permType": "READWRITE", "key": b"team/", "range_end": b"team0"}
    administer(
        f"etcd://{server.host}",
        ("user/add", Order(name="root", password="root-secret")),
        ("user/grant", Order(user="root", role="root")),
        ("role/add", Order(name="team")),
        ("role/grant", Order(name="team", perm=team)),
        ("user/add", Order(name="worker", password="worker-secret")),
        ("user/grant", Order(user="worker", role="team")),
        ("enable", Order()),
    )


@contextlib.contextmanager
def running_cluster(folder: Path) -> Iterator[list[EtcdServer]]:
    """Run three members for the time of the block."""
    ports = find_free_ports(6)
    peers = {f"member{number}": f"http://127.0.0.1:{ports[3 + number]}" for number in range(3)}
    listed = ",".join(f"{name}={url}" for name, url in peers.items())
    servers = []
    for number, name in enumerate(peers):
        (folder / name).mkdir()
        server = EtcdServer(folder / name, arguments=["--name", name, "--initial-cluster", listed])
        server.port, server.peer_port = ports[number], ports[3 + number]
        servers.append(server)
    with contextlib.ExitStack() as stack:
        for server in servers:
            stack.callback(server.kill)
            server.spawn()
        for server in servers:
            assert server.is_up()
        yield servers
