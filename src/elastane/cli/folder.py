"""Find a job's files on this machine: events, loss curve, logs, checkpoints; or say which nodes have them.

A job's folder lies where the job was made. A node that does not see it keeps a folder of its own for the job
(see `agent.folder`), so what is found here may be a part of what there is: that is said, too.
"""

from collections.abc import Mapping
from pathlib import Path

from elastane.cli.home import HOME_VARIABLE, Home
from elastane.cli.output import Output
from elastane.jobs.registry import job_folder
from elastane.model.errors import FilesElsewhereError
from elastane.model.ids import NodeId
from elastane.model.records import AgentRecord, JobInfo

Agents = Mapping[NodeId, AgentRecord]


def find_folder(info: JobInfo, home: Home) -> Path | None:
    """Return the job's folder as this machine sees it, else the one that this node keeps; None: neither."""
    for folder in (Path(info.directory), job_folder(home.path, info.job)):
        # Job ids are used once: a folder of that name can be no other job's.
        if folder.name == info.job and folder.is_dir():
            return folder
    return None


def check_folder(info: JobInfo, home: Home, agents: Agents, what: str) -> Path:
    """Return the job's folder on this machine.

    Args:
        info: the job.
        home: the home of this machine.
        agents: those that serve the job now.
        what: what is looked for in it, in the plural.

    Raises:
        FilesElsewhereError: there is none; the message says where the files are and what works here.
    """
    folder = find_folder(info, home)
    if folder is None:
        raise FilesElsewhereError(
            f"the {what} of job {info.job} are not on this machine. {describe_places(info, agents)}: give "
            f"the command there (or name the home of this node's agent with --home or {HOME_VARIABLE}). "
            f"What the store knows is here, too: `elastane show {info.job}`"
        )
    return folder


def describe_places(info: JobInfo, agents: Agents, beside: Path | None = None) -> str:
    """Say which nodes keep files of the job, and where; "" if none is known to but where `beside` is."""
    places = {info.node: info.directory} | {node: agent.directory for node, agent in sorted(agents.items())}
    others = [
        f"{folder} on {f'node {node}' if node else 'the machine where the job was made'}"
        for node, folder in places.items()
        if folder and folder != str(beside or "")
    ]
    return f"They lie in {' and in '.join(others)}" if others else ""


def tell_others(out: Output, places: str, folder: Path, lacking: str = "") -> None:
    """Say that other nodes have more of what was shown, or all of it.

    Args:
        out: what to say it through.
        places: where else files of the job are; see `describe_places`.
        folder: the one at hand.
        lacking: what is not to be found there at all, in the singular; "" if some was.
    """
    if lacking:
        out.remark(f"no {lacking} was written in {folder}. {places}".rstrip(". "))
    elif places:
        out.remark(f"this is what was written on this machine; other nodes have more. {places}")
