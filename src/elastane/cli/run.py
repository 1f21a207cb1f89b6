"""The commands that run a job in the foreground: run and resume."""

import os
import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from elastane.agent.folder import open_folder
from elastane.checkpoint.catalog import find_newest
from elastane.checkpoint.manifest import Manifest
from elastane.checkpoint.target import Target
from elastane.cli.checkpoints import open_checkpoints
from elastane.cli.home import STORE_VARIABLE, Home, make_home, open_home
from elastane.cli.options import Crew, Desk, JobArgument, LaunchFlags, Stage, WorkersOption
from elastane.cli.outcome import compute_outcome, tell_outcome
from elastane.cli.output import Output
from elastane.cli.parse import parse_workers
from elastane.cli.script import check_script, make_name
from elastane.cli.serve import serve_job
from elastane.jobs.registry import NewJob, create_job, find_job, name_key, read_launch, reopen_job
from elastane.jobs.requests import JobPicture, check_wanted, read_picture
from elastane.model.errors import ConfigError, JobStateError, StateFileError
from elastane.model.records import JobInfo, JobStatus, Spec
from elastane.store.base import Store
from elastane.store.lease_limits import check_lease_ttl
from elastane.store.open import open_store

NAME_PATIENCE_S = 15.0
"""Three lives of an agent's lease: until then the name of a killed one is free."""
NAME_INTERVAL_S = 0.1
MAX_NAMES = 1000
"""Names tried for a job that was given none: more living jobs of one script no machine has."""

ScriptArguments = Annotated[
    list[str] | None, typer.Argument(metavar="[-- ARGS]", help="Arguments for the script, after `--`.")
]


def run(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="The Python file that trains.")],
    arguments: ScriptArguments = None,
    *,
    crew: Crew,
    flags: LaunchFlags,
    stage: Stage,
    desk: Desk,
) -> int:
    """Run a training script as an elastic job, on this machine and on those that serve it too, and show it.

    Ctrl-C once stops it gracefully: the state is saved and `elastane resume` goes on. Twice ends it at once.
    """
    out = desk.output()
    # Several nodes and no number: one worker each.
    wish = parse_workers(crew.workers or str(crew.nodes))
    path = check_script(script)
    launch = flags.make_launch()
    way = crew.choose_recovery(os.environ)
    if way.remark:
        out.remark(way.remark)
    where = desk.resolve()
    check_meeting_place(where, crew.nodes, stage)
    check_lease_ttl(where.store_url, launch.lease_s)
    make_home(where)
    with open_store(where.store_url) as store:
        new = NewJob(
            name=crew.name or _find_free_name(store, make_name(path)),
            script=str(path),
            arguments=tuple(arguments or ()),
            spec=Spec(wanted=wish.wanted, minimum=wish.minimum, nodes=crew.nodes, recovery=way.recovery),
            launch=launch,
            node=stage.name(),
        )
        info = create_job(store, where.path, new)
    return _serve(where, info, stage, out)


def resume(
    job: JobArgument,
    *,
    workers: WorkersOption = None,
    stage: Stage,
    desk: Desk,
) -> int:
    """Go on with a job that was stopped, failed or died from its newest checkpoint, under the same id."""
    out = desk.output()
    where = desk.resolve()
    with open_home(where) as store:
        info = find_job(store, job)
        picture = read_picture(store, info.job)
        check_resumable(info, picture)
        launch = read_launch(store, info.job)
        check_meeting_place(where, picture.view.spec.nodes, stage)
        target = open_checkpoints(launch.checkpoints, info, where, picture.agents)
        saved = find_saved_state(target, info, picture.view.status)
        spec = make_resumed_spec(picture.view.spec, workers, saved.virtual_workers)
        launch = msgspec.structs.replace(launch, virtual_workers=saved.virtual_workers or None)
        check_lease_ttl(where.store_url, launch.lease_s)
        check_script(Path(info.script))
        _await_last_agent(store, info)
        reopen_job(store, info.job, spec, launch)
    out.remark(f"job {info.job} goes on after step {saved.step}")
    return _serve(where, info, stage, out)


