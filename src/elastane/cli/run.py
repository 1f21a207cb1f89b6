"""The commands that run a job in the foreground: run and resume."""

import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from elastane.cli.home import Home, make_home, open_home, resolve_home
from elastane.cli.options import HomeOption, JobArgument, JsonOption
from elastane.cli.outcome import compute_outcome, tell_outcome
from elastane.cli.output import Output
from elastane.cli.parse import parse_workers
from elastane.cli.script import check_script, make_name
from elastane.cli.serve import Launch, load_launch, save_launch, serve_job
from elastane.jobs.registry import NewJob, create_job, find_job, name_key, reopen_job
from elastane.jobs.requests import JobPicture, check_wanted, read_picture
from elastane.model.errors import ConfigError, JobStateError, StateFileError
from elastane.model.records import JobInfo, Spec
from elastane.store.base import Store
from elastane.store.open import open_store

MANIFEST = Path("final") / "manifest.json"
"""Where a graceful stop leaves word of the state it saved, in the job's folder."""
MIN_LEASE_S = 0.5
"""A shorter lease would be lost to nothing but a busy machine."""
NAME_PATIENCE_S = 15.0
"""Three lives of an agent's lease: until then the name of a killed one is free."""
NAME_INTERVAL_S = 0.1
MAX_NAMES = 1000
"""Names tried for a job that was given none: more living jobs of one script no machine has."""

WorkersOption = Annotated[
    str | None,
    typer.Option("--workers", "-n", metavar="N|MIN:N", help="Workers to run; MIN:N may start with MIN [1]."),
]
PlainOption = Annotated[
    bool, typer.Option("--plain", help="One line for each event instead of the live view.")
]
ScriptArguments = Annotated[
    list[str] | None, typer.Argument(metavar="[-- ARGS]", help="Arguments for the script, after `--`.")
]


class SavedState(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what the command line must know of a saved state; the worker reads and checks the rest."""

    virtual_workers: int
    """N; 0 if the job has a batch policy."""
    step: int


def run(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="The Python file that trains.")],
    arguments: ScriptArguments = None,
    *,
    workers: WorkersOption = None,
    virtual_workers: Annotated[
        int | None, typer.Option("--virtual-workers", metavar="N", min=1, help="Overrides the script's.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Name of the job [that of the script].")] = None,
    threads: Annotated[
        int, typer.Option("--threads", metavar="N", min=1, help="Threads per operation of each worker.")
    ] = 1,
    grace_s: Annotated[
        float, typer.Option("--grace", metavar="SECONDS", min=0.0, help="How long a graceful stop may take.")
    ] = 30.0,
    lease_s: Annotated[
        float,
        typer.Option("--lease", metavar="SECONDS", min=MIN_LEASE_S, help="Silence that counts as death."),
    ] = 3.0,
    cold: Annotated[
        bool, typer.Option("--cold", help="Start each worker anew, not from a prepared process.")
    ] = False,
    plain: PlainOption = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Run a training script as an elastic job on this machine, and show it.

    Ctrl-C once stops it gracefully: the state is saved and `elastane resume` goes on. Twice ends it at once.
    """
    out = Output(as_json=as_json)
    wish = parse_workers(workers or "1")
    path = check_script(script)
    launch = Launch(
        virtual_workers=virtual_workers, threads=threads, grace_s=grace_s, lease_s=lease_s, cold=cold
    )
    where = resolve_home(home)
    make_home(where)
    with open_store(where.store_url) as store:
        new = NewJob(
            name=name or _find_free_name(store, make_name(path)),
            script=str(path),
            arguments=tuple(arguments or ()),
            spec=Spec(wanted=wish.wanted, minimum=wish.minimum),
            virtual_workers=virtual_workers or 0,
        )
        info = create_job(store, where.path, new)
    save_launch(info, launch)
    return _serve(where, info, launch, wanted=wish.wanted, resume=False, out=out, plain=plain)


def resume(
    job: JobArgument,
    *,
    workers: WorkersOption = None,
    plain: PlainOption = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Go on with a stopped job from the state that its graceful stop saved, under the same id."""
    out = Output(as_json=as_json)
    where = resolve_home(home)
    with open_home(where) as store:
        info = find_job(store, job)
        picture = read_picture(store, info.job)
        check_resumable(info, picture)
        saved = load_saved_state(info)
        spec = make_resumed_spec(picture.view.spec, workers, saved)
        launch = msgspec.structs.replace(load_launch(info), virtual_workers=saved.virtual_workers or None)
        check_script(Path(info.script))
        _await_last_agent(store, info)
        reopen_job(store, info.job, spec)
    save_launch(info, launch)
    out.remark(f"job {info.job} goes on after step {saved.step}")
    return _serve(where, info, launch, wanted=spec.wanted, resume=True, out=out, plain=plain)


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


def load_saved_state(info: JobInfo) -> SavedState:
    """Return what a graceful stop saved.

    Raises:
        StateFileError: it saved nothing, or its word of it is damaged.
    """
    path = Path(info.directory) / MANIFEST
    try:
        return msgspec.json.decode(path.read_bytes(), type=SavedState)
    except FileNotFoundError as error:
        raise StateFileError(
            f"job {info.job} has saved no state in {path.parent}: only a graceful stop saves one "
            "(one Ctrl-C, or `elastane stop`); start the script again with `elastane run`"
        ) from error
    except (OSError, msgspec.DecodeError) as error:
        raise StateFileError(
            f"the saved state of job {info.job} cannot be read from {path}: {error}"
        ) from error


def make_resumed_spec(before: Spec, workers: str | None, saved: SavedState) -> Spec:
    """Return what a resumed job wants: as many workers as before unless said otherwise.

    Raises:
        ConfigError: it has fewer virtual workers than that.
    """
    wanted, minimum = before.wanted, before.minimum
    if workers is not None:
        wish = parse_workers(workers)
        wanted, minimum = wish.wanted, wish.minimum
    check_wanted(wanted, saved.virtual_workers)
    return Spec(wanted=wanted, minimum=min(minimum, wanted))


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


def _serve(
    home: Home, info: JobInfo, launch: Launch, *, wanted: int, resume: bool, out: Output, plain: bool
) -> int:
    """Serve the job until it ends and tell how it ended."""
    out.remark(f"job {info.job} ({info.name}), in {info.directory}")
    begun_s = time.monotonic()
    snapshot = serve_job(home, info, launch, wanted=wanted, resume=resume, out=out, plain=plain)
    outcome = compute_outcome(snapshot, time.monotonic() - begun_s)
    tell_outcome(out, outcome)
    return outcome.exit_code
