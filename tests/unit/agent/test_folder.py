"""Where a node keeps what the workers of a job leave, and whether it can run the job's script."""

from pathlib import Path

import pytest
from msgspec import structs

from elastane.agent.folder import check_script_here, open_folder
from elastane.jobs.registry import hash_script
from elastane.model.errors import ConfigError
from elastane.model.ids import JobId
from elastane.model.records import JobInfo


@pytest.fixture
def info(tmp_path: Path) -> JobInfo:
    script = tmp_path / "train.py"
    script.write_text("x = 1\n")
    return JobInfo(
        job=JobId("1234abcd"),
        name="j",
        script=str(script),
        directory=str(tmp_path / "first" / "jobs" / "1234abcd"),
        created_at_s=0.0,
        script_sha256=hash_script(script),
    )


def test_a_node_that_sees_the_jobs_folder_uses_it(info: JobInfo, tmp_path: Path) -> None:
    Path(info.directory).mkdir(parents=True)
    assert open_folder(info, tmp_path / "second") == Path(info.directory)
    assert not (tmp_path / "second").exists()


def test_a_node_that_does_not_see_it_makes_one_for_its_owner_only(info: JobInfo, tmp_path: Path) -> None:
    folder = open_folder(info, tmp_path / "second")
    assert folder == tmp_path / "second" / "jobs" / "1234abcd"
    assert sorted(path.name for path in folder.iterdir()) == ["logs"]
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o700}
    assert open_folder(info, tmp_path / "second") == folder


def test_the_script_must_be_the_same_on_all_nodes(info: JobInfo) -> None:
    check_script_here(info)
    Path(info.script).write_text("x = 2\n")
    with pytest.raises(ConfigError, match="differs from the script with which job 1234abcd was made"):
        check_script_here(info)
    check_script_here(structs.replace(info, script_sha256=""))
    Path(info.script).unlink()
    with pytest.raises(ConfigError, match="which is not on this machine; copy it to the same path"):
        check_script_here(info)
