"""One job over several machines, each a network namespace: it starts, is resized, loses nodes and cables."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from agent_world import DEADLINE_S, wait_for
from elastic_world import Outcome
from network import Network, network, why_not_possible
from nodes_world import SIZE, NodesJob, kill, serving

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(bool(reason := why_not_possible()), reason=reason or "possible"),
]


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


def test_a_job_trains_on_two_nodes_is_scaled_and_survives_the_loss_of_one(
    tmp_path: Path, marks: Path, undisturbed: Outcome
) -> None:
    with cluster(tmp_path, "a", "b", "c") as (_, job):
        begin(job, marks, "a", "b", workers=2)
        job.settle("a", "b")
        addresses = {str(node): agent.address for node, agent in job.view().agents.items()}
        assert addresses == {"a": "10.77.1.2", "b": "10.77.2.2"}
        job.ask("scale", "job", "4", "--wait")
        assert sorted(job.members().values()) == ["a", "a", "b", "b"]
        job.serve("c", "--devices", "2")
        wait_for("the agent of c", lambda: "c" in job.view().agents)
        kill_node(job, "b")
        job.settle("a", "a", "c", "c")
        job.wait_steps(2)
        assert job.finish(marks) == undisturbed
        assert job.last_word("a")["phase"] == "finished"


def test_a_node_whose_cable_is_pulled_is_replaced_and_comes_back_when_it_is_mended(
    tmp_path: Path, marks: Path, undisturbed: Outcome
) -> None:
    with cluster(tmp_path, "a", "b") as (net, job):
        begin(job, marks, "a", "b", workers=3)
        before = job.settle("a", "a", "b")
        net.cut("b")
        job.settle("a", "a")
        job.wait_steps(2)
        net.heal()
        after = job.settle("a", "a", "b")
        assert {w for w, node in after.items() if node == "a"} == {w for w, n in before.items() if n == "a"}
        assert not {w for w, node in after.items() if node == "b"} & set(before)
        assert job.finish(marks) == undisturbed


def test_a_node_that_is_told_to_stop_leaves_the_job_which_goes_on_and_may_come_back(
    tmp_path: Path, marks: Path, undisturbed: Outcome
) -> None:
    with cluster(tmp_path, "a", "b") as (_, job):
        begin(job, marks, "a", "b", workers=2)
        job.settle("a", "b")
        job.commands["b"].send_signal(signal.SIGTERM)
        job.settle("a", "a")
        assert job.commands["b"].wait(DEADLINE_S) == 0
        assert job.said("b").splitlines()[-1] == (
            f"job {job.info.job}: node b has left; the job goes on without it"
        )
        assert not job.events("dismissed")
        job.serve("b", "--devices", "2")
        wait_for("the agent of b", lambda: "b" in job.view().agents)
        job.ask("scale", "job", "3", "--wait")
        assert sorted(job.members().values()) == ["a", "a", "b"]
        assert job.finish(marks) == undisturbed
        assert job.events("switched", mode="recovery") == []
