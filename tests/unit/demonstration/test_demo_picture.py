"""What is drawn: who ran what, mean losses, sparks; and that a picture is written."""

from pathlib import Path

from demo.picture import (
    COLOURS,
    Mark,
    Stretch,
    choose_colour,
    compute_epoch_means,
    compute_stretches,
    draw_picture,
)
from demo.story import Act, Deed, Scene
from demo.view import DemoView, describe_scene, draw_sparks
from demo_jobs import make_change, make_join, make_record, make_snapshot, make_worker
from rich.console import Console

from elastane.observe.events import Event

RECORDS = [make_record(step, 2.0 / (step + 1)) for step in range(48)]


def committed(step: int, members: dict[str, list[int]]) -> Event:
    return Event(at_s=0.0, kind="committed", source="w1", fields={"members": members, "switch_step": step})


def test_stretches_end_where_the_next_generation_begins() -> None:
    events = [
        committed(0, {"w1": [0, 4]}),
        Event(at_s=0.0, kind="proposed", source="w1"),
        committed(10, {"w1": [0, 2], "w2": [2, 4]}),
        committed(20, {}),
    ]
    assert compute_stretches(events, 20) == [
        Stretch(worker="w1", first=0, stop=4, begin_step=0, end_step=10),
        Stretch(worker="w1", first=0, stop=2, begin_step=10, end_step=20),
        Stretch(worker="w2", first=2, stop=4, begin_step=10, end_step=20),
    ]


def test_a_generation_without_a_step_is_not_drawn() -> None:
    events = [committed(0, {"w1": [0, 4]}), committed(5, {"w2": [0, 4]}), committed(5, {"w3": [0, 4]})]
    assert [one.worker for one in compute_stretches(events, 9)] == ["w1", "w3"]


def test_workers_of_neighbouring_numbers_have_other_colours() -> None:
    assert [choose_colour(f"w{number}") for number in range(1, 7)] == list(COLOURS)


def test_an_epoch_is_drawn_as_its_mean_at_its_middle() -> None:
    assert compute_epoch_means([make_record(s, float(s)) for s in range(24)]) == ([5.5, 17.5], [5.5, 17.5])


def test_sparks_fall_with_the_loss_on_a_logarithmic_scale() -> None:
    assert draw_sparks([1.0, 0.1, 0.01], columns=3) == "█▅▁"
    assert draw_sparks([0.5] * 100, columns=4) == "▁▁▁▁"
    assert draw_sparks([]) == ""


def test_a_picture_is_written(tmp_path: Path) -> None:
    path = tmp_path / "demo.png"
    stretches = [
        Stretch(worker="w1", first=0, stop=4, begin_step=0, end_step=24),
        Stretch(worker="w2", first=0, stop=4, begin_step=24, end_step=48),
    ]
    draw_picture(path, stretches, [Mark(step=24, text="SIGKILL w1", severe=True)], RECORDS, RECORDS)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_finished_act_tells_what_it_cost() -> None:
    scene = Scene(act=Act(deed=Deed.SCALE_OUT, title="out", at=0.0), done=True)
    scene.changes = (make_change(2, "planned", joined=(make_join("w2", 0.25),), stop_s=0.004),)
    assert describe_scene(scene, RECORDS) == "training stopped for 4 ms, w2 joined in 250 ms"


def test_without_a_terminal_each_act_is_told_once_and_once_more_when_done() -> None:
    console = Console(record=True, width=100, force_terminal=False)
    scene = Scene(
        act=Act(deed=Deed.SCALE_IN, title="scale in to 1 worker", at=0.0), command="elastane scale demo 1"
    )
    with DemoView(console, 48, "elastane run train.py", "python train.py") as view:
        for done in (False, True, True):
            scene.done = done
            scene.changes = (make_change(2, "planned", stop_s=0.001),)
            view.show_elastic(make_snapshot(make_worker("w1", (0, 4))), [scene], RECORDS)
        view.show_plain(RECORDS)
    assert console.export_text().splitlines() == [
        "$ elastane run train.py",
        "scale in to 1 worker: $ elastane scale demo 1",
        "    training stopped for 1 ms",
        "$ python train.py",
    ]


def test_on_a_terminal_both_runs_are_in_one_picture() -> None:
    console = Console(record=True, width=100, height=40, force_terminal=True)
    with DemoView(console, 48, "elastane run train.py", "python train.py") as view:
        view.show_elastic(make_snapshot(make_worker("w1", (0, 4))), [], RECORDS)
        view.show_plain(RECORDS)
    shown = console.export_text()
    assert all(
        part in shown for part in ("elastane run train.py", "python train.py", "48/48", "1 worker", "w1")
    )
