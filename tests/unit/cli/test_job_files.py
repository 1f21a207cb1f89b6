"""Commands on a machine that has only a part of a job's files, or none."""

import shutil
from pathlib import Path

import pytest
from cli_world import A, World

from elastane.cli.exits import Exit
from elastane.cli.folder import describe_places, find_folder
from elastane.cli.home import Home
from elastane.core.view import encode
from elastane.model.ids import DeviceId, NodeId
from elastane.model.records import AgentRecord, CheckpointPlan, JobInfo, JobKeys, JobPhase, Launch
from elastane.observe.events import EVENTS_FILE, Event

N0, N1 = NodeId("n0"), NodeId("n1")


def agent(node: NodeId, directory: str) -> AgentRecord:
    return AgentRecord(node=node, pid=1, devices=(DeviceId("cpu:0"),), directory=directory)


@pytest.fixture
def info(world: World) -> JobInfo:
    """A job that was made elsewhere: its folder is not to be seen here; agents on n0 and n1 have theirs."""
    made = world.train()
    shutil.rmtree(made.directory)
    keys = JobKeys(made.job)
    elsewhere = JobInfo(
        job=made.job,
        name=made.name,
        script=made.script,
        directory=f"/elsewhere/jobs/{made.job}",
        created_at_s=made.created_at_s,
        node=N0,
    )
    world.put(
        (keys.info, elsewhere),
        (keys.agent(N0), agent(N0, elsewhere.directory)),
        (keys.agent(N1), agent(N1, f"/other/jobs/{made.job}")),
    )
    return elsewhere


def make_own_folder(world: World, info: JobInfo) -> Path:
    folder = world.home.path / "jobs" / info.job
    (folder / "logs").mkdir(parents=True)
    return folder


def test_a_folder_is_found_where_the_job_was_made_or_where_this_node_keeps_its_own(tmp_path: Path) -> None:
    home = Home(path=tmp_path / "home")
    info = JobInfo(
        job="j1",  # type: ignore[arg-type]
        name="j",
        script="s.py",
        directory=str(tmp_path / "made" / "j1"),
        created_at_s=0.0,
    )
    assert find_folder(info, home) is None
    own = home.path / "jobs" / "j1"
    own.mkdir(parents=True)
    assert find_folder(info, home) == own
    made = Path(info.directory)
    made.mkdir(parents=True)
    assert find_folder(info, home) == made


def test_the_places_of_a_jobs_files_are_told_but_for_the_one_at_hand() -> None:
    info = JobInfo(job="j", name="j", script="s.py", directory="/a/j", created_at_s=0.0)  # type: ignore[arg-type]
    assert describe_places(info, {}) == "They lie in /a/j on the machine where the job was made"
    agents = {N1: agent(N1, "/b/j"), N0: agent(N0, "/a/j")}
    assert describe_places(info, agents, beside=Path("/a/j")) == "They lie in /b/j on node n1"
    assert describe_places(info, {}, beside=Path("/a/j")) == ""
    named = JobInfo(job="j", name="j", script="s.py", directory="/a/j", created_at_s=0.0, node=N0)  # type: ignore[arg-type]
    assert describe_places(named, agents) == "They lie in /a/j on node n0 and in /b/j on node n1"


@pytest.mark.parametrize(
    ("command", "what"),
    [
        (("events",), "events"),
        (("logs",), "logs"),
        (("joins",), "events"),
        (("checkpoints",), "checkpoints"),
        (("chaos",), "events and the loss curve"),
    ],
)
def test_a_command_that_needs_files_which_lie_elsewhere_says_where_and_what_works_here(
    world: World, info: JobInfo, command: tuple[str, ...], what: str
) -> None:
    result = world.elastane(*command, "digits")
    assert (result.code, result.out, result.err) == (
        Exit.ENVIRONMENT,
        "",
        f"elastane: the {what} of job {info.job} are not on this machine. They lie in {info.directory} on "
        f"node n0 and in /other/jobs/{info.job} on node n1: give the command there (or name the home of this "
        "node's agent with --home or ELASTANE_HOME). What the store knows is here, too: "
        f"`elastane show {info.job}`\n",
    )


