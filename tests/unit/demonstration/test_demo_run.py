"""A machine that trains too fast for the story gets more to train, up to a limit."""

from pathlib import Path

import pytest
from demo.compare import Run
from demo.picture import Mark
from demo.processes import Script
from demo.run import CutShortError, Play, main, make_marks, play_whole
from demo.story import Story
from demo_jobs import make_change
from rich.console import Console

RUN = Run(digest="a", records=())


def play_if_longer_than(epochs: int, asked: list[int]) -> Play:
    def play(out: Path, script: Script, story: Story, console: Console) -> tuple[Run, Run, float, Path]:
        asked.append(int(script.arguments[-1]))
        if asked[-1] <= epochs:
            raise CutShortError("too short")
        return RUN, RUN, 1.0, out

    return play


def test_a_training_too_short_for_the_story_is_repeated_with_twice_the_epochs(tmp_path: Path) -> None:
    asked: list[int] = []
    console = Console(record=True, width=100)
    story, result = play_whole(tmp_path / "out", 10, console, play_if_longer_than(20, asked))
    assert asked == [10, 20, 40]
    assert story.total_steps == 40 * 12
    assert result == (RUN, RUN, 1.0, tmp_path / "out")
    assert console.export_text().splitlines() == [
        "too short: once more with 20 epochs",
        "too short: once more with 40 epochs",
    ]


def test_it_is_given_up_in_the_end(tmp_path: Path) -> None:
    asked: list[int] = []
    with pytest.raises(CutShortError):
        play_whole(tmp_path / "out", 1, Console(record=True), play_if_longer_than(100, asked))
    assert asked == [1, 2, 4, 8]


def test_each_act_is_marked_at_its_first_change_and_the_kill_as_severe() -> None:
    story = Story(100)
    for step, scene in enumerate(story.scenes):
        scene.changes = (make_change(step, "planned", step=10 * step), make_change(step, "planned", step=99))
    story.scenes[1].who, story.scenes[2].who = "w1", "w3"
    assert make_marks(story) == [
        Mark(step=0, text="scale out"),
        Mark(step=10, text="SIGKILL w1", severe=True),
        Mark(step=20, text="migrate w3"),
        Mark(step=30, text="scale in"),
    ]


@pytest.mark.parametrize("arguments", [["--epochs", "many"], ["--fast"], ["more"]])
def test_a_wrong_flag_is_refused_with_the_usage(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as leaving:
        main(arguments)
    assert leaving.value.code == 2
    assert "usage: python -m demo.run" in capsys.readouterr().err


@pytest.mark.parametrize("epochs", ["0", "-3"])
def test_too_few_epochs_are_refused_with_a_reason(
    epochs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as leaving:
        main(["--epochs", epochs, "--out", str(tmp_path / "out")])
    assert leaving.value.code == 2
    assert "at least 1" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
