"""The commands that look and change nothing: ps, show, events, logs."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from elastane.cli.exits import Exit
from elastane.cli.folder import check_folder, describe_places, find_folder, tell_others
from elastane.cli.options import Desk, FollowOption, JobArgument
from elastane.cli.output import Output
from elastane.cli.render import EVENT_STYLES, render_job, render_jobs
from elastane.cli.watch import EventTail, JobWatch, look_at_all
from elastane.cli.wording import describe_line
from elastane.jobs.registry import find_job, list_namesakes
from elastane.jobs.requests import read_picture
from elastane.model.errors import JobNotFoundError
from elastane.model.ids import JobId
from elastane.observe.events import summarise
from elastane.observe.snapshot import summarise_snapshot
from elastane.observe.tail import LineTail
from elastane.store.base import Store

POLL_INTERVAL_S = 0.2
"""Time between two looks at a file that is followed: no delay for a person, no load for the machine."""


def ps(*, desk: Desk) -> int:
    """List all jobs, running and ended."""
    out = desk.output()
    try:
        store = desk.open()
    except JobNotFoundError:
        # Nothing has ever run here: to a question for all jobs that is an answer, not an error.
        out.show({"jobs": []}, render_jobs((), 0.0))
        return Exit.DONE
    with store:
        snapshots = look_at_all(store, desk.resolve())
    data = {"jobs": [summarise_snapshot(snapshot, brief=True) for snapshot in snapshots]}
    out.show(data, render_jobs(snapshots, time.time()))
    return Exit.DONE


def show(job: JobArgument, *, desk: Desk) -> int:
    """Show one job: its workers and what each runs, what is changing and why, what changes cost."""
    out = desk.output()
    with desk.open() as store:
        info = find_job(store, job)
        folder = find_folder(info, desk.resolve())
        snapshot = JobWatch(store, info, folder).look()
        places = "" if folder else describe_places(info, read_picture(store, info.job).agents)
        others = list_namesakes(store, info) if job == info.name else ()
        phases = [read_picture(store, other.job).view.status.phase.value for other in others]
    out.show(summarise_snapshot(snapshot), render_job(snapshot))
    if others:
        listed = ", ".join(f"{other.job} ({phase})" for other, phase in zip(others, phases, strict=True))
        out.remark(f"also called {info.name}, to be named by their ids: {listed}")
    if folder is None:
        out.remark(f"shown is what the store knows; events and loss curve are not on this machine. {places}")
    return Exit.DONE


def events(
    job: JobArgument,
    *,
    follow: FollowOption = False,
    kind: Annotated[
        list[str] | None,
        typer.Option("--kind", metavar="KIND", help="Only events of this kind (repeatable)."),
    ] = None,
    desk: Desk,
) -> int:
    """Print what happened in a job, with the reason for each decision."""
    out = desk.output()
    with desk.open() as store:
        info = find_job(store, job)
        agents = read_picture(store, info.job).agents
        folder = check_folder(info, desk.resolve(), agents, "events")
        tail = EventTail(folder)
        kinds: set[str] = set()
        for _ in _rounds(follow, lambda: _has_ended(store, info.job)):
            for event in tail.poll():
                kinds.add(event.kind)
                if not kind or event.kind in kind:
                    out.stream(summarise(event), describe_line(event), EVENT_STYLES.get(event.kind, ""))
    tell_others(out, describe_places(info, agents, beside=folder), folder, "" if kinds else "event")
    if unseen := sorted(set(kind or ()) - kinds):
        out.remark(f"no event of kind {', '.join(unseen)}; there are: {', '.join(sorted(kinds)) or 'none'}")
    return Exit.DONE


def logs(
    job: JobArgument,
    *,
    follow: FollowOption = False,
    worker: Annotated[
        str | None, typer.Option("--worker", "-w", metavar="WORKER", help="Only of this worker.")
    ] = None,
    desk: Desk,
) -> int:
    """Print what the workers of a job wrote, those that are gone included."""
    out = desk.output()
    with desk.open() as store:
        info = find_job(store, job)
        agents = read_picture(store, info.job).agents
        own = check_folder(info, desk.resolve(), agents, "logs")
        folder = own / "logs"
        chosen = _resolve_log(folder, info.job, worker) if worker else None
        tails: dict[str, LineTail] = {}
        for last in _rounds(follow, lambda: _has_ended(store, info.job)):
            for path in [chosen] if chosen else sorted(folder.glob("*.log")):
                _print_log(
                    out, tails.setdefault(path.stem, LineTail(path)), last=last, alone=chosen is not None
                )
    tell_others(out, describe_places(info, agents, beside=own), own, "" if tails else "log")
    return Exit.DONE


def _print_log(out: Output, tail: LineTail, *, last: bool, alone: bool) -> None:
    name = tail.path.stem
    for line in tail.poll(last=last):
        text = line.decode(errors="replace").rstrip("\r")
        out.stream({"worker": name, "line": text}, text if alone else f"{name} | {text}")


def _resolve_log(folder: Path, job: JobId, worker: str) -> Path:
    names = sorted(path.stem for path in folder.glob("*.log"))
    fitting = [name for name in names if name == worker] or [
        n for n in names if worker and n.startswith(worker)
    ]
    if len(fitting) == 1:
        return folder / f"{fitting[0]}.log"
    if fitting:
        raise JobNotFoundError(f"{worker!r} fits several workers of job {job}: {', '.join(fitting)}")
    raise JobNotFoundError(
        f"job {job} has no log of a worker {worker!r}; present: {', '.join(names) or 'none'}"
    )


def _rounds(follow: bool, has_ended: Callable[[], bool]) -> Iterator[bool]:
    """Yield once, or with `follow` until the job has ended and then once more; true = the last time."""
    while follow and not has_ended():
        yield False
        time.sleep(POLL_INTERVAL_S)
    yield True


def _has_ended(store: Store, job: JobId) -> bool:
    return read_picture(store, job).view.status.phase.ended
