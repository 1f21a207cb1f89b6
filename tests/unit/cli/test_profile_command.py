"""`elastane profile` before a process starts: what it refuses, and how a measurement is shown and kept."""

import json
import os
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from elastane.cli import profile as command
from elastane.cli.exits import Exit
from elastane.cli.main import main
from elastane.cli.outcome import Outcome
from elastane.cli.profile import RunFlags, SizeFlags, check_place, make_finding
from elastane.cli.profile_picture import draw_profile
from elastane.cli.profile_run import Finding, Measurement
from elastane.cli.profile_table import render_profile
from elastane.core.profiling import MeasuredSteps
from elastane.model.errors import ConfigError, ProfileMismatchError
from elastane.model.profile import AllocationPoint, MeasuredProfile
from elastane.model.records import CheckpointPlan, JobPhase, ModelSignature, ProfilePlan
from elastane.observe.allocations import Allocation, MemoryPeak
from elastane.observe.metrics import MetricsRecord
from elastane.observe.profiles import load_profile, save_profile

PLAN = ProfilePlan(allocations=(2, 1), steps=5)
SIGNATURE = ModelSignature(virtual_workers=8, entries=(("weight", "float32 [2]"),))


def point(workers: int, speed: float, efficiency: float, device_bytes: int | None = None) -> AllocationPoint:
    return AllocationPoint(
        workers=workers,
        samples_per_s=speed,
        efficiency=efficiency,
        steps=5,
        samples_per_step=8,
        step_time_s=8 / speed,
        step_time_low_s=7 / speed,
        step_time_high_s=9 / speed,
        rss_bytes=300_000_000,
        device_bytes=device_bytes,
    )


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
    points=(point(1, 100.0, 1.0), point(2, 160.0, 0.8), point(4, 150.0, 0.375)),
)


def shown(profile: MeasuredProfile) -> str:
    console = Console(width=120, record=True, file=open(os.devnull, "w"))  # noqa: SIM115 - never written to
    console.print(render_profile(profile, "a remark"))
    return "\n".join(line.rstrip() for line in console.export_text().splitlines())


def allocation(workers: int, first: int, step_time_s: float) -> Allocation:
    steps = MeasuredSteps(generation=3 - workers, workers=workers, first=first, last=first + 4)
    records = [
        MetricsRecord(
            step=step, epoch=0, at_s=0.0, generation=1, workers=1, step_time_s=step_time_s, samples=8
        )
        for step in range(first, first + 5)
    ]
    peaks = [
        MemoryPeak(worker=f"w{n}", rss_bytes=10 * n, device_bytes=None, device_type="cpu")
        for n in range(workers)
    ]
    return Allocation(steps=steps, peaks=tuple(peaks), records=tuple(records))


def ended(phase: JobPhase, message: str = "", traceback: str | None = None) -> Outcome:
    return Outcome(
        job="j",
        name="profile",
        phase=phase,
        exit_code=Exit.DONE,
        message=message,
        step=40,
        values={},
        seconds=1.0,
        failed_worker="w1" if traceback else None,
        traceback=traceback,
    )


WHOLE = Measurement(
    plan=PLAN,
    allocations=(allocation(2, 3, 0.05), allocation(1, 13, 0.08)),
    signature=SIGNATURE,
    outcome=ended(JobPhase.STOPPED),
    step_time_s=0.1,
    interrupted=False,
)


def test_a_measurement_in_which_something_was_lost_says_so_and_asks_for_no_more_steps() -> None:
    lost = replace(WHOLE, allocations=WHOLE.allocations[1:], gave_up=True)
    assert lost.explain() == (
        "not all that was measured with 2 workers was told: a worker was lost just then, or the disk is "
        "full; measure again; --partial writes what was measured"
    )


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.write_text("x = 1\n")
    return path


