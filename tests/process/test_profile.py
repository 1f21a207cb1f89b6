"""`elastane profile` end to end: real jobs that are scaled in, signals, scripts that end too soon."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from agent_world import DEADLINE_S, nothing_left_behind
from elastic_world import SCRIPT, as_flag

from elastane.core.profiling import check_profile
from elastane.model.errors import ProfileMismatchError
from elastane.model.records import ModelSignature
from elastane.observe.profiles import load_profile
from elastane.sim.request import SimRequest, compare
from elastane.sim.workload import WorkloadOptions

pytestmark = [pytest.mark.process, pytest.mark.timeout(4 * DEADLINE_S)]

POLICY_SCRIPT = Path(__file__).parent / "policy_script.py"
LONG = ("--samples", "4220", "--epochs", "400", "--pace", as_flag({"else": 0.002}))
"""More steps than any test needs; each turn of a virtual worker takes 2 ms or more."""
TRACE = "job_id,submit_time,devices,duration,model\n" + "".join(
    f"{i},{i * 60},{1 + i % 2},{200 + 31 * i},digits\n" for i in range(12)
)


def command(script: Path, flags: Sequence[str], arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "elastane.cli.main", "profile", str(script), *flags, "--", *arguments]


def environment(folder: Path) -> dict[str, str]:
    """Give the command a folder of its own for temporary files, so that its leftovers would be seen."""
    (folder / "tmp").mkdir(exist_ok=True)
    return {**os.environ, "TMPDIR": str(folder / "tmp")}


def call(
    folder: Path, script: Path, flags: Sequence[str], arguments: Sequence[str]
) -> subprocess.CompletedProcess[str]:
    with nothing_left_behind():
        done = subprocess.run(
            command(script, flags, arguments),
            cwd=folder,
            env=environment(folder),
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
    assert leftovers(folder) == []
    assert processes_of(folder) == []
    return done


def leftovers(folder: Path) -> list[Path]:
    """Return what is left in the folder for temporary files, without torch's own cache."""
    return [path for path in (folder / "tmp").iterdir() if not path.name.startswith("torchinductor")]


