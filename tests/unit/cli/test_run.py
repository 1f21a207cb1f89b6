"""Running jobs: everything that is refused before a process starts, and how an end is told."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cli_world import World

from elastane.cli.exits import Exit
from elastane.cli.options import LaunchFlags
from elastane.cli.outcome import Outcome, compute_outcome, describe_outcome, tell_outcome, trim_traceback
from elastane.cli.output import Output
from elastane.cli.run import make_resumed_spec
from elastane.cli.script import check_script, make_name
from elastane.cli.watch import JobWatch
from elastane.core.relief import Answer
from elastane.model.errors import ConfigError
from elastane.model.records import JobPhase, Launch, Leave, Spec


def test_a_lease_that_the_store_cannot_keep_is_refused_before_anything_starts(world: World) -> None:
    result = world.elastane("run", str(world.script), "--lease", "1", "--store", "etcd://127.0.0.1:1")
    assert result.code == 2
    assert "a lease of 1 s cannot be kept in this store; choose from 3 s" in result.err
    assert not world.home.path.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("no.py",), "the script no.py does not exist (looked at {cwd}/no.py); check the path"),
        (("folder",), "folder is a folder; name the Python file in it that trains (there are: a.py, b.py)"),
        (("empty",), "empty is a folder; name the Python file in it that trains"),
        (("binary",), "binary is no Python file but binary data; name the Python file that trains"),
        (("broken.py",), "broken.py:2: is no valid Python: '(' was never closed"),
        (("latin.py",), "latin.py:1: is no valid Python: (unicode error)"),
        (("ok.py", "-n", "0"), "a job cannot have 0 workers; ask for 1 up to its number of virtual workers, "
         "or end it with `elastane stop`"),
        (("ok.py", "--workers", "8:2"), "--workers 8:2 asks for at least 8 of 2 workers; "
         "the first number must be 1 to 2"),
        (("ok.py", "-n", "9", "--virtual-workers", "4"), "9 workers asked for; a number in 1..4 is possible "
         "(one per virtual worker)"),
        (("ok.py", "--name", "../up"), "job name '../up' cannot be used; "
         "take 1 to 64 letters, digits, - and _, parts joined by single dots, "
         "beginning with a letter or digit"),
        (("ok.py", "--nproc-per-node", "gpu"), "`--nproc-per-node gpu` is torchrun's; say a number, "
         "for example `--workers 4`"),
    ],
)  # fmt: skip
def test_a_job_that_cannot_be_is_refused_before_anything_starts(
    world: World, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(world.folder)
    for name in ("folder", "empty"):
        Path(name).mkdir()
    for name in ("folder/b.py", "folder/a.py", "ok.py"):
        Path(name).write_text("x = 1\n")
    Path("binary").write_bytes(b"\x7fELF\0\0")
    Path("broken.py").write_text("x = 1\nprint(\n")
    Path("latin.py").write_bytes("x = 'é'\n".encode("latin-1"))
    result = world.elastane("run", *arguments)
    expected = f"elastane: {message.format(cwd=world.folder)}".replace(": is no", " is no")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(expected)
    assert result.err.count("\n") == 1
    assert not (world.home.path / "jobs").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run",), "Missing argument 'SCRIPT'."),
        (("run", "t.py", "--lr", "0.1"), "No such option: --lr"),
        (("run", "t.py", "--grace", "soon"), "Invalid value for '--grace'"),
        (("run", "t.py", "--threads", "0"), "Invalid value for '--threads'"),
        (("run", "t.py", "--lease", "0.1"), "Invalid value for '--lease'"),
        (("run", "t.py", "--stragglers", "x"), "Invalid value for '--stragglers': 'x' is not one of 'off'"),
        (("frobnicate",), "No such command 'frobnicate'."),
        (("show",), "Missing argument 'JOB'."),
        (("migrate", "x"), "Missing option '--from'."),
    ],
)
def test_a_line_that_cannot_be_read_is_answered_with_its_fault(
    world: World, arguments: tuple[str, ...], message: str
) -> None:
    result = world.elastane(*arguments)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"elastane: {message}")
    error = world.elastane(*arguments, "--json").json["error"]
    assert (error["kind"], error["exit_code"]) == ("usage", 2)
    assert error["message"].startswith(message)


def test_an_unknown_flag_of_run_may_have_been_meant_for_the_script(world: World) -> None:
    message = "Arguments for the script come after `--`.\n"
    assert world.elastane("run", "t.py", "--lr", "0.1").err.endswith(message)
    assert not world.elastane("ps", "--lr").err.endswith(message)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
def test_what_may_not_be_read_or_written_is_named(world: World) -> None:
    world.script.chmod(0)
    with pytest.raises(ConfigError, match="cannot be read; allow it with: chmod u\\+r"):
        check_script(world.script)


def test_a_home_that_cannot_be_made_is_an_error_of_the_environment(world: World) -> None:
    world.folder.joinpath("file").write_text("")
    from elastane.cli.main import main

    world.capsys.readouterr()
    code = main(["run", str(world.script), "--home", str(world.folder / "file" / "home")])
    out, err = world.capsys.readouterr()
    assert (code, out) == (5, "")
    assert str(world.folder / "file" / "home") in err


def test_names_of_living_jobs_are_not_given_twice(world: World) -> None:
    info = world.create("train")
    result = world.elastane("run", str(world.script), "--name", "train")
    assert (result.code, result.err) == (
        4,
        f"elastane: a living job is called 'train' already: {info.job}; give another name with --name, "
        f"or stop that one (`elastane stop {info.job}`)\n",
    )


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("train.py", "train"),
        ("my model.v2.py", "my-model-v2"),
        ("__main__.py", "main"),
        ("été.py", "t"),
        ("-.py", "job"),
    ],
)
def test_a_job_is_named_after_its_script(file: str, name: str) -> None:
    assert make_name(Path(file)) == name


@pytest.mark.parametrize("flags", [("--nodes", "2"), ("--elsewhere",)])
def test_a_job_for_other_machines_needs_a_store_that_they_reach(world: World, flags: tuple[str, ...]) -> None:
    result = world.elastane("run", str(world.script), *flags)
    assert (result.code, result.out) == (2, "")
    assert (
        f"needs a store that all of them reach, and sqlite://{world.home.path}/store.db is a file"
        in result.err
    )
    assert "--store etcd://HOST:2379/NAME or ELASTANE_STORE" in result.err
    assert not world.home.path.exists()


def test_the_flags_of_a_run_become_the_record_of_its_launch() -> None:
    flags = LaunchFlags(
        virtual_workers=8,
        threads=2,
        grace_s=5.0,
        lease_s=1.0,
        orphan_grace_s=7.0,
        step_timeout_s=90.0,
        cold=True,
        autoscale="max=8",
        stragglers=Answer.AUTO,
        failures="1:2:3",
    )
    assert flags.make_launch() == Launch(
        virtual_workers=8,
        threads=2,
        grace_s=5.0,
        lease_s=1.0,
        orphan_grace_s=7.0,
        step_timeout_s=90.0,
        cold=True,
        autoscale="max=8",
        stragglers="auto",
        failures=(1, 2, 3),
    )
    assert LaunchFlags().make_launch() == Launch()
    with pytest.raises(ConfigError, match="add max=N"):
        LaunchFlags(autoscale="efficiency=0.1").make_launch()


def test_a_resumed_job_wants_what_it_wanted_unless_told_otherwise() -> None:
    before = Spec(wanted=3, minimum=2, nodes=2, leaving={"w1": Leave.NOW}, targets=("n0/cpu:1",), stop=True)  # type: ignore[arg-type,dict-item]
    assert make_resumed_spec(before, None, 4) == Spec(wanted=3, minimum=2, nodes=2)
    assert make_resumed_spec(before, "1", 4) == Spec(wanted=1, minimum=1, nodes=2)
    assert make_resumed_spec(before, "2:4", 4) == Spec(wanted=4, minimum=2, nodes=2)
    with pytest.raises(ConfigError, match=r"5 workers asked for; a number in 1\.\.4 is possible"):
        make_resumed_spec(before, "5", 4)


def test_only_stopped_jobs_with_a_saved_state_are_resumed(world: World) -> None:
    info = world.train("train")
    result = world.elastane("resume", "train")
    assert (result.code, result.err) == (
        4,
        f"elastane: job {info.job} is training; stop it first (`elastane stop {info.job}`)\n",
    )
    world.end(info, JobPhase.FAILED, "no")
    result = world.elastane("resume", "train")
    place = f"{info.directory}/checkpoints"
    assert (result.code, result.err) == (
        4,
        f"elastane: job {info.job} has saved no state in {place}: it ended before its first checkpoint, and "
        "not by a graceful stop (one Ctrl-C, or `elastane stop`); start the script again with "
        "`elastane run`\n",
    )
    Path(place, "g000001-step-000000010").mkdir(parents=True)
    Path(place, "g000001-step-000000010", "manifest.json").write_text("{}")
    result = world.elastane("resume", "train", "--json")
    assert (result.code, result.json["error"]["kind"]) == (5, "environment")
    assert "no checkpoint in" in result.json["error"]["message"]


def test_a_job_that_nobody_runs_is_stopped_at_once_and_can_then_be_resumed(world: World) -> None:
    info = world.create("train")
    resumed = world.elastane("resume", "train")
    assert (resumed.code, resumed.err) == (
        4,
        f"elastane: job {info.job} is starting, but nobody runs it (its `elastane run` was killed?); "
        f"end it with `elastane stop {info.job}`, then resume it\n",
    )
    stopped = world.elastane("stop", "train", "--json")
    assert (stopped.code, stopped.json) == (
        0,
        {"job": info.job, "done": True, "phase": "stopped", "step": 0, "saved": None},
    )
    again = world.elastane("stop", "train")
    assert again.code == 4


def test_stopping_in_vain_leaves_the_request_standing(world: World) -> None:
    info = world.train()
    result = world.elastane("stop", "digits", "--timeout", "0.1")
    assert (result.code, result.out) == (
        6,
        f"job {info.job}: not stopped after 0.1 s; the request stands: `elastane show {info.job}`\n",
    )
    assert world.read_spec(info).stop


def test_stopping_at_once_is_asked_of_all_agents_wherever_they_are(world: World) -> None:
    info = world.train()
    result = world.elastane("stop", "digits", "--now", "--timeout", "0")
    assert result.code == 6
    assert world.read_spec(info) == Spec(wanted=2, stop=True, abort=True)


def outcome_of(world: World, phase: JobPhase, message: str = "", **more: Any) -> Outcome:
    (info,) = world.elastane("ps", "--json").json["jobs"]
    with world.store() as store:
        from elastane.jobs.registry import find_job

        found = find_job(store, info["job"])
        world.end(found, phase, message, **more)
        return compute_outcome(JobWatch(store, found).look(), 12.0)


def test_a_finished_job_tells_its_digest(world: World) -> None:
    world.train()
    outcome = outcome_of(world, JobPhase.FINISHED, digest="ab12")
    assert (outcome.exit_code, outcome.digest) == (Exit.DONE, "ab12")
    assert describe_outcome(outcome) == (
        "finished after 12.0 s: 41 steps, loss 0.25  lr 0.1\nstate sha256 ab12"
    )


def test_a_stopped_job_tells_how_to_go_on(world: World) -> None:
    info = world.train()
    outcome = outcome_of(world, JobPhase.STOPPED, saved="/x/final")
    assert (outcome.exit_code, outcome.saved) == (Exit.STOPPED, "/x/final")
    assert describe_outcome(outcome) == (
        "stopped after 12.0 s: 41 steps, loss 0.25  lr 0.1\n"
        f"the state is saved; go on with: elastane resume {info.job}"
    )


def test_a_job_that_was_ended_at_once_tells_what_is_lost(world: World) -> None:
    info = world.train()
    world.write_event(info, "stopped", 1002.0, step=20, path="/x/final")  # of the run before
    world.write_event(info, "agent_started", 1003.0, node="n0")
    outcome = outcome_of(world, JobPhase.STOPPED, "asked twice; what was not saved is lost")
    assert (outcome.exit_code, outcome.saved) == (Exit.INTERRUPTED, None)
    assert describe_outcome(outcome).splitlines()[1] == "asked twice; what was not saved is lost"


@pytest.mark.parametrize(
    ("phase", "more", "exit_code"),
    [
        (JobPhase.STOPPED, {"saved": "/elsewhere/final"}, Exit.STOPPED),
        (JobPhase.STOPPED, {}, Exit.INTERRUPTED),
        (JobPhase.FINISHED, {"digest": "ab12"}, Exit.DONE),
    ],
)
def test_the_end_of_a_job_is_told_where_none_of_its_files_are(
    world: World, phase: JobPhase, more: dict[str, str], exit_code: Exit
) -> None:
    info = world.train()
    shutil.rmtree(info.directory)
    outcome = outcome_of(world, phase, step=90, **more)
    assert (outcome.exit_code, outcome.step, outcome.saved, outcome.digest) == (
        exit_code,
        90,
        more.get("saved"),
        more.get("digest"),
    )


def test_a_failed_job_tells_its_first_error(world: World) -> None:
    info = world.train()
    world.write_event(info, "script_failed", 1001.0, worker="cccc", traceback="of a newcomer", first=False)
    world.write_event(
        info, "script_failed", 1002.0, worker="bbbb", traceback="Traceback\nValueError: first\n", first=True
    )
    world.write_event(
        info, "script_failed", 1002.1, worker="aaaa", traceback="Traceback\nValueError: second\n"
    )
    outcome = outcome_of(world, JobPhase.FAILED, "ValueError: first")
    assert (outcome.exit_code, outcome.failed_worker, outcome.traceback) == (
        Exit.FAILED,
        "bbbb",
        "Traceback\nValueError: first\n",
    )
    assert msgspec.to_builtins(outcome)["kind"] == "outcome"


FRAMES = (
    "Traceback (most recent call last):\n"
    '  File "/lib/runpy.py", line 88, in _run_code\n'
    '  File "/work/t.py", line 3, in <module>\n'
    "ValueError: no\n"
)


def test_a_traceback_begins_with_the_script() -> None:
    assert trim_traceback(FRAMES, "/work/t.py") == (
        'Traceback (most recent call last):\n  File "/work/t.py", line 3, in <module>\nValueError: no\n'
    )
    for whole in (FRAMES + FRAMES, "SystemExit: 3"):
        assert trim_traceback(whole, "/work/t.py") == whole
    assert trim_traceback(FRAMES, "/work/other.py") == FRAMES


def test_errors_of_scripts_come_with_their_frames_and_ours_with_their_message_alone(world: World) -> None:
    info = world.train()
    ours = FRAMES.replace("ValueError: no", "elastane.model.errors.ConfigError: 6 workers cannot share 4")
    for text, message, told in (
        (FRAMES, "ValueError: no", f"first error, in worker w1:\n{FRAMES}"),
        (ours, "6 workers cannot share 4", ""),
        ("", "3 failures in a row\nlast words", ""),
    ):
        outcome = replace(
            outcome_of(world, JobPhase.FAILED, message), failed_worker="w1", traceback=text or None
        )
        world.capsys.readouterr()
        tell_outcome(Output(as_json=False), outcome)
        assert world.capsys.readouterr().err == (
            f"{told}elastane: job {info.job} failed: {message}\nsee also: elastane logs {info.job}\n"
        )


def test_looking_at_jobs_loads_no_torch(world: World) -> None:
    world.train()
    code = (
        "import sys; from elastane.cli.main import main; main(['ps', '--home', sys.argv[1]]); "
        "heavy = {'torch', 'numpy', 'matplotlib'} & set(sys.modules); assert not heavy, heavy"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(world.home.path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
