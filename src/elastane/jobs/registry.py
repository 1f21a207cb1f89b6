"""Creating, reopening and finding jobs: ids, names, folders and the first records in the store.

A job's name belongs to it while it lives: the key `names/NAME` hangs on a lease, first a short one of whoever
creates the job, then that of the job's agent, so a dead job blocks no name. Ids are never used again.
"""

import hashlib
import re
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from elastane.core.view import encode
from elastane.jobs.requests import check_wanted
from elastane.model.errors import ConfigError, JobNotFoundError, JobStateError
from elastane.model.ids import JobId, NodeId
from elastane.model.records import JOBS_PREFIX, JobInfo, JobKeys, JobPhase, JobStatus, Launch, Spec
from elastane.model.topology import Topology
from elastane.store.base import Absent, Compare, DeleteKey, DeletePrefix, ModRevisionIs, Put, Store

NAMES_PREFIX = "names/"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
"""Parts of letters, digits, - and _ joined by single dots: no separators, no "..", no leading dash."""
_NAME_LENGTH = 64
_ID_BYTES = 4
"""8 hexadecimal digits: short enough to type, and a clash is caught by the store's compare."""
_CLAIM_TTL_S = 30.0
"""How long a name is kept for a job whose agent has not started: a cold start takes about 5 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """Hold what one must say to create a job."""

    name: str
    script: str
    arguments: tuple[str, ...] = ()
    spec: Spec
    launch: Launch = Launch()  # noqa: RUF009 - frozen
    node: NodeId = NodeId("")  # noqa: RUF009 - a string
    """The node on which the job is made."""


def check_name(name: str) -> None:
    """Raise ConfigError unless `name` may name a job (and so a folder, a key, a column)."""
    if len(name) <= _NAME_LENGTH and _NAME.fullmatch(name):
        return
    raise ConfigError(
        f"job name {name[:80]!r} cannot be used; take 1 to {_NAME_LENGTH} letters, digits, - and _, "
        "parts joined by single dots, beginning with a letter or digit"
    )


def name_key(name: str) -> str:
    """Return the key that holds the id of the living job called `name`."""
    return NAMES_PREFIX + name


def create_job(store: Store, home: Path, new: NewJob) -> JobInfo:
    """Create a job's folder (0700) and its records; nothing runs yet.

    Raises:
        ConfigError: the name or the number of workers cannot be used, or the script is missing.
        JobStateError: a living job has this name.
        OSError: the folder cannot be made.
    """
    check_name(new.name)
    check_wanted(new.spec.wanted, new.launch.virtual_workers or 0)
    script = _check_script(new.script)
    _check_name_free(store, new.name)
    job = JobId(secrets.token_hex(_ID_BYTES))
    directory = _make_folder(home, job)
    info = JobInfo(
        job=job,
        name=new.name,
        script=str(script),
        arguments=new.arguments,
        directory=str(directory),
        created_at_s=time.time(),
        node=new.node,
        script_sha256=hash_script(script),
    )
    keys = JobKeys(job)
    lease = store.grant(_CLAIM_TTL_S)
    result = store.transact(
        compares=[Absent(key=name_key(new.name)), Absent(key=keys.info)],
        puts=[
            Put(key=name_key(new.name), value=job.encode(), lease=lease),
            Put(key=keys.info, value=encode(info)),
            Put(key=keys.launch, value=encode(new.launch)),
            Put(key=keys.spec, value=encode(new.spec)),
            Put(key=keys.status, value=encode(JobStatus(phase=JobPhase.STARTING))),
        ],
    )
    if not result.succeeded:
        store.revoke(lease)
        _check_name_free(store, new.name)
        raise JobStateError(f"the name {new.name!r} was taken at the same moment; try again")
    return info


def reopen_job(store: Store, job: JobId, spec: Spec, launch: Launch | None = None) -> JobInfo:
    """Make a stopped or failed job ready to run again from its saved state, with `spec`.

    It is run as before unless `launch` says otherwise.

    Raises:
        JobStateError: the job has not ended, has finished, or another living job has its name.
        JobNotFoundError: there is no such job.
    """
    keys = JobKeys(job)
    entries = {entry.key: entry for entry in store.range(keys.prefix).entries}
    if keys.info not in entries or keys.status not in entries:
        raise JobNotFoundError(f"no job {job!r} in this store; `elastane ps` lists the jobs")
    info = msgspec.json.decode(entries[keys.info].value, type=JobInfo)
    status = msgspec.json.decode(entries[keys.status].value, type=JobStatus)
    phase = status.phase
    if phase not in (JobPhase.STOPPED, JobPhase.FAILED):
        raise JobStateError(f"job {job} is {phase.value}; only stopped or failed jobs can be resumed")
    check_wanted(spec.wanted, 0)
    _check_name_free(store, info.name)
    lease = store.grant(_CLAIM_TTL_S)
    compares: list[Compare] = [
        ModRevisionIs(key=keys.status, revision=entries[keys.status].mod_revision),
        Absent(key=name_key(info.name)),
    ]
    generations = status.earlier_generations
    if keys.current in entries:
        generations = msgspec.json.decode(entries[keys.current].value, type=Topology).generation
    reopened = JobStatus(phase=JobPhase.STARTING, earlier_generations=generations)
    leftovers = ("acks/", "exits/", "dismissed/", "members/", "topology/", "rendezvous/", "rosters/")
    result = store.transact(
        compares=compares,
        puts=[
            Put(key=name_key(info.name), value=job.encode(), lease=lease),
            Put(key=keys.spec, value=encode(spec)),
            Put(key=keys.status, value=encode(reopened)),
            *([Put(key=keys.launch, value=encode(launch))] if launch is not None else []),
        ],
        deletes=[
            *(DeletePrefix(prefix=keys.prefix + part) for part in leftovers),
            DeleteKey(key=keys.leader),
            DeleteKey(key=keys.signature),
        ],
    )
    if not result.succeeded:
        store.revoke(lease)
        raise JobStateError(f"job {job} was changed by somebody else at the same moment; look at it again")
    return info


def read_launch(store: Store, job: JobId) -> Launch:
    """Return how a job's workers are run."""
    entry = store.get(JobKeys(job).launch)
    return Launch() if entry is None else msgspec.json.decode(entry.value, type=Launch)


