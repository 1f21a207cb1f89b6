"""The command that tells what joins cost: whole text compared, JSON with its fields."""

import pytest
from cli_world import World

from elastane.observe.joins import JoinPhase

PHASES = {phase.value: 0.01 * number for number, phase in enumerate(JoinPhase, start=1)}


def strip_lines(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines())


def test_joins_shows_each_phase_of_each_join_and_a_summary(world: World) -> None:
    info = world.create()
    world.write_event(info, "worker_starting", 1.0, worker="w1", device="cpu:0")
    world.write_event(info, "worker_started", 1.0, worker="w1", start="warm")
    world.write_event(info, "joined", 2.0, worker="w1", generation=1, latency_s=0.36, phases=PHASES)
    world.write_event(info, "switched", 2.0, generation=1, moved_bytes=5_000)
    world.write_event(info, "worker_starting", 3.0, worker="w2", device="cpu:1")
    assert strip_lines(world.elastane("joins", "digits").out) == (
        "WORKER  WHERE  START  SPAWN  IMPORT  DEVICE  BUILD  WARM-UP  CONNECT  AGREE  TRANSFER"
        "      TOTAL  MOVED\n"
        "w1      cpu:0  warm   10 ms   20 ms   30 ms  40 ms    50 ms    60 ms  70 ms     80 ms"
        "     360 ms   5 kB\n"
        "w2      cpu:1"
        "                                                                          under way\n"
        "\n"
        "1 join (1 warm): median 360 ms, most of it transfer (80 ms)"
    )


def test_a_narrow_terminal_shows_the_phases_in_one_column(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "72")
    info = world.create()
    world.write_event(info, "worker_starting", 1.0, worker="w1", device="cpu:0")
    world.write_event(info, "joined", 2.0, worker="w1", generation=1, latency_s=0.36, phases=PHASES)
    assert strip_lines(world.elastane("joins", "digits").out) == (
        "WORKER  WHERE  START   TOTAL  MOVED  PHASES\n"
        "w1      cpu:0         360 ms         spawn 10 ms, import 20 ms, device\n"
        "                                     30 ms, build 40 ms, warm-up 50 ms,\n"
        "                                     connect 60 ms, agree 70 ms,\n"
        "                                     transfer 80 ms\n"
        "\n"
        "1 join: median 360 ms, most of it transfer (80 ms)"
    )


def test_joins_as_json(world: World) -> None:
    info = world.train()
    assert world.elastane("joins", "digits", "--json").json == {
        "job": info.job,
        "joins": [
            {
                "worker": "bbbb",
                "device": "",
                "start": "",
                "outcome": "joined",
                "asked_at_s": 999.75,
                "phases": {},
                "latency_s": 0.75,
                "generation": 2,
                "moved_bytes": 5000,
            }
        ],
        "summary": {"joined": 1, "warm": 0, "cold": 0, "latency_s": 0.75, "phases": {}},
    }


def test_joins_without_phases_or_without_latency_are_summarised_as_far_as_they_are_known(
    world: World,
) -> None:
    info = world.train()
    assert world.elastane("joins", "digits").out.endswith("\n\n1 join: median 750 ms\n")
    other = world.create("other")
    world.write_event(other, "worker_starting", 3.0, worker="w2", device="cpu:1")
    assert world.elastane("joins", other.job).out.endswith("\n\n0 joins\n")
    assert info.job != other.job


def test_a_job_for_which_no_worker_was_asked_has_no_joins(world: World) -> None:
    world.create()
    assert world.elastane("joins", "digits").out == "no worker has been asked for yet\n"
