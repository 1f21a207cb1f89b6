"""One job over several machines, each a network namespace: it starts, is resized, and nodes come and go."""

import signal
from pathlib import Path

import pytest
from agent_world import DEADLINE_S, wait_for
from cluster import begin, cluster, kill_node
from elastic_world import Outcome
from network import why_not_possible

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(bool(reason := why_not_possible()), reason=reason or "possible"),
]


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


def test_the_node_that_made_the_job_and_leads_it_may_die(
    tmp_path: Path, marks: Path, undisturbed: Outcome
) -> None:
    with cluster(tmp_path, "a", "b") as (_, job):
        begin(job, marks, "a", "b", workers=2)
        members = job.settle("a", "b")
        leader = job.view().leader
        assert leader is not None
        kill_node(job, members[leader])
        (survivor,) = {"a", "b"} - {members[leader]}
        job.settle(survivor, survivor)
        assert job.view().leader in job.members()
        assert job.finish(marks) == undisturbed


def test_an_etcd_that_is_killed_and_back_within_a_lease_costs_nobody_anything(
    tmp_path: Path, marks: Path, undisturbed: Outcome
) -> None:
    with cluster(tmp_path, "a", "b") as (net, job):
        begin(job, marks, "a", "b", workers=2)
        before = job.settle("a", "b")
        net.stop_etcd()
        net.start_etcd()
        job.wait_steps(4)
        job.ask("scale", "job", "3", "--wait")
        assert before.items() <= job.members().items()
        assert job.finish(marks) == undisturbed
        assert job.events("switched", mode="recovery") == []
