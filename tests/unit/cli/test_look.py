"""The commands that look: whole text compared, JSON shapes, and jobs that do not exist."""

import re
import threading

import pytest
from cli_world import World

from elastane.cli.main import main
from elastane.jobs.registry import name_key
from elastane.model.records import JobPhase
from elastane.store.base import DeleteKey


def strip_lines(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines())


def test_ps_shows_running_and_ended_jobs(world: World) -> None:
    running = world.train()
    ended = world.create("speech", wanted=4)
    world.end(ended, JobPhase.FAILED, "ValueError: no")
    text = re.sub(r"\S+ (m?s|min \d+ s)$", "T", strip_lines(world.elastane("ps").out), flags=re.MULTILINE)
    assert re.sub(r" +(T|AGE)$", r" \1", text, flags=re.MULTILINE) == (
        "JOB       NAME    PHASE     WORKERS  STEP  VALUES     SPEED AGE\n"
        f"{running.job}  digits  training      2/2    41  loss 0.25  50 steps/s, 3200 samples/s T\n"
        f"{ended.job}  speech  failed          0     0 T"
    )


def test_ps_as_json_has_the_documented_fields(world: World) -> None:
    info = world.train()
    jobs = world.elastane("ps", "--json").json["jobs"]
    assert len(jobs) == 1
    rates = jobs[0].pop("rates")
    assert rates == {"steps_per_s": pytest.approx(50.0), "samples_per_s": pytest.approx(3200.0)}
    worker = {
        "phase": "training",
        "node": "n0",
        "generation": 2,
        "committed_step": 41,
        "step_time_s": 0.02,
    }
    assert jobs[0] == {
        "job": info.job,
        "name": "digits",
        "script": str(world.script),
        "arguments": ["--lr", "0.1"],
        "directory": info.directory,
        "created_at_s": info.created_at_s,
        "phase": "training",
        "message": "",
        "saved": None,
        "digest": None,
        "wanted": 2,
        "minimum": 1,
        "stopping": False,
        "virtual_workers": 4,
        "batch": "",
        "generation": 2,
        "training": 2,
        "step": 41,
        "epoch": 1,
        "values": {"lr": 0.1, "loss": 0.25},
        "shards": None,
        "workers": [
            {"worker": "aaaa", "vranks": [0, 2], "leader": True, "device": "cpu:0", "pid": 100, **worker},
            {"worker": "bbbb", "vranks": [2, 4], "leader": False, "device": "cpu:1", "pid": 101, **worker},
        ],
        "activity": [],
    }


def test_ps_where_nothing_has_run_says_so(world: World) -> None:
    assert world.elastane("ps").out == "no jobs\n"
    assert world.elastane("ps", "--json").json == {"jobs": []}
    assert not world.home.path.exists()


def test_show_tells_all_about_a_job(world: World) -> None:
    info = world.train()
    assert strip_lines(world.elastane("show", info.job[:5]).out) == (
        f"{info.job}  digits  training\n"
        f"script   {world.script} --lr 0.1\n"
        f"folder   {info.directory}\n"
        "step     41   epoch 1   loss 0.25  lr 0.1\n"
        "speed    50 steps/s, 3200 samples/s\n"
        "workers  2 training, 2 wanted (at least 1), 4 virtual workers, generation 2\n"
        "\n"
        "WORKER  DEVICE    PHASE     VIRTUAL WORKERS  STEP TIME\n"
        "aaaa *  n0/cpu:0  training  ■■·· 0-1             20 ms\n"
        "bbbb    n0/cpu:1  training  ··■■ 2-3             20 ms\n"
        "\n"
        "GEN  TIME        STEP  WORKERS  WHO    STOP TIME  JOIN LATENCY  REASON\n"
        "  2  00:16:40.0    30        2  +bbbb      12 ms        750 ms"
    )


def test_show_by_name_tells_of_other_jobs_with_it(world: World) -> None:
    finished, failed = world.train(), None
    world.end(finished, JobPhase.FINISHED)
    with world.store() as store:
        store.transact(deletes=[DeleteKey(key=name_key("digits"))])
    failed = world.create("digits")
    world.end(failed, JobPhase.FAILED, "no")
    result = world.elastane("show", "digits")
    assert result.out.startswith(failed.job)
    assert result.err == f"also called digits, to be named by their ids: {finished.job} (finished)\n"
    assert world.elastane("show", failed.job).err == ""


def test_show_as_json_adds_changes_and_flat_events(world: World) -> None:
    world.train()
    data = world.elastane("show", "digits", "--json").json
    assert data["changes"] == [
        {
            "generation": 2,
            "at_s": 1000.0,
            "mode": "planned",
            "reason": "",
            "step": 30,
            "workers": 2,
            "stop_s": 0.012,
            "moved_bytes": 5000,
            "joined": [{"worker": "bbbb", "latency_s": 0.75}],
            "left": [],
        }
    ]
    assert data["events"][-1] == {
        "at_s": 1000.5,
        "kind": "joined",
        "source": "aaaa",
        "worker": "bbbb",
        "generation": 2,
        "step": 30,
        "latency_s": 0.75,
    }


