"""The view of a running job: the picture on a terminal, lines elsewhere."""

import io
import json
from dataclasses import replace
from datetime import UTC
from typing import Any

import pytest
from rich.console import Console

from elastane.cli.live import LineView, TerminalView, open_view
from elastane.cli.output import Output
from elastane.cli.render import format_values, format_vranks, render_change, render_jobs, render_live
from elastane.model.ids import JobId, WorkerId
from elastane.model.records import JobPhase
from elastane.observe.events import Event
from elastane.observe.snapshot import Change, JobSnapshot, Join, Rates, WorkerSnapshot


def event(kind: str, at_s: float, **fields: Any) -> Event:
    return Event(at_s=at_s, kind=kind, source="w1", fields=fields)


EVENTS = (
    event("leader", 0.0, worker="w1"),
    event("joined", 1.0, worker="w1", generation=1, step=0, latency_s=0.5),
    event("proposed", 2.0, generation=2, members={"w1": [0, 2], "w2": [2, 4]}, reason="w2 is ready"),
    event("switched", 2.5, generation=2, step=30, stop_s=0.012, workers=2, moved_bytes=0),
)
SNAPSHOT = JobSnapshot(
    job=JobId("3f2a91bc"),
    name="digits",
    script="/work/digits.py",
    arguments=(),
    directory="/home/me/.elastane/jobs/3f2a91bc",
    created_at_s=0.0,
    phase=JobPhase.TRAINING,
    message="",
    wanted=3,
    minimum=1,
    stopping=False,
    virtual_workers=4,
    generation=2,
    training=2,
    step=42,
    epoch=1,
    values={"lr": 0.1, "loss": 0.25},
    rates=Rates(steps_per_s=12.34, samples_per_s=789.6),
    workers=(
        WorkerSnapshot(
            worker=WorkerId("w1"),
            phase="training",
            vranks=(0, 2),
            leader=True,
            node="n0",
            device="cpu:0",
            generation=2,
            committed_step=42,
            step_time_s=0.081,
        ),
        WorkerSnapshot(worker=WorkerId("w2"), phase="lost", vranks=(2, 4)),
        WorkerSnapshot(worker=WorkerId("w3"), phase="preparing", node="n0", device="cpu:2"),
    ),
    activity=("w3 is preparing on cpu:2", "generation 3: +w3 -w2: w2 is gone"),
    events=EVENTS,
)


def draw(renderable: Any, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(renderable)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.splitlines())


def test_the_picture_shows_job_workers_and_last_events() -> None:
    assert draw(render_live(SNAPSHOT, 2, "one more Ctrl-C ends it", UTC)) == (
        "3f2a91bc  digits  training\n"
        "step     42   epoch 1   loss 0.25  lr 0.1\n"
        "speed    12.3 steps/s, 789.6 samples/s\n"
        "workers  2 training, 3 wanted (at least 1), 4 virtual workers, generation 2\n"
        "now      w3 is preparing on cpu:2\n"
        "         generation 3: +w3 -w2: w2 is gone\n"
        "\n"
        "WORKER  DEVICE    PHASE      VIRTUAL WORKERS  STEP TIME\n"
        "w1 *    n0/cpu:0  training   ■■·· 0-1             81 ms\n"
        "w2                lost       ··■■ 2-3\n"
        "w3      n0/cpu:2  preparing\n"
        "\n"
        "00:00:01.0  w1 joined at step 0, 500 ms after the request\n"
        "00:00:02.5  trains from step 30 in generation 2 with 2 workers: stop time 12 ms\n"
        "\n"
        "one more Ctrl-C ends it"
    )


def test_a_job_that_has_just_begun_has_a_small_picture() -> None:
    begun = replace(
        SNAPSHOT, phase=JobPhase.STARTING, virtual_workers=0, training=0, step=0, epoch=None, generation=0
    )
    begun = replace(begun, values={}, rates=None, workers=(), activity=(), events=())
    assert draw(render_live(begun, 8)) == (
        "3f2a91bc  digits  starting\nstep     0\nworkers  0 training, 3 wanted (at least 1), generation 0"
    )


def test_a_job_with_a_batch_policy_shows_it_in_place_of_n() -> None:
    shared = replace(SNAPSHOT, virtual_workers=2, batch="FixedGlobal(64)", workers=(), activity=(), events=())
    wanted = "workers  2 training, 3 wanted (at least 1), FixedGlobal(64), generation 2"
    assert wanted in draw(render_live(shared, 8)).splitlines()


def test_a_job_whose_shards_are_handed_out_shows_how_many() -> None:
    handed = replace(SNAPSHOT, shards=(5, 2, 13), workers=(), activity=(), events=())
    assert "shards   5 todo, 2 doing, 13 done" in draw(render_live(handed, 8)).splitlines()


def test_long_events_are_cut_at_the_edge_and_markup_is_shown_as_it_is() -> None:
    shouting = replace(SNAPSHOT, events=(event("leader", 0.0, worker="[bold]w1[/bold]" * 5),), workers=())
    assert draw(render_live(shouting, 1, zone=UTC), width=40).splitlines()[-1] == (
        "00:00:00.0  [bold]w1[/bold][bold]w1[/bo…"
    )


