"""The command that shows an autoscaler's search: what it prints, draws and refuses."""

from pathlib import Path

import pytest
from cli_world import World

from elastane.core.autoscale_text import find_currency
from elastane.model.records import JobInfo, JobKeys, Launch

RATES = ({"1": 100.0}, {"1": 100.0, "2": 150.0}, {"1": 100.0, "2": 150.0, "3": 150.0})


@pytest.fixture
def info(world: World) -> JobInfo:
    return world.train()


def search(world: World, info: JobInfo, text: str) -> None:
    world.put((JobKeys(info.job).launch, Launch(autoscale=text)))
    for place, (wanted, rates) in enumerate(zip((2, 3, 2), RATES, strict=True)):
        world.write_event(
            info,
            "autoscale",
            1010.0 + 10 * place,
            step=10 * place + 10,
            elapsed_s=10.0 * place + 10,
            remaining_samples=9000.0,
            workers=place + 1,
            wanted=wanted,
            settled=place == 2,
            samples_per_s=rates,
            reason=f"reason {place}",
        )


def test_sizes_and_decisions_are_printed(world: World, info: JobInfo) -> None:
    search(world, info, "max=4")
    result = world.elastane("autoscale", "digits")
    lines = [line.split() for line in result.out.splitlines()]
    assert result.code == 0
    assert lines[0] == ["WORKERS", "SAMPLES/S", "PREDICTED", "EFFICIENCY", "ENDS", "IN", "WORKER", "TIME"]
    assert lines[2][:2] == ["2", "150"]
    assert lines[2][-1] == "kept"
    assert lines[4][0] == "4"
    assert lines[7][1:] == ["10", "1", "2", "reason", "0"]
    assert lines[-1] == ["2", "workers", "are", "kept"]


def test_with_a_price_worth_and_cost_are_printed_in_its_currency(world: World, info: JobInfo) -> None:
    search(world, info, "utility=linear:10min:50usd,price=36usd/h,max=3")
    out = world.elastane("autoscale", "digits").out
    assert "WORTH usd" in out
    # 90 s of one worker at a cent a second, after 30 s: worth 50 x (1 - 120 / 600).
    assert out.splitlines()[1].split()[-3:] == ["40", "0.9", "39.1"]


def test_the_same_is_data(world: World, info: JobInfo) -> None:
    search(world, info, "max=4")
    data = world.elastane("autoscale", "digits", "--json").json
    assert (data["job"], data["autoscale"], data["settled"]) == (info.job, "max=4", 2)
    assert [size["workers"] for size in data["sizes"]] == [1, 2, 3, 4]
    assert [decision["reason"] for decision in data["decisions"]] == ["reason 0", "reason 1", "reason 2"]


def test_a_single_worker_that_is_kept_is_spoken_of_as_one(world: World, info: JobInfo) -> None:
    search(world, info, "max=4")
    world.write_event(
        info, "autoscale", 1050.0, workers=2, wanted=1, settled=True, samples_per_s=RATES[-1], reason="so"
    )
    assert world.elastane("autoscale", "digits").out.splitlines()[-1] == "1 worker is kept"


@pytest.mark.parametrize("text", ["max=4", "utility=linear:10min:50usd,price=36usd/h,max=3"])
def test_a_picture_is_drawn_in_both_formats(world: World, info: JobInfo, tmp_path: Path, text: str) -> None:
    search(world, info, text)
    for name, start in (("story.png", b"\x89PNG"), ("story.svg", b"<svg")):
        result = world.elastane("autoscale", "digits", "--plot", str(tmp_path / name))
        assert (result.code, (tmp_path / name).read_bytes()[:4]) == (0, start)
    words = (tmp_path / "story.svg").read_text()
    assert "predicted" in words
    assert "measured" in words
    assert f"--autoscale {text}" in words


def test_a_job_that_has_decided_nothing_yet_says_so(world: World, info: JobInfo, tmp_path: Path) -> None:
    world.put((JobKeys(info.job).launch, Launch(autoscale="max=4")))
    result = world.elastane("autoscale", "digits", "--plot", str(tmp_path / "none.png"))
    assert (result.code, "nothing measured yet" in result.out) == (0, True)
    assert not (tmp_path / "none.png").exists()


def test_jobs_without_an_autoscaler_and_pictures_of_no_kind_are_refused(world: World, info: JobInfo) -> None:
    refused = world.elastane("autoscale", "digits")
    assert (refused.code, "runs without an autoscaler" in refused.err) == (4, True)
    search(world, info, "max=4")
    refused = world.elastane("autoscale", "digits", "--plot", "story.gif")
    assert (refused.code, "ends in .png or .svg" in refused.err) == (2, True)


def test_the_currency_is_that_of_the_price() -> None:
    assert find_currency("utility=deadline:60min:50eur,price=0.77eur/h,max=8") == "eur"
    assert find_currency("max=8") == ""