def processes_of(folder: Path) -> list[int]:
    """Return the processes that inherited the environment of a command in this folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TMPDIR") == str(folder / "tmp"):
                found.append(process.pid)
        except (psutil.Error, OSError):
            continue
    return found


@dataclass(frozen=True)
class Sample:
    """A profile of the training script, made once for all tests."""

    folder: Path
    done: subprocess.CompletedProcess[str]

    @property
    def file(self) -> Path:
        return self.folder / "p.json"


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    folder = tmp_path_factory.mktemp("profile")
    flags = ("--min", "1", "--max", "3", "--steps", "6", "--name", "digits", "--json", "-o", "p.json")
    return Sample(folder, call(folder, SCRIPT, flags, LONG))


def test_a_job_is_measured_from_the_largest_size_down(sample: Sample) -> None:
    done = sample.done
    assert done.returncode == 0, done.stderr
    made = load_profile(sample.file)
    assert json.loads(done.stdout)["profile"]["model"] == made.model
    assert (made.virtual_workers, made.batch, made.device_type) == (4, "", "cpu")
    assert [(p.workers, p.steps, p.samples_per_step) for p in made.points] == [(n, 6, 20) for n in (1, 2, 3)]
    assert max(p.efficiency for p in made.points) == 1.0
    assert all(p.step_time_low_s <= p.step_time_s <= p.step_time_high_s for p in made.points)
    assert all(p.rss_bytes > 50_000_000 and p.device_bytes is None for p in made.points)
    lines = [line for line in done.stderr.splitlines() if "samples/s" in line]
    assert [line.split(":")[0] for line in lines] == ["3 workers", "2 workers", "1 worker"]
    assert (sample.folder / "p.png").read_bytes().startswith(b"\x89PNG")


def test_the_simulator_takes_a_profile_that_was_measured(sample: Sample, tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(TRACE)
    request = SimRequest(
        trace=tmp_path / "jobs.csv",
        policies=("fifo", "elastane"),
        cluster="1x4",
        options=WorkloadOptions(profiles=str(sample.file)),
    )
    comparison = compare(request)
    assert {run.policy for run in comparison.runs} == {"fifo", "elastane"}
    assert list(comparison.preparation.workload.profiles) == ["digits"]


def test_a_profile_belongs_to_its_model(sample: Sample) -> None:
    with pytest.raises(ProfileMismatchError, match="another model"):
        check_profile(
            load_profile(sample.file), ModelSignature(virtual_workers=4, entries=(("weight", "float32 [1]"),))
        )


def test_sizes_are_added_to_a_profile_of_the_same_model_and_to_no_other(
    sample: Sample, tmp_path: Path
) -> None:
    file = tmp_path / "p.json"
    file.write_bytes(sample.file.read_bytes())
    more = ("--allocations", "4", "--steps", "5", "-o", "p.json", "--add")
    refused = call(tmp_path, SCRIPT, more, (*LONG, "--width", "17"))
    assert refused.returncode == 2
    assert "belongs to another model or optimizer than this script makes" in refused.stderr
    fewer = call(tmp_path, SCRIPT, (*more, "--virtual-workers", "8"), LONG)
    assert fewer.returncode == 2
    assert "has 4 virtual workers, this job 8" in fewer.stderr
    assert file.read_bytes() == sample.file.read_bytes()
    assert call(tmp_path, SCRIPT, more, LONG).returncode == 0
    assert [(p.workers, p.steps) for p in load_profile(file).points] == [(1, 6), (2, 6), (3, 6), (4, 5)]


@pytest.mark.parametrize("policy", ["FixedGlobal(12)", "CappedLocal(local=4, max_global=8)"])
def test_a_batch_policy_is_measured_with_the_batch_of_each_size(tmp_path: Path, policy: str) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    (marks / "go").touch()
    arguments = ("--policy", policy, "--samples", "4220", "--epochs", "400", "--marks", str(marks))
    flags = ("--max", "2", "--steps", "5", "--devices", "2", "-o", "p.json")
    done = call(tmp_path, POLICY_SCRIPT, flags, arguments)
    assert done.returncode == 0, done.stderr
    made = load_profile(tmp_path / "p.json")
    assert made.batch.startswith(policy.partition("(")[0])
    expected = [12, 12] if policy.startswith("Fixed") else [4, 8]
    assert [point.samples_per_step for point in made.points] == expected


def test_a_script_that_ends_too_soon_says_how_many_steps_it_would_need(tmp_path: Path) -> None:
    done = call(tmp_path, SCRIPT, ("--max", "2", "--steps", "20"), ("--samples", "211", "--epochs", "1"))
    assert done.returncode == 1
    told = re.search(
        r"the script ended after 11 steps, when 0 of 2 numbers of workers had been measured; some (\d+) "
        "steps are needed",
        done.stderr,
    )
    assert told is not None, done.stderr
    assert int(told[1]) >= 11 + 2 * 23
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tmp"]


def test_more_workers_than_virtual_workers_are_refused_with_the_number_that_can_be(tmp_path: Path) -> None:
    done = call(tmp_path, SCRIPT, ("--max", "5", "--steps", "5"), LONG)
    assert done.returncode == 2
    assert "5 workers cannot share 4 virtual workers" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_script_that_raises_shows_its_traceback(tmp_path: Path) -> None:
    script = tmp_path / "broken.py"
    script.write_text(
        "import elastane\n\njob = elastane.Job(virtual_workers=2)\nraise ValueError('no data')\n"
    )
    done = call(tmp_path, script, ("--max", "2"), ())
    assert done.returncode == 1
    assert 'broken.py", line 4' in done.stderr
    assert "ValueError: no data (0 of 2 numbers of workers had been measured)" in done.stderr


def test_one_signal_ends_the_measurement_and_nothing_is_written_or_left(tmp_path: Path) -> None:
    flags = ("--max", "2", "--steps", "5000", "--json")
    with nothing_left_behind():
        process = subprocess.Popen(
            command(SCRIPT, flags, LONG),
            cwd=tmp_path,
            env=environment(tmp_path),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        assert process.stderr.readline().startswith("measuring 2 numbers of workers, from 2 down")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, out) == (130, "")
    assert err.endswith("interrupted; nothing was written\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tmp"]
    assert leftovers(tmp_path) == []
    assert processes_of(tmp_path) == []