def check_meeting_place(home: Home, nodes: int, stage: Stage) -> None:
    """Raise ConfigError if a job for other machines is to be known only in a file of this one."""
    if home.store_url.startswith("sqlite://") and (nodes > 1 or stage.elsewhere):
        raise ConfigError(
            f"a job on {nodes} nodes needs a store that all of them reach, and {home.store_url} is a file of "
            f"this machine; start etcd and name it with --store etcd://HOST:2379/NAME or {STORE_VARIABLE}"
        )


def check_resumable(info: JobInfo, picture: JobPicture) -> None:
    """Raise JobStateError unless the job has ended short of its end; the message says what to do."""
    phase = picture.view.status.phase
    if not phase.ended and not picture.agents:
        raise JobStateError(
            f"job {info.job} is {phase.value}, but nobody runs it (its `elastane run` was killed?); "
            f"end it with `elastane stop {info.job}`, then resume it"
        )
    if not phase.ended:
        raise JobStateError(f"job {info.job} is {phase.value}; stop it first (`elastane stop {info.job}`)")


def find_saved_state(target: Target, info: JobInfo, status: JobStatus) -> Manifest:
    """Return the newest checkpoint that looks whole; the workers check its sums.

    Args:
        target: where the checkpoints are, as this machine sees it.
        info: the job.
        status: how it ended.

    Raises:
        JobStateError: there is none.
        StateFileError: there is none here; the message says on which node it was saved.
        OSError: the place where they lie cannot be read.
    """
    newest = find_newest(target, info.job)
    if newest is None and status.saved is not None:
        raise StateFileError(
            f"the state of job {info.job} was saved in {status.saved} on node {status.node or '(unknown)'}, "
            f"and {target.url} here holds none: resume it there, or copy that folder to {target.url}"
        )
    if newest is None:
        raise JobStateError(
            f"job {info.job} has saved no state in {target.url}: it ended before its first checkpoint, and "
            "not by a graceful stop (one Ctrl-C, or `elastane stop`); start the script again with "
            "`elastane run`"
        )
    return newest


def make_resumed_spec(before: Spec, workers: str | None, virtual_workers: int) -> Spec:
    """Return what a resumed job wants: as many workers as before unless said otherwise.

    Raises:
        ConfigError: it has fewer virtual workers than that.
    """
    wanted, minimum = before.wanted, before.minimum
    if workers is not None:
        wish = parse_workers(workers)
        wanted, minimum = wish.wanted, wish.minimum
    check_wanted(wanted, virtual_workers)
    kept = msgspec.structs.replace(before, leaving={}, targets=(), vacating=(), stop=False, abort=False)
    return msgspec.structs.replace(kept, wanted=wanted, minimum=min(minimum, wanted))


def _await_last_agent(store: Store, info: JobInfo) -> None:
    """Wait until the agent of the run before has given up the name; a killed one keeps it for a while."""
    deadline_s = time.monotonic() + NAME_PATIENCE_S
    while time.monotonic() < deadline_s:
        entry = store.get(name_key(info.name))
        if entry is None or entry.value.decode() != info.job:
            return
        time.sleep(NAME_INTERVAL_S)


def _find_free_name(store: Store, base: str) -> str:
    for number in range(1, MAX_NAMES):
        name = base if number == 1 else f"{base}-{number}"
        if store.get(name_key(name)) is None:
            return name
    raise ConfigError(f"{MAX_NAMES} jobs called {base!r} are running; give this one a name with --name")


def _serve(home: Home, info: JobInfo, stage: Stage, out: Output) -> int:
    """Serve the job until it ends and tell how it ended."""
    folder = open_folder(info, home.path)
    out.remark(f"job {info.job} ({info.name}), in {folder}")
    if stage.elsewhere:
        out.remark(
            "what its workers write stays on the nodes that serve it: ask there with "
            f"`elastane events {info.job}` and `logs`, and anywhere with `show`"
        )
    begun_s = time.monotonic()
    snapshot = serve_job(home, msgspec.structs.replace(info, directory=str(folder)), stage, out)
    outcome = compute_outcome(snapshot, time.monotonic() - begun_s)
    tell_outcome(out, outcome)
    return outcome.exit_code
