"""A job on several machines of a test, each a network namespace, that meet in an etcd."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from network import Network, network
from nodes_world import SIZE, NodesJob, kill, serving


@contextmanager
def cluster(folder: Path, *nodes: str) -> Iterator[tuple[Network, NodesJob]]:
    with network(folder, *nodes) as net:
        prefixes = {node: net.prefix(node) for node in nodes}
        with serving(folder, net.store_url, **prefixes) as job:
            job.reach = lambda: net.inside("hub")
            yield net, job


def begin(job: NodesJob, marks: Path, *nodes: str, workers: int, flags: tuple[str, ...] = ()) -> None:
    """Run a job on all nodes, the first of which makes it, and wait until it trains there."""
    script = (*SIZE, "--marks", str(marks))
    job.run(
        *("--nodes", str(len(nodes)), "--workers", f"{workers}:{workers}", "--devices", "2", *flags),
        script=script,
        node=nodes[0],
    )
    assert job.info.script
    for node in nodes[1:]:
        job.serve(node, "--devices", "2")


def kill_node(job: NodesJob, node: str) -> None:
    """End all processes of a node at once: agent, workers, commands."""
    pids = [job.agent_pid(node), *(m.pid for m in job.view().members.values() if m.node == node)]
    job.commands[node].kill()
    for pid in pids:
        kill(pid)
    job.commands.pop(node).wait()