def test_events_are_printed_one_a_line(world: World) -> None:
    world.train()
    assert world.elastane("events", "digits").out == (
        "00:16:40.0  aaaa          trains from step 30 in generation 2 with 2 workers: "
        "stop time 12 ms, moved 5 kB\n"
        "00:16:40.5  aaaa          bbbb joined at step 30, 750 ms after the request\n"
    )
    assert world.elastane("events", "digits", "--kind", "joined", "--json").out == (
        '{"at_s": 1000.5, "kind": "joined", "source": "aaaa", "worker": "bbbb", '
        '"generation": 2, "step": 30, "latency_s": 0.75}\n'
    )


def test_a_kind_of_event_that_never_came_is_told_with_those_that_did(world: World) -> None:
    world.train()
    result = world.elastane("events", "digits", "--kind", "jonied", "--kind", "joined")
    assert result.out == "00:16:40.5  aaaa          bbbb joined at step 30, 750 ms after the request\n"
    assert result.err == "no event of kind jonied; there are: joined, switched\n"


def test_a_line_of_events_that_cannot_be_read_is_left_out(world: World) -> None:
    info = world.train()
    with open(f"{info.directory}/events.jsonl", "ab") as file:
        file.write(b"{]\n")
    world.write_event(info, "leader", 1001.0, worker="aaaa")
    assert world.elastane("events", "digits", "--kind", "leader").out == (
        "00:16:41.0  aaaa          aaaa leads\n"
    )


def test_following_events_ends_with_the_job(world: World) -> None:
    info = world.train()

    def finish() -> None:
        world.write_event(info, "finished", 1002.0, step=90, digest="ab")
        world.end(info, JobPhase.FINISHED)

    timer = threading.Timer(0.1, finish)
    timer.start()
    result = world.elastane("events", "digits", "--follow", "--kind", "finished")
    timer.join()
    assert (result.code, result.out) == (0, "00:16:42.0  aaaa          finished after 90 steps, state ab\n")


def test_logs_of_all_workers_carry_their_names(world: World) -> None:
    info = world.train()
    world.write_log(info, "aaaa", "epoch 1\n[red]not markup[/red]\n")
    world.write_log(info, "bbbb", "no end of line")
    assert world.elastane("logs", "digits").out == (
        "aaaa | epoch 1\naaaa | [red]not markup[/red]\nbbbb | no end of line\n"
    )
    assert world.elastane("logs", "digits", "--worker", "a").out == "epoch 1\n[red]not markup[/red]\n"
    assert world.elastane("logs", "digits", "-w", "bbbb", "--json").json == {
        "worker": "bbbb",
        "line": "no end of line",
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "nix"), "no job has the id or name 'nix'; newest jobs: {job} (digits)"),
        (("events", "nix"), "no job has the id or name 'nix'; newest jobs: {job} (digits)"),
        (("logs", "digits", "-w", "x"), "job {job} has no log of a worker 'x'; present: none"),
    ],
)
def test_what_does_not_exist_is_answered_with_what_does(
    world: World, arguments: tuple[str, ...], message: str
) -> None:
    info = world.train()
    result = world.elastane(*arguments)
    assert (result.code, result.out, result.err) == (3, "", f"elastane: {message.format(job=info.job)}\n")
    assert world.elastane(*arguments, "--json").json == {
        "error": {"kind": "not_found", "exit_code": 3, "message": message.format(job=info.job)}
    }


def test_a_home_in_which_nothing_ran_is_named(world: World) -> None:
    result = world.elastane("show", "x")
    assert (result.code, result.err) == (
        3,
        f"elastane: no job has run yet in {world.home.path}; start one with `elastane run`, "
        "or name another home with --home or ELASTANE_HOME\n",
    )


def test_a_damaged_store_is_reported_and_left_alone(world: World) -> None:
    world.home.path.mkdir()
    store = world.home.path / "store.db"
    store.write_bytes(b"this is no database" * 100)
    result = world.elastane("ps")
    assert (result.code, result.out) == (5, "")
    assert str(store) in result.err
    assert "Traceback" not in result.err
    assert store.read_bytes() == b"this is no database" * 100


def test_the_home_of_the_environment_is_used(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.train()
    monkeypatch.setenv("ELASTANE_HOME", str(world.home.path))
    world.capsys.readouterr()
    assert main(["show", "digits"]) == 0
    assert "digits  training" in world.capsys.readouterr().out


def test_a_home_that_is_a_file_is_refused(world: World) -> None:
    world.home.path.write_text("")
    result = world.elastane("ps")
    assert (result.code, result.err) == (
        2,
        f"elastane: the home folder {world.home.path} is no folder; "
        "give another with --home or ELASTANE_HOME\n",
    )
