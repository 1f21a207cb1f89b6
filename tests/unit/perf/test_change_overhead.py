"""What a change costs under the two kinds of overhead."""

import pytest

from elastane.model.errors import ConfigError
from elastane.perf.overhead import NO_PAUSE, PRESETS, Overhead, Pause, parse_overhead

STOP_FREE = Overhead(
    name="x", kind="stop-free", join_s=40.0, grow_stop_s=1.0, shrink_stop_s=0.5, restart_s=50.0, start_s=3.0
)
STOP_RESUME = Overhead(
    name="y", kind="stop-resume", restart_s=40.0, restart_per_device_s=10.0, restart_devices=4
)


@pytest.mark.parametrize(
    ("old", "new", "started", "pause"),
    [
        (0, 4, False, Pause(0.0, 3.0)),
        (0, 4, True, Pause(0.0, 50.0)),
        (4, 6, True, Pause(40.0, 1.0)),
        (6, 4, True, Pause(0.0, 0.5)),
        (4, 0, True, NO_PAUSE),
    ],
)
def test_stop_free_lets_the_old_devices_train_while_others_join(
    old: int, new: int, started: bool, pause: Pause
) -> None:
    assert STOP_FREE.compute_pause(old, new, started=started) == pause


@pytest.mark.parametrize(
    ("old", "new", "started", "pause"),
    [
        (0, 2, False, NO_PAUSE),
        (0, 2, True, Pause(0.0, 50.0)),
        (4, 2, True, Pause(0.0, 50.0)),
        (2, 4, True, Pause(0.0, 70.0)),
        (2, 9, True, Pause(0.0, 70.0)),  # beyond what was measured it stays
        (2, 0, True, NO_PAUSE),
    ],
)
def test_stop_resume_stops_all_for_longer_the_more_there_are(
    old: int, new: int, started: bool, pause: Pause
) -> None:
    assert STOP_RESUME.compute_pause(old, new, started=started) == pause


def test_edl_stop_resume_breaks_even_where_the_paper_says() -> None:
    # One idle GPU beside 4 pays off after 11.7 min: two restarts of 5 GPUs cost what one GPU earns.
    restart_s = PRESETS["edl-stop-resume"].compute_restart_s(5)
    assert 2 * restart_s * 5 / 60 == pytest.approx(11.7, rel=0.01)


def test_published_bounds_hold_in_the_presets() -> None:
    edl = PRESETS["edl"]
    assert edl.grow_stop_s <= 1.0
    assert edl.shrink_stop_s < edl.grow_stop_s
    assert PRESETS["edl-stop-resume"].compute_restart_s(1) == 40.0
    assert PRESETS["edl-stop-resume"].compute_restart_s(8) > 80.0
    assert PRESETS["none"].compute_pause(2, 4, started=True) == NO_PAUSE


def test_an_unknown_preset_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"'fast'; known: edl, edl-stop-resume, none"):
        parse_overhead("fast")
    assert parse_overhead("pollux").start_s == 30.0
