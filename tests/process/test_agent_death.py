"""An agent that is killed harms no worker: another one is started, and goes on with those that run."""

import os
import signal
from pathlib import Path

import psutil
import pytest
from agent_world import is_gone, wait_for
from elastic_world import Outcome
from nodes_world import SIZE, kill, serving

pytestmark = pytest.mark.process


def test_workers_train_on_without_their_agent_and_the_next_one_replaces_who_dies(
    tmp_path: Path, marks: Path, undisturbed: Outcome
) -> None:
    with serving(tmp_path) as job:
        job.run("--workers", "2", script=(*SIZE, "--marks", str(marks)))
        workers = job.settle("a", "a")
        agent = job.agent_pid("a")
        # Forked workers keep their parent's command line.
        forked = {job.worker_pid(worker) for worker in workers}
        children = [p.pid for p in psutil.Process(agent).children() if "elastane.agent.zygote" in p.cmdline()]
        (parent,) = set(children) - forked
        kill(agent)
        job.wait_event("agent_started", count=2)
        assert {job.wait_event("worker_adopted", worker=w).fields["worker"] for w in workers} == set(workers)
        wait_for("the end of the prepared process", lambda: is_gone(parent))
        job.wait_steps(3)
        assert job.members() == workers
        assert job.events("switched", generation=2) == []
        victim = sorted(workers)[0]
        kill(job.worker_pid(victim))
        exited = job.wait_event("worker_exited", worker=victim)
        assert (exited.fields["code"], exited.fields["fault"]) == (None, "machine")
        assert "no agent watched it" in str(exited.fields["meaning"])
        job.settle("a", "a")
        assert job.finish(marks) == undisturbed
        assert job.last_word()["phase"] == "finished"
        assert [e.fields["code"] for e in job.events("agent_died")] == [-signal.SIGKILL]


def test_a_worker_that_died_while_there_was_no_agent_is_found_and_replaced(
    tmp_path: Path, marks: Path, undisturbed: Outcome
) -> None:
    with serving(tmp_path) as job:
        job.run("--workers", "2", script=(*SIZE, "--marks", str(marks)))
        first, second = sorted(job.settle("a", "a"))
        pid, agent = job.worker_pid(second), job.agent_pid("a")
        os.kill(agent, signal.SIGSTOP)  # so that it cannot see the death
        kill(pid)
        kill(agent)
        exited = job.wait_event("worker_exited", worker=second)
        assert exited.fields["code"] is None
        assert job.wait_event("worker_adopted").fields["worker"] == first
        job.settle("a", "a")
        assert job.finish(marks) == undisturbed


def test_an_agent_that_is_told_to_stop_after_its_predecessors_death_stops_gracefully(
    tmp_path: Path, marks: Path
) -> None:
    with serving(tmp_path) as job:
        job.run("--workers", "2", script=(*SIZE, "--marks", str(marks)))
        job.settle("a", "a")
        kill(job.agent_pid("a"))
        job.commands["a"].send_signal(signal.SIGINT)
        assert job.commands["a"].wait(120) == 10, job.said("a")
        assert job.last_word()["saved"] is not None


def test_the_agent_of_a_killed_foreground_stops_the_job_and_saves_it(tmp_path: Path, marks: Path) -> None:
    with serving(tmp_path) as job:
        job.run("--workers", "1", "--orphan-grace", "1", script=(*SIZE, "--marks", str(marks)))
        job.settle("a")
        agent = job.agent_pid("a")
        job.commands["a"].kill()
        job.commands["a"].wait()
        job.wait_event("foreground_lost")
        wait_for("the agent's end", lambda: is_gone(agent))
        assert job.events("stopped")[-1].fields["path"]
