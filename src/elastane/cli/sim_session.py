"""Carry out `elastane sim`: make the request, show progress, print a table, write the report.

All thinking is done in `elastane.sim`; what cannot be done is one message on standard error (or as JSON) and
an exit code, never a traceback.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from elastane.cli.sim_flags import SimFlags
from elastane.model.errors import ConfigError, ElastaneError
from elastane.perf.overhead import PRESETS
from elastane.policy.registry import POLICIES
from elastane.sim.compare import OnProgress
from elastane.sim.policy_choice import choose_labels, describe_policy
from elastane.sim.profiles import SOURCES
from elastane.sim.readers import FORMATS, Selection, Trace
from elastane.sim.report import (
    CLAIRVOYANT_NOTE,
    LEGEND,
    Comparison,
    build_table,
    check_folder,
    dump_json,
    save_report,
    say_headline,
)
from elastane.sim.request import (
    DEFAULT_OVERHEAD,
    DEFAULT_POLICIES,
    SimRequest,
    list_tasks,
    prepare_request,
    read_request_trace,
    run_request,
)
from elastane.sim.workload import Preparation, WorkloadOptions

EXIT_SOME_FAILED = 1
"""At least one policy failed; the others' results are in the report."""

EXIT_UNUSABLE = 2
"""The input or the flags cannot be used; nothing was done. The same code as for unknown flags."""

EXIT_NO_ROOM = 5
"""The results could not be printed, or there was not enough memory."""

EXIT_INTERRUPTED = 130
"""Ended by Ctrl-C: 128 + SIGINT, as shells count."""

DEFAULT_FOLDER = Path("elastane-report")
_WIDE = 104
_PIPE_WIDTH = 200


def run_sim(flags: SimFlags) -> None:
    """Do what the flags ask for; every failure is one message and an exit code."""
    with _explained(as_json=flags.as_json):
        if flags.list_all:
            _print_known()
            return
        request = make_request(flags)
        folder = flags.out or (None if flags.as_json else DEFAULT_FOLDER)
        if folder is not None:
            check_folder(folder)
        comparison = _run(request, quiet=flags.as_json)
        if flags.as_json:
            sys.stdout.write(dump_json(comparison))
        page = save_report(comparison, folder) if folder is not None else None
        if not flags.as_json:
            _print_results(comparison, page)
        sys.stdout.flush()
        for message in dict.fromkeys(failure.message for failure in comparison.failures):
            _complain(message)
    if comparison.failures:
        raise typer.Exit(EXIT_SOME_FAILED)


def make_request(flags: SimFlags) -> SimRequest:
    """Return the request that the flags describe; raise ConfigError for contradictions."""
    return SimRequest(
        trace=flags.trace,
        policies=flags.policies or DEFAULT_POLICIES,
        cluster=flags.cluster,
        format_name=flags.format_name,
        overhead=flags.overhead or DEFAULT_OVERHEAD,
        sweep=flags.sweep,
        selection=_parse_selection(flags.days, flags.tenant, flags.most_jobs),
        options=WorkloadOptions(
            seed=flags.seed,
            profiles=flags.profiles,
            elastic_share=flags.elastic_share,
            load=flags.load,
            max_growth=flags.max_growth,
        ),
        by_node=flags.by_node,
        round_s=flags.round_s,
        processes=len(os.sched_getaffinity(0)) if flags.jobs is None else flags.jobs,
    )


@contextmanager
def _explained(*, as_json: bool) -> Iterator[None]:
    """Turn every expected failure into one message and an exit code."""
    try:
        yield
    except ElastaneError as error:
        _end(EXIT_UNUSABLE, "usage", str(error), as_json=as_json)
    except KeyboardInterrupt:
        _end(EXIT_INTERRUPTED, "interrupted", "interrupted; no report was written.", as_json=as_json)
    except MemoryError:
        message = "not enough memory; take a part of the trace with --days or fewer processes with --jobs."
        _end(EXIT_NO_ROOM, "environment", message, as_json=as_json)
    except OSError as error:
        _give_up_output(error)


def _end(code: int, kind: str, message: str, *, as_json: bool) -> NoReturn:
    """Say what went wrong, as text or as JSON, and end."""
    if as_json:
        sys.stdout.write(
            json.dumps({"error": {"kind": kind, "exit_code": code, "message": message}}, indent=2) + "\n"
        )
    else:
        _complain(message)
    raise typer.Exit(code)


def _give_up_output(error: OSError) -> NoReturn:
    """End after standard output could not be written (a full disk, a closed pipe)."""
    # The interpreter would try to flush again at its end, and fail with a traceback.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if not isinstance(error, BrokenPipeError):
        _complain(f"the results cannot be printed: {error.strerror or error}.")
    raise typer.Exit(EXIT_NO_ROOM) from error


