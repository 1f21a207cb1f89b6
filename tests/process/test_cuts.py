"""Cables between the machines of one job that are cut: wholly, in one direction, and mended again."""

from pathlib import Path

import pytest
from cluster import begin, cluster
from elastic_world import Outcome
from network import why_not_possible

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(bool(reason := why_not_possible()), reason=reason or "possible"),
]


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


@pytest.mark.parametrize(("source", "target"), [("b", "hub"), ("hub", "b")], ids=["asks", "hears"])
def test_a_node_that_reaches_the_store_in_one_direction_only_ends_its_workers_and_the_others_go_on(
    source: str, target: str, tmp_path: Path, marks: Path, undisturbed: Outcome
) -> None:
    with cluster(tmp_path, "a", "b") as (net, job):
        begin(job, marks, "a", "b", workers=2)
        before = job.settle("a", "b")
        net.drop(source, target)
        after = job.settle("a", "a")
        assert {w for w, node in before.items() if node == "a"} < after.keys()
        job.wait_steps(2)
        net.heal()
        assert job.finish(marks) == undisturbed


def test_two_nodes_of_which_one_does_not_hear_the_other_go_on_with_one_of_them(
    tmp_path: Path, marks: Path, undisturbed: Outcome
) -> None:
    with cluster(tmp_path, "a", "b") as (net, job):
        begin(job, marks, "a", "b", workers=2)
        job.settle("a", "b")
        net.drop("a", "b")
        job.wait_event("told_to_quit")
        job.wait_steps(2)
        net.heal()
        assert job.finish(marks) == undisturbed