def hash_script(script: Path) -> str:
    """Return the sha256 of a script, in hexadecimal.

    Raises:
        OSError: it cannot be read.
    """
    return hashlib.sha256(script.read_bytes()).hexdigest()


def list_jobs(store: Store) -> tuple[JobInfo, ...]:
    """Return all jobs of the store, the oldest first."""
    infos = (
        msgspec.json.decode(entry.value, type=JobInfo)
        for entry in store.range(JOBS_PREFIX).entries
        if entry.key.count("/") == 2 and entry.key.endswith("/info")
    )
    return tuple(sorted(infos, key=lambda info: (info.created_at_s, info.job)))


def find_job(store: Store, text: str) -> JobInfo:
    """Return the job with this id, this name or the only one whose id begins so.

    Of several with one name it is the one that lives, else the newest.

    Raises:
        JobNotFoundError: none or several fit; the message says which exist.
    """
    jobs = list_jobs(store)
    holder = store.get(name_key(text))
    living = holder.value.decode() if holder is not None else None
    for exact in (
        [info for info in jobs if info.job == text],
        [info for info in jobs if info.name == text and info.job == living],
        [info for info in jobs if info.name == text],
    ):
        if exact:
            return exact[-1]
    begun = [info for info in jobs if text and info.job.startswith(text)]
    if len(begun) == 1:
        return begun[0]
    if begun:
        listed = ", ".join(f"{info.job} ({info.name})" for info in begun)
        raise JobNotFoundError(f"{text!r} fits {len(begun)} jobs: {listed}; write more of the id")
    newest = ", ".join(f"{info.job} ({info.name})" for info in jobs[-5:]) or "none"
    raise JobNotFoundError(f"no job has the id or name {text!r}; newest jobs: {newest}")


def list_namesakes(store: Store, info: JobInfo) -> tuple[JobInfo, ...]:
    """Return the other jobs with the name of this one, the oldest first."""
    return tuple(other for other in list_jobs(store) if other.name == info.name and other.job != info.job)


def job_folder(home: Path, job: JobId) -> Path:
    """Return the folder of a job under the home folder."""
    return home / "jobs" / job


def log_path(directory: Path, worker: str) -> Path:
    """Return the file that holds what a worker wrote to its standard output and error."""
    return directory / "logs" / f"{worker}.log"


def _check_name_free(store: Store, name: str) -> None:
    entry = store.get(name_key(name))
    if entry is not None:
        raise JobStateError(
            f"a living job is called {name!r} already: {entry.value.decode()}; "
            f"give another name with --name, or stop that one (`elastane stop {entry.value.decode()}`)"
        )


def _check_script(script: str) -> Path:
    path = Path(script).resolve()
    if not path.is_file():
        raise ConfigError(f"the script {script!r} is no file (looked at {path}); check the path")
    return path


def _make_folder(home: Path, job: JobId) -> Path:
    folder = job_folder(home.resolve(), job)
    folder.mkdir(mode=0o700, parents=True)
    (folder / "logs").mkdir(mode=0o700)
    return folder