def test_no_jobs_are_said_to_be_none() -> None:
    assert draw(render_jobs((), 0.0)) == "no jobs"


@pytest.mark.parametrize(
    ("vranks", "virtual_workers", "text"),
    [
        (None, 4, ""),
        ((1, 2), 4, "·■·· 1"),
        ((0, 4), 4, "■■■■ 0-3"),
        ((0, 1), 1, "0"),
        ((16, 48), 64, "16-47"),
    ],
)
def test_virtual_workers_are_mapped_where_there_is_room(
    vranks: tuple[int, int] | None, virtual_workers: int, text: str
) -> None:
    worker = WorkerSnapshot(worker=WorkerId("w1"), phase="training", vranks=vranks)
    assert format_vranks(worker, virtual_workers) == text


def test_values_begin_with_the_loss_and_are_bounded() -> None:
    values = {"lr": 0.1, "accuracy": 0.98765, "loss": float("nan"), "a": 1e-9, "b": 2.0}
    assert format_values(values) == "loss nan  lr 0.1  accuracy 0.9877  a 1e-09"
    assert format_values({}) == ""


def test_a_change_reads_as_a_sentence() -> None:
    change = Change(
        generation=3,
        at_s=0.0,
        step=40,
        workers=2,
        stop_s=0.0043,
        moved_bytes=25_300_000,
        joined=(Join(worker=WorkerId("w3"), latency_s=0.29),),
        left=(WorkerId("w1"), WorkerId("w2")),
    )
    assert render_change(change) == (
        "generation 3 before step 40: 2 workers, stop time 4.3 ms, moved 25.3 MB, "
        "w3 joined 290 ms after the request, w1, w2 left"
    )
    assert render_change(Change(generation=4, at_s=0.0)) == "generation 4"


def test_lines_show_each_event_once_and_progress_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    view = LineView(Output(as_json=True), skip_events=1)
    view.update(replace(SNAPSHOT, events=EVENTS[:2]), 0.0)
    view.update(SNAPSHOT, 9.9)
    view.update(SNAPSHOT, 10.0)
    view.update(SNAPSHOT, 11.0)
    view.close()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["kind"] for line in lines] == ["joined", "proposed", "switched", "progress"]
    assert lines[-1] == {
        "kind": "progress",
        "step": 42,
        "epoch": 1,
        "values": {"lr": 0.1, "loss": 0.25},
        "rates": {"steps_per_s": 12.34, "samples_per_s": 789.6},
        "workers": 2,
    }


def test_progress_reads_as_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    view = open_view(Output(as_json=False), plain=False)
    assert isinstance(view, LineView)
    view.update(replace(SNAPSHOT, events=()), 0.0)
    view.update(replace(SNAPSHOT, events=()), 20.0)
    assert capsys.readouterr().out == (
        "step 42, loss 0.25  lr 0.1, 12.3 steps/s, 789.6 samples/s, 2 workers\n"
    )


def checkpoint_events(*moments_s: float) -> tuple[Event, ...]:
    return tuple(
        event(kind, at_s, step=int(at_s), bytes=1000, workers=1, seconds=0.1, stop_s=0.001)
        for at_s in moments_s
        for kind in ("checkpoint_begun", "checkpoint_saved")
    )


def test_of_frequent_checkpoints_people_see_one_in_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    frequent = checkpoint_events(1.0, 2.0, 10.9, 11.0, 12.0)
    skipped = event("checkpoint_skipped", 12.5, step=12, reason="the one before is not done")
    LineView(Output(as_json=False)).update(replace(SNAPSHOT, events=(*frequent, skipped)), 0.0)
    shown = [line.split("  ", 2)[2].split(":")[0].strip() for line in capsys.readouterr().out.splitlines()]
    assert shown == [
        "checkpoint of step 1 saved",
        "checkpoint of step 11 saved",
        "no checkpoint at step 12",
    ]


def test_programs_see_every_checkpoint(capsys: pytest.CaptureFixture[str]) -> None:
    LineView(Output(as_json=True)).update(replace(SNAPSHOT, events=checkpoint_events(1.0, 2.0)), 0.0)
    kinds = [json.loads(line)["kind"] for line in capsys.readouterr().out.splitlines()]
    assert kinds == ["checkpoint_begun", "checkpoint_saved"] * 2


def test_what_is_said_again_and_again_is_written_once(capsys: pytest.CaptureFixture[str]) -> None:
    view = LineView(Output(as_json=False))
    for text in ("stopping", "stopping", "", "stopping"):
        view.say(text)
    assert capsys.readouterr().err == "stopping\nstopping\n"


def test_a_terminal_gets_a_picture_with_as_many_events_as_fit() -> None:
    for height, events in ((40, 3), (12, 0)):
        console = Console(file=io.StringIO(), force_terminal=True, width=100, height=height)
        view = TerminalView(console)
        view.say("stopping")
        view.update(SNAPSHOT, 0.0)
        view.close()
        text: str = console.file.getvalue()  # type: ignore[attr-defined]
        assert "3f2a91bc" in text
        assert "stopping" in text
        assert sum(words in text for words in ("w1 leads", "w1 joined", "trains from")) == events