def _parse_selection(days: str | None, tenant: str | None, most_jobs: int) -> Selection:
    if days is None:
        return Selection(tenant=tenant, most_jobs=most_jobs)
    first, colon, last = days.partition(":")
    try:
        from_day, to_day = float(first or 0), float(last) if last else math.inf
    except ValueError as error:
        raise ConfigError(f"--days {days!r} is not understood; write FROM:TO in days, e.g. 10:40.") from error
    if not colon or not 0 <= from_day < to_day:
        raise ConfigError(f"--days {days!r}: write FROM:TO with 0 <= FROM < TO, e.g. 10:40.")
    return Selection(from_day=from_day, to_day=to_day, tenant=tenant, most_jobs=most_jobs)


def _run(request: SimRequest, *, quiet: bool) -> Comparison:
    console = Console(stderr=True, highlight=False)
    with _spinner(console, request, quiet=quiet):
        trace = read_request_trace(request)
        prepared = prepare_request(request, trace)
    if not quiet:
        _print_input(console, trace, prepared[1])
    with _progress(console, request, quiet=quiet) as on_progress:
        return run_request(request, trace, prepared, on_progress)


def _spinner(console: Console, request: SimRequest, *, quiet: bool) -> AbstractContextManager[object]:
    """Show that a large file is being read; nothing where nobody watches."""
    if quiet or not console.is_terminal:
        return nullcontext()
    return console.status(f"reading {request.trace or 'the sample'}")


def _print_input(console: Console, trace: Trace, made: Preparation) -> None:
    left_out = sum(entry.count for entry in trace.left_out + made.left_out)
    text = f"{trace.name}: {_count(len(made.workload.jobs), 'job')} (format {trace.format})"
    console.print(text + (f", {_count(left_out, 'row')} left out" if left_out else ""), markup=False)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


@contextmanager
def _progress(console: Console, request: SimRequest, *, quiet: bool) -> Iterator[OnProgress]:
    """Show a bar for each policy, and one for all points of a sweep."""
    tasks = list_tasks(request)
    policies = len(request.policies)
    shares = [0.0] * len(tasks)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(
        *columns, console=console, disable=quiet or not console.is_terminal, transient=True
    ) as bars:
        ids = [bars.add_task(label, total=1.0) for label in choose_labels(request.policies).values()]
        swept = bars.add_task("sweep", total=len(tasks) - policies) if len(tasks) > policies else None

        def on_progress(number: int, share: float) -> None:
            shares[number] = share
            if number < policies:
                bars.update(ids[number], completed=share)
            elif swept is not None:
                bars.update(swept, completed=sum(shares[policies:]))

        yield on_progress


def _print_results(comparison: Comparison, page: Path | None) -> None:
    console = _make_console()
    console.print()
    console.print(build_table(comparison, wide=console.width >= _WIDE))
    if any(run.clairvoyant for run in comparison.runs):
        console.print(CLAIRVOYANT_NOTE, style="dim", markup=False)
    console.print(LEGEND, style="dim", markup=False)
    console.print()
    for entry in comparison.left_out:
        more = ", ..." if entry.count > len(entry.examples) else ""
        examples = "" if entry.expected else f" ({', '.join(entry.examples)}{more})"
        console.print(f"left out: {entry.count:,} x {entry.reason}{examples}", markup=False)
    for note in comparison.trace.notes:
        console.print(f"note: {note}", markup=False)
    for warning in comparison.warnings:
        console.print(f"warning: {warning}", style="yellow", markup=False)
    console.print(say_headline(comparison), style="bold", markup=False)
    if page is not None:
        console.print(f"Report: {page}", markup=False, soft_wrap=True)


def _make_console() -> Console:
    # Into a pipe or a file goes what a wide terminal would show, so that no row is broken for `grep`.
    bounded = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(highlight=False, width=None if bounded else _PIPE_WIDTH)


def _print_known() -> None:
    console = _make_console()
    groups = (
        ("Policies", {name: describe_policy(kind) for name, kind in POLICIES.items()}),
        ("Trace formats", {known.name: known.title for known in FORMATS}),
        ("Overheads", {name: preset.kind for name, preset in PRESETS.items()}),
        ("Speed profiles", SOURCES),
    )
    for title, entries in groups:
        console.print(title, style="bold")
        for name, text in entries.items():
            console.print(f"  {name:<20} {text}", markup=False, soft_wrap=True)


def _complain(message: str) -> None:
    Console(stderr=True, highlight=False).print(
        f"elastane: {message}", style="red", markup=False, soft_wrap=True
    )
