"""Files of measured profiles: written whole, read back equal, refused when they are something else."""

from pathlib import Path

import msgspec
import pytest

from elastane.model.errors import ConfigError
from elastane.model.profile import AllocationPoint, MeasuredProfile
from elastane.observe import profiles
from elastane.observe.profiles import load_profile, save_profile

PROFILE = MeasuredProfile(
    elastane="0.1.0",
    name="digits",
    script="digits.py",
    made_at="2026-11-30 12:00:00 UTC",
    model="abc",
    virtual_workers=8,
    device_type="cpu",
    machine="x86_64",
    skipped_steps=3,
    points=(
        AllocationPoint(
            workers=1,
            samples_per_s=10.0,
            efficiency=1.0,
            steps=5,
            samples_per_step=8,
            step_time_s=0.8,
            step_time_low_s=0.7,
            step_time_high_s=0.9,
            rss_bytes=1,
        ),
    ),
)


def test_a_profile_reads_back_as_it_was_written_and_leaves_no_draft(tmp_path: Path) -> None:
    path = tmp_path / "digits.profile.json"
    save_profile(PROFILE, path)
    save_profile(PROFILE, path)
    assert load_profile(path) == PROFILE
    assert [file.name for file in tmp_path.iterdir()] == ["digits.profile.json"]


def test_fields_of_later_versions_are_borne(tmp_path: Path) -> None:
    path = tmp_path / "later.json"
    path.write_bytes(msgspec.json.encode({**msgspec.to_builtins(PROFILE), "energy_j": 3}))
    assert load_profile(path) == PROFILE


def test_a_file_that_cannot_be_replaced_stays_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="directory"):
        save_profile(PROFILE, tmp_path / "taken")
    assert [file.name for file in tmp_path.iterdir()] == ["taken"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "is no profile that `elastane profile` has written"),
        (b"[1]", "is no profile that `elastane profile` has written"),
        (b'{"kind": "shopping list"}', "is no profile that `elastane profile` has written"),
        (b'{"kind": "elastane profile", "format": 1}', "is no profile .*missing required field"),
        (
            b'{"kind": "elastane profile", "format": 2}',
            "has format 2; this version of elastane reads format 1",
        ),
        (msgspec.json.encode(msgspec.structs.replace(PROFILE, points=())), "has no measured size"),
    ],
)
def test_what_is_no_profile_of_this_format_is_refused(tmp_path: Path, text: bytes, message: str) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(text)
    with pytest.raises(ConfigError, match=message):
        load_profile(path)


def test_a_file_that_is_missing_or_far_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"none\.json cannot be read: No such file"):
        load_profile(tmp_path / "none.json")
    path = tmp_path / "large.json"
    save_profile(PROFILE, path)
    monkeypatch.setattr(profiles, "MOST_BYTES", 100)
    with pytest.raises(ConfigError, match="has more than 100 bytes"):
        load_profile(path)
