"""What `elastane checkpoints` and the flags about checkpoints and recovery say and do."""

from pathlib import Path

import pytest
from cli_world import World

from elastane.cli.checkpoint_flags import make_checkpoint_plan, resolve_recovery
from elastane.model.errors import ConfigError
from elastane.model.records import CheckpointPlan, Recovery


def test_a_job_without_checkpoints_says_so(world: World) -> None:
    info = world.create("train")
    result = world.elastane("checkpoints", "train")
    assert (result.code, result.out.split()) == (
        0,
        ["no", "checkpoints", "in", *f"{info.directory}/checkpoints".split()],
    )


def test_verifying_none_is_no_success(world: World) -> None:
    world.create("train")
    assert world.elastane("checkpoints", "train", "--verify").code == 1


def test_checkpoints_are_listed_and_verified(world: World) -> None:
    info = world.create("train")
    world.save_checkpoint(info, 100)
    world.save_checkpoint(info, 200)
    assert "complete" in world.elastane("checkpoints", "train").out
    result = world.elastane("checkpoints", "train", "--verify", "--json")
    rows = result.json["checkpoints"]
    assert (
        result.code,
        [(r["step"], r["workers"], r["bytes"], r["valid"], r["verified"]) for r in rows],
    ) == (
        0,
        [(200, 1, 100, True, True), (100, 1, 100, True, True)],
    )


def test_a_damaged_one_is_found_by_its_sums_only(world: World) -> None:
    info = world.create("train")
    folder = world.save_checkpoint(info, 100)
    (folder / "share-1-of-1.bin").write_bytes(b"t" * 99)
    assert world.elastane("checkpoints", "train").code == 0
    result = world.elastane("checkpoints", "train", "--verify", "--json")
    (row,) = result.json["checkpoints"]
    assert (result.code, row["valid"]) == (1, False)
    assert row["problem"].startswith("share-1-of-1.bin has sha256")


def test_one_that_was_not_finished_is_no_fault(world: World) -> None:
    info = world.create("train")
    world.save_checkpoint(info, 50)
    (world.save_checkpoint(info, 100) / "manifest.json").unlink()
    result = world.elastane("checkpoints", "train", "--verify", "--json")
    row, _ = result.json["checkpoints"]
    assert (result.code, row["valid"], row["problem"], row["age_s"]) == (
        0,
        False,
        "it was not finished",
        None,
    )


def test_flags_become_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert make_checkpoint_plan(None, "", 2) == CheckpointPlan()
    assert make_checkpoint_plan("50steps", "out", 3) == CheckpointPlan(
        every_steps=50, every_s=None, url=str(tmp_path / "out"), keep=3
    )
    assert make_checkpoint_plan("1m", "memory://x", 1).url == "memory://x"
    with pytest.raises(ConfigError, match="cannot be kept at 'nowhere://x'"):
        make_checkpoint_plan(None, "nowhere://x", 1)


@pytest.mark.parametrize(
    ("flag", "environment", "recovery", "remarks"),
    [
        (None, {}, Recovery.EXACT, False),
        (None, {"USE_APPX_RECOVERY": "0"}, Recovery.EXACT, False),
        (None, {"USE_APPX_RECOVERY": "1"}, Recovery.EXACT, True),
        ("approximate", {}, Recovery.EXACT, True),
        ("checkpoint", {"USE_APPX_RECOVERY": "1"}, Recovery.CHECKPOINT, False),
    ],
)
def test_recovery_is_chosen_by_flag_then_by_edls_variable(
    flag: str | None, environment: dict[str, str], recovery: Recovery, remarks: bool
) -> None:
    choice = resolve_recovery(flag, environment)
    assert (choice.recovery, bool(choice.remark)) == (recovery, remarks)


def test_another_recovery_is_refused() -> None:
    with pytest.raises(ConfigError, match="--recovery magic is unknown; there are: exact, checkpoint, a"):
        resolve_recovery("magic", {})