def measure(monkeypatch: pytest.MonkeyPatch, measurement: Measurement) -> list[Finding]:
    """Let every script measure like this; return what was asked for."""
    asked: list[Finding] = []

    def measure_script(folder: Path, finding: Finding, out: object) -> Measurement:
        assert folder.is_dir()
        asked.append(finding)
        return measurement

    monkeypatch.setattr(command, "measure_script", measure_script)
    return asked


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--max", "0"), "--min 1 is more than --max 0"),
        (("--min", "0", "--max", "2"), "--min 0: a job runs with at least 1 worker"),
        (("--min", "3", "--max", "2"), "--min 3 is more than --max 2"),
        (("--max", "2", "--steps", "3"), "--steps 3 are too few"),
        (("--max", "4", "--devices", "2"), "4 workers need 4 devices, one each, and 2 may be used here"),
        (("--max", "4", "--virtual-workers", "2"), "4 workers cannot share 2 virtual workers"),
        (("--allocations", "a"), "--allocations 'a' is no list"),
        (("--out", "nowhere/p.json", "--max", "2"), "--out nowhere/p.json is no file that can be written"),
        (("--out", ".", "--max", "2"), "--out . is no file that can be written"),
        (("--out", "train.py", "--max", "2"), "train.py is no profile that `elastane profile` has written"),
        (("--devices", "gpu7", "--max", "2"), "--devices 'gpu7' is neither a number nor a list"),
        (("--max", "two"), "Invalid value for '--max'"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_starts(
    script: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    before = script.read_text()
    assert main(["profile", "train.py", *arguments]) == Exit.USAGE
    out, err = capsys.readouterr()
    assert (out, err.startswith(f"elastane: {message}")) == ("", True), err
    assert [path.name for path in script.parent.iterdir()] == ["train.py"]
    assert script.read_text() == before


def test_a_script_that_is_missing_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", str(tmp_path / "no.py"), "--json"]) == Exit.USAGE
    assert json.loads(capsys.readouterr().out)["error"]["message"].startswith(
        f"the script {tmp_path}/no.py does not exist"
    )


def test_a_job_is_run_as_the_flags_say_and_saves_nothing(script: Path) -> None:
    how = RunFlags(virtual_workers=8, threads=2, devices="6")
    finding = make_finding(script, ("--lr", "1"), SizeFlags(minimum=2, maximum=3, steps=7), how, None)
    assert (finding.script, finding.arguments, finding.devices) == (script, ("--lr", "1"), "6")
    assert finding.plan == ProfilePlan(allocations=(3, 2), steps=7)
    launch = finding.launch
    assert (launch.virtual_workers, launch.threads, launch.profile) == (8, 2, finding.plan)
    assert launch.checkpoints == CheckpointPlan(every_s=None)


def test_without_a_number_as_many_are_measured_as_there_are_devices_or_virtual_workers(script: Path) -> None:
    def largest(**flags: object) -> int:
        return make_finding(script, (), SizeFlags(), RunFlags(**flags), None).plan.allocations[0]  # type: ignore[arg-type]

    assert largest(devices="6") == 6
    assert largest(devices="6", virtual_workers=4) == 4
    assert largest() == max(1, len(os.sched_getaffinity(0)))


def test_a_measurement_is_written_shown_and_drawn(
    script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = measure(monkeypatch, WHOLE)
    assert main(["profile", "train.py", "--max", "2", "--steps", "5", "--", "--lr", "1"]) == Exit.DONE
    assert [finding.arguments for finding in asked] == [("--lr", "1")]
    made = load_profile(script.parent / "train.profile.json")
    assert (made.name, made.script, made.arguments) == ("train", str(script), ("--lr", "1"))
    assert (made.virtual_workers, made.batch, made.device_type, made.threads) == (8, "", "cpu", 1)
    assert [(p.workers, p.samples_per_s, p.efficiency) for p in made.points] == [
        (1, 100.0, 1.0),
        (2, 160.0, 0.8),
    ]
    assert (script.parent / "train.profile.png").read_bytes().startswith(b"\x89PNG")
    out = capsys.readouterr().out
    assert out.startswith("train: 8 virtual workers, on cpu\nWORKERS")
    assert "2 numbers of workers in " in out
    assert "; written to train.profile.json and train.profile.png" in " ".join(out.split())


def test_a_measurement_as_json_has_the_profile_and_where_it_is(
    script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measure(monkeypatch, WHOLE)
    assert main(["profile", "train.py", "--json", "-o", "p.json", "--name", "cnn"]) == Exit.DONE
    data = json.loads(capsys.readouterr().out)
    assert (data["file"], data["picture"]) == ("p.json", "p.png")
    assert msgspec.convert(data["profile"], MeasuredProfile) == load_profile(script.parent / "p.json")
    assert data["profile"]["name"] == "cnn"


def test_points_are_added_to_a_profile_that_is_there(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = measure(monkeypatch, WHOLE)
    save_profile(PROFILE, Path("p.json"))
    assert main(["profile", "train.py", "--max", "2", "-o", "p.json", "--add"]) == Exit.DONE
    assert [finding.base for finding in asked] == [PROFILE]
    made = load_profile(Path("p.json"))
    assert made.name == "digits"
    assert [(p.workers, p.samples_per_s) for p in made.points] == [(1, 100.0), (2, 160.0), (4, 150.0)]
    assert main(["profile", "train.py", "--max", "2", "-o", "p.json"]) == Exit.DONE
    assert [p.workers for p in load_profile(Path("p.json")).points] == [1, 2]


def test_points_taken_with_other_threads_are_not_added(script: Path) -> None:
    with pytest.raises(ProfileMismatchError, match="taken with 1 threads per worker, this one has 2"):
        make_finding(script, (), SizeFlags(maximum=2), RunFlags(threads=2), PROFILE)


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        (
            {"allocations": WHOLE.allocations[:1], "outcome": ended(JobPhase.FINISHED)},
            Exit.FAILED,
            "the script ended after 40 steps, when 1 of 2 numbers of workers had been measured; some 48 "
            "steps are needed: let it train longer, or take fewer --steps or --allocations; --partial writes "
            "what was measured",
        ),
        (
            {"allocations": (), "outcome": ended(JobPhase.FINISHED)},
            Exit.FAILED,
            "the script ended after 40 steps, when 0 of 2 numbers of workers had been measured; some 59 "
            "steps are needed: let it train longer, or take fewer --steps or --allocations",
        ),
        (
            {
                "allocations": (),
                "outcome": ended(JobPhase.FAILED, "ValueError: no", "Traceback\nValueError: no"),
            },
            Exit.FAILED,
            "ValueError: no (0 of 2 numbers of workers had been measured)",
        ),
        (
            {
                "allocations": (),
                "outcome": ended(
                    JobPhase.FAILED,
                    "2 workers cannot share 1 virtual workers",
                    "Traceback\nelastane.model.errors.ConfigError: 2 workers cannot share 1 virtual workers",
                ),
            },
            Exit.USAGE,
            "2 workers cannot share 1 virtual workers (0 of 2 numbers of workers had been measured)",
        ),
    ],
)
def test_a_script_that_ends_too_soon_writes_nothing_and_says_why(
    script: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, object],
    code: Exit,
    message: str,
) -> None:
    measure(monkeypatch, replace(WHOLE, **changes))
    assert main(["profile", "train.py", "--max", "2", "--steps", "5"]) == code
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[-1]) == ("", f"elastane: {message}")
    raised = "ValueError" in message
    assert ("first error, in worker w1:\nTraceback\n" in err) is raised
    assert [path.name for path in script.parent.iterdir()] == ["train.py"]


def test_what_was_measured_is_written_if_that_is_asked_for(
    script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    short = replace(WHOLE, allocations=WHOLE.allocations[:1], outcome=ended(JobPhase.FINISHED))
    measure(monkeypatch, short)
    assert main(["profile", "train.py", "--max", "2", "--partial"]) == Exit.FAILED
    assert [p.workers for p in load_profile(Path("train.profile.json")).points] == [2]
    assert "1 of 2 numbers of workers had been measured" in capsys.readouterr().err


def test_nothing_is_written_where_nothing_was_measured(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measure(monkeypatch, replace(WHOLE, allocations=(), outcome=ended(JobPhase.FINISHED)))
    assert main(["profile", "train.py", "--max", "2", "--partial"]) == Exit.FAILED
    assert [path.name for path in script.parent.iterdir()] == ["train.py"]


def test_an_interrupted_measurement_writes_nothing(
    script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measure(monkeypatch, replace(WHOLE, allocations=WHOLE.allocations[:1], interrupted=True))
    assert main(["profile", "train.py", "--max", "2", "--partial"]) == Exit.INTERRUPTED
    assert capsys.readouterr() == ("", "interrupted; nothing was written\n")
    assert [path.name for path in script.parent.iterdir()] == ["train.py"]


def test_the_table_shows_every_size_and_what_stands_out() -> None:
    assert shown(PROFILE) == (
        "digits: 8 virtual workers, on cpu\n"
        "WORKERS  SAMPLES/S  SPEEDUP  EFFICIENCY  STEP TIME        MIDDLE HALF  MEMORY\n"
        "      1        100     1.00        100%      80 ms      70 ms - 90 ms  300 MB\n"
        "      2        160     1.60         80%      50 ms  43.8 ms - 56.2 ms  300 MB\n"
        "      4        150     1.50         38%    53.3 ms    46.7 ms - 60 ms  300 MB\n"
        "\n"
        "fastest with 2 workers, most efficient with 1 worker\n"
        "a remark"
    )


def test_memory_of_devices_is_shown_where_there_is_any() -> None:
    on_device = msgspec.structs.replace(
        PROFILE, batch="FixedGlobal(64)", device_type="NVIDIA H200", points=(point(1, 10.0, 1.0, 2_000_000),)
    )
    text = shown(on_device)
    assert text.startswith("digits: FixedGlobal(64), on NVIDIA H200\n")
    assert "DEVICE MEMORY" in text
    assert "2 MB" in text
    assert "fastest, and most efficient, with 1 worker" in text


def test_a_picture_of_the_same_profile_has_the_same_bytes() -> None:
    assert draw_profile(PROFILE) == draw_profile(PROFILE)


def test_a_place_may_hold_a_profile_and_nothing_else(tmp_path: Path) -> None:
    assert check_place(tmp_path / "new.json") is None
    save_profile(PROFILE, tmp_path / "p.json")
    assert check_place(tmp_path / "p.json") == PROFILE
    (tmp_path / "notes.json").write_text("{}")
    with pytest.raises(ConfigError, match="It is left as it is: name another file with --out"):
        check_place(tmp_path / "notes.json")
