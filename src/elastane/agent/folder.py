"""Where the workers of a node leave a job's events, metrics and logs, and whether the node can run its
script.

A job's folder is made where the job is made. On another node the same path is the same folder if both see
one file system; a job's id is never used twice, so a folder of that name can be no other's. Else the node
keeps a folder of its own under its own home.
"""

from pathlib import Path

from elastane.jobs.registry import hash_script, job_folder
from elastane.model.errors import ConfigError
from elastane.model.records import JobInfo


def open_folder(info: JobInfo, home: Path) -> Path:
    """Return the job's folder on this node; make one under `home` if the job's own is not to be seen here.

    Raises:
        OSError: it cannot be made.
    """
    own = Path(info.directory)
    if own.name == info.job and own.is_dir():
        return own
    folder = job_folder(home, info.job)
    (folder / "logs").mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def check_script_here(info: JobInfo) -> None:
    """Raise ConfigError unless this machine has the job's script, unchanged, where the job says it is."""
    path = Path(info.script)
    if not path.is_file():
        raise ConfigError(
            f"job {info.job} runs {path}, which is not on this machine; copy it to the same path, with the "
            "modules and data it needs"
        )
    if info.script_sha256 and hash_script(path) != info.script_sha256:
        raise ConfigError(
            f"{path} differs from the script with which job {info.job} was made; all nodes must run the same"
        )