def test_a_job_is_shown_from_the_store_alone_and_that_is_said(world: World, info: JobInfo) -> None:
    result = world.elastane("show", "digits", "--json")
    assert (result.code, result.json["step"], result.json["events"]) == (0, 41, [])
    assert result.err == (
        "shown is what the store knows; events and loss curve are not on this machine. "
        f"They lie in {info.directory} on node n0 and in /other/jobs/{info.job} on node n1\n"
    )
    jobs = world.elastane("ps", "--json").json["jobs"]
    assert [(job["job"], job["step"]) for job in jobs] == [(info.job, 41)]


def test_a_node_that_keeps_files_of_its_own_shows_those_and_says_that_there_are_more(
    world: World, info: JobInfo
) -> None:
    folder = make_own_folder(world, info)
    event = Event(at_s=1000.5, kind="leader", source=A, fields={"worker": A})
    (folder / EVENTS_FILE).write_bytes(encode(event) + b"\n")
    (folder / "logs" / "w7.log").write_text("hello\n")
    more = (
        "this is what was written on this machine; other nodes have more. "
        f"They lie in {info.directory} on node n0 and in /other/jobs/{info.job} on node n1\n"
    )
    result = world.elastane("events", "digits")
    assert (result.code, result.out, result.err) == (0, "00:16:40.5  aaaa          aaaa leads\n", more)
    result = world.elastane("logs", "digits", "-w", "w7")
    assert (result.code, result.out, result.err) == (0, "hello\n", more)
    assert world.elastane("joins", "digits").err == more
    shown = world.elastane("show", "digits", "--json")
    assert ([event["kind"] for event in shown.json["events"]], shown.err) == (["leader"], "")


def test_an_empty_folder_is_no_job_in_which_nothing_happened(world: World, info: JobInfo) -> None:
    folder = make_own_folder(world, info)
    places = f"They lie in {info.directory} on node n0 and in /other/jobs/{info.job} on node n1\n"
    result = world.elastane("events", "digits")
    assert (result.code, result.out, result.err) == (
        0,
        "",
        f"no event was written in {folder}. {places}",
    )
    assert world.elastane("logs", "digits").err == f"no log was written in {folder}. {places}"


def test_checkpoints_at_a_place_that_all_reach_are_listed_anywhere(
    world: World, info: JobInfo, tmp_path: Path
) -> None:
    url = str(tmp_path / "shared")
    world.put((JobKeys(info.job).launch, Launch(checkpoints=CheckpointPlan(url=url))))
    result = world.elastane("checkpoints", "digits", "--json")
    assert (result.code, result.json["checkpoints"]) == (0, [])


def test_a_job_is_not_resumed_where_its_state_is_not_and_the_node_that_has_it_is_named(
    world: World, info: JobInfo
) -> None:
    world.end(info, JobPhase.STOPPED, saved="/other/jobs/x/checkpoints/g1", node=N1)
    result = world.elastane("resume", "digits")
    assert (result.code, result.out) == (Exit.ENVIRONMENT, "")
    assert f"the checkpoints of job {info.job} are not on this machine" in result.err
    folder = make_own_folder(world, info)
    result = world.elastane("resume", "digits")
    assert (result.code, result.out, result.err) == (
        Exit.ENVIRONMENT,
        "",
        f"elastane: the state of job {info.job} was saved in /other/jobs/x/checkpoints/g1 on node n1, and "
        f"{folder}/checkpoints here holds none: resume it there, or copy that folder to "
        f"{folder}/checkpoints\n",
    )


def test_a_job_in_a_file_of_this_machine_is_not_resumed_for_others(world: World) -> None:
    info = world.train("local")
    world.end(info, JobPhase.STOPPED, saved=f"{info.directory}/checkpoints/g1")
    result = world.elastane("resume", "local", "--elsewhere")
    assert (result.code, result.out) == (Exit.USAGE, "")
    assert "needs a store that all of them reach" in result.err


def test_an_autoscaler_whose_events_are_elsewhere_is_not_said_to_have_measured_nothing(
    world: World, info: JobInfo
) -> None:
    world.put((JobKeys(info.job).launch, Launch(autoscale="max=4")))
    result = world.elastane("autoscale", "digits")
    assert (result.code, result.out) == (Exit.ENVIRONMENT, "")
    assert f"the decisions of the autoscaler of job {info.job} are not on this machine" in result.err
    make_own_folder(world, info)
    result = world.elastane("autoscale", "digits")
    assert (result.code, "nothing measured yet" in result.out) == (0, True)
    assert "other nodes have more" in result.err
