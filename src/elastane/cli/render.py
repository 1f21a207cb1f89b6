"""Turn snapshots into tables for the terminal. Pure: what to show is decided in `observe.snapshot`."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import tzinfo

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from elastane.cli.wording import describe_event, format_bytes, format_clock, format_count, format_duration
from elastane.observe.events import Event
from elastane.observe.snapshot import Change, JobSnapshot, Rates, WorkerSnapshot

PHASE_STYLES = {
    "starting": "yellow",
    "preparing": "yellow",
    "ready": "cyan",
    "training": "green",
    "leaving": "magenta",
    "lost": "red",
    "finished": "bold green",
    "stopped": "bold yellow",
    "failed": "bold red",
}
EVENT_STYLES = {
    "committed": "cyan",
    "switched": "bold cyan",
    "joined": "green",
    "left": "magenta",
    "link_broken": "yellow",
    "waiting": "yellow",
    "script_failed": "bold red",
    "finished": "bold green",
    "stopped": "bold yellow",
}
QUIET_KINDS = frozenset({"proposed", "worker_started"})
"""Left out of the live view: another event says the same an instant before or after."""
MAP_CELLS = 32
"""Widest map of virtual workers that fits beside the other columns of an 80-column terminal."""


def render_jobs(snapshots: Sequence[JobSnapshot], now_s: float) -> RenderableType:
    """Return one row for each job, as `elastane ps` shows them."""
    if not snapshots:
        return Text("no jobs")
    table = _table("JOB", "NAME", "PHASE", ">WORKERS", ">STEP", "VALUES", "SPEED", ">AGE")
    for one in snapshots:
        table.add_row(
            one.job,
            Text(one.name),
            _styled(one.phase.value),
            str(one.training) if one.phase.ended else f"{one.training}/{one.wanted}",
            str(one.step),
            Text(format_values(one.values, at_most=1)),
            format_rates(one.rates),
            format_duration(max(0.0, now_s - one.created_at_s)),
        )
    return table


def render_checkpoints(
    place: str, rows: Sequence[tuple[int, float | None, int | None, int | None, str, bool]]
) -> RenderableType:
    """Return a row for each checkpoint: step, age, bytes, workers, what is known of it, if it is good."""
    if not rows:
        return Text(f"no checkpoints in {place}")
    table = _table(">STEP", ">AGE", ">SIZE", ">WORKERS", "STATE")
    for step, age_s, size, workers, state, good in rows:
        table.add_row(
            str(step),
            "" if age_s is None else format_duration(age_s),
            "" if size is None else format_bytes(size),
            "" if workers is None else str(workers),
            Text(state, style="" if good else "red"),
        )
    return table


def render_job(snapshot: JobSnapshot, zone: tzinfo | None = None) -> RenderableType:
    """Return all there is to say about a job, as `elastane show` shows it."""
    parts: list[RenderableType] = [render_head(snapshot)]
    if snapshot.workers:
        parts += [Text(), render_workers(snapshot)]
    if snapshot.changes:
        parts += [Text(), render_changes(snapshot.changes, zone)]
    return Group(*parts)


def render_live(
    snapshot: JobSnapshot, event_lines: int, remark: str = "", zone: tzinfo | None = None
) -> RenderableType:
    """Return the view that `elastane run` keeps fresh, with at most `event_lines` events and a remark."""
    parts: list[RenderableType] = [render_head(snapshot, brief=True)]
    if snapshot.workers:
        parts += [Text(), render_workers(snapshot)]
    told = [event for event in snapshot.events if event.kind not in QUIET_KINDS]
    events = told[-event_lines:] if event_lines > 0 else ()
    if events:
        parts += [Text(), render_events(events, zone)]
    if remark:
        parts += [Text(), Text(remark, style="bold yellow")]
    return Group(*parts)


def render_head(snapshot: JobSnapshot, *, brief: bool = False) -> RenderableType:
    """Return what concerns the job as a whole; brief: without what does not change."""
    title = Text.assemble((snapshot.job, "bold"), "  ", snapshot.name, "  ", _styled(snapshot.phase.value))
    if snapshot.message:
        title.append(f"  {snapshot.message.splitlines()[0]}")
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in _head_rows(snapshot, brief):
        grid.add_row(name, Text(text))
    return Group(title, grid)


def _head_rows(snapshot: JobSnapshot, brief: bool) -> Iterable[tuple[str, str]]:
    if not brief:
        yield "script", " ".join([snapshot.script, *snapshot.arguments])
        yield "folder", snapshot.directory
    yield "step", _describe_step(snapshot)
    if snapshot.rates:
        yield "speed", format_rates(snapshot.rates)
    if snapshot.shards:
        yield "shards", "{} todo, {} doing, {} done".format(*snapshot.shards)
    if not snapshot.phase.ended:
        yield "workers", _describe_wanted(snapshot)
    for number, activity in enumerate(snapshot.activity):
        yield "" if number else "now", activity


def _describe_step(snapshot: JobSnapshot) -> str:
    epoch = "" if snapshot.epoch is None else f"epoch {snapshot.epoch}"
    return "   ".join(filter(None, [str(snapshot.step), epoch, format_values(snapshot.values)]))


def _describe_wanted(snapshot: JobSnapshot) -> str:
    virtual = f", {snapshot.virtual_workers} virtual workers" if snapshot.virtual_workers else ""
    if snapshot.batch:
        virtual = f", {snapshot.batch}"
    return (
        f"{snapshot.training} training, {snapshot.wanted} wanted (at least {snapshot.minimum})"
        f"{virtual}, generation {snapshot.generation}"
    )


def render_workers(snapshot: JobSnapshot) -> RenderableType:
    """Return one row for each worker, with the virtual workers it runs.

    Their own steps are left out: all train the same one, and what each said last is up to a second old.
    """
    table = _table("WORKER", "DEVICE", "PHASE", "VIRTUAL WORKERS", ">STEP TIME")
    for worker in snapshot.workers:
        table.add_row(
            Text(f"{worker.worker}{' *' if worker.leader else ''}"),
            Text(f"{worker.node}/{worker.device}" if worker.device else ""),
            _styled(worker.phase),
            Text(format_vranks(worker, snapshot.virtual_workers)),
            format_duration(worker.step_time_s) if worker.step_time_s else "",
        )
    return table


def render_changes(changes: Sequence[Change], zone: tzinfo | None = None) -> RenderableType:
    """Return one row for each change of topology, with what it cost."""
    table = _table(">GEN", "TIME", ">STEP", ">WORKERS", "WHO", ">STOP TIME", ">JOIN LATENCY", "REASON")
    for change in changes:
        joined = sorted((join.worker for join in change.joined), key=lambda worker: (len(worker), worker))
        who = [*(f"+{worker}" for worker in joined), *(f"-{worker}" for worker in change.left)]
        latency_s = max((join.latency_s for join in change.joined), default=None)
        table.add_row(
            str(change.generation),
            format_clock(change.at_s, zone),
            "" if change.step is None else str(change.step),
            "" if change.workers is None else str(change.workers),
            Text(" ".join(who)),
            "" if change.stop_s is None else format_duration(change.stop_s),
            "" if latency_s is None else format_duration(latency_s),
            Text(change.reason),
        )
    return table


def render_events(events: Sequence[Event], zone: tzinfo | None = None) -> RenderableType:
    """Return one line for each event; those that cannot fit are cut at the edge."""
    lines = [
        Text.assemble(
            (format_clock(event.at_s, zone), "dim"),
            "  ",
            (describe_event(event), EVENT_STYLES.get(event.kind, "")),
            no_wrap=True,
            overflow="ellipsis",
        )
        for event in events
    ]
    return Group(*lines)


def render_change(change: Change) -> str:
    """Return one change as a sentence, as `elastane scale --wait` prints it."""
    stop = "" if change.stop_s is None else f", stop time {format_duration(change.stop_s)}"
    moved = f", moved {format_bytes(change.moved_bytes)}" if change.moved_bytes else ""
    joins = "".join(
        f", {j.worker} joined {format_duration(j.latency_s)} after the request" for j in change.joined
    )
    left = f", {', '.join(change.left)} left" if change.left else ""
    step = "" if change.step is None else f" before step {change.step}"
    workers = "" if change.workers is None else f": {format_count(change.workers, 'worker')}"
    return f"generation {change.generation}{step}{workers}{stop}{moved}{joins}{left}"


def format_values(values: Mapping[str, float], at_most: int = 4) -> str:
    """Return logged values, the loss first."""
    names = sorted(values, key=lambda name: (name != "loss", list(values).index(name)))
    return "  ".join(f"{name} {values[name]:.4g}" for name in names[:at_most])


def format_rates(rates: Rates | None) -> str:
    """Return throughput, or nothing."""
    if rates is None:
        return ""
    samples = "" if rates.samples_per_s is None else f", {rates.samples_per_s:.4g} samples/s"
    return f"{rates.steps_per_s:.3g} steps/s{samples}"


def format_vranks(worker: WorkerSnapshot, virtual_workers: int) -> str:
    """Return which virtual workers a worker runs, with a map of all N where it fits."""
    if worker.vranks is None:
        return ""
    start, stop = worker.vranks
    numbers = str(start) if stop - start == 1 else f"{start}-{stop - 1}"
    if not 1 < virtual_workers <= MAP_CELLS:
        return numbers
    return f"{'·' * start}{'■' * (stop - start)}{'·' * (virtual_workers - stop)} {numbers}"


def _styled(phase: str) -> Text:
    return Text(phase, style=PHASE_STYLES.get(phase, ""))


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        right = column.startswith(">")
        folds = column in ("REASON", "VALUES", "NAME")
        table.add_column(
            column.lstrip(">"), justify="right" if right else "left", no_wrap=not folds, overflow="fold"
        )
    return table
