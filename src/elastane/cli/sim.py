"""`elastane sim`: replay a trace of jobs under several scheduling policies and compare them.

Only the flags stand here. What they start loads numpy and matplotlib, which would slow every other command,
so it is loaded when the command is called.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elastane.cli.sim_flags import SimFlags
from elastane.perf.overhead import PRESETS
from elastane.sim.profiles import SOURCES
from elastane.sim.readers import DEFAULT_MOST_JOBS

_Option = typer.Option


def sim(  # noqa: PLR0917 - one parameter for each flag is how typer reads them
    trace: Annotated[
        Path | None,
        typer.Argument(help="Trace file, plain or .gz. Without it: 400 real jobs that come along."),
    ] = None,
    policy: Annotated[
        list[str] | None,
        _Option(
            "--policy",
            "-p",
            help="A policy's name, with options NAME:KEY=VALUE, or your own FILE.py:CLASS. Repeat it to "
            "compare; the first one is the baseline.",
        ),
    ] = None,
    cluster: Annotated[
        str | None, _Option("--cluster", "-c", help="NODESxDEVICES, e.g. 64x8, or 8x8:V100,4x8:P100.")
    ] = None,
    out: Annotated[Path | None, _Option("--out", "-o", help="Folder for the report.")] = None,
    format_name: Annotated[
        str | None, _Option("--format", "-f", help="Trace format; found by itself if left out.")
    ] = None,
    sweep: Annotated[
        list[str] | None,
        _Option(
            "--sweep", help="Vary load, nodes, seed or elastic: load=0.5:2.0:0.25, nodes=16,32. Up to two."
        ),
    ] = None,
    seed: Annotated[int, _Option(help="Seed of everything that is drawn.", min=0)] = 0,
    overhead: Annotated[
        str | None, _Option(help=f"What a change costs: {', '.join(PRESETS)}. [default: edl]")
    ] = None,
    jobs: Annotated[
        int | None, _Option("--jobs", "-j", help="Processes; as many as processors if left out.")
    ] = None,
    as_json: Annotated[bool, _Option("--json", help="Print JSON; write a report only with --out.")] = False,
    profiles: Annotated[
        str | None,
        _Option(
            help=f"Speed profiles: {', '.join(SOURCES)}, your CSV file, or what `elastane profile` made."
        ),
    ] = None,
    elastic_share: Annotated[float, _Option(help="Share of jobs that can change their size.")] = 1.0,
    max_growth: Annotated[
        float | None, _Option(help="Largest size of a job as a multiple of its request.")
    ] = None,
    load: Annotated[float, _Option(help="Bring the same jobs this many times as fast.")] = 1.0,
    days: Annotated[str | None, _Option(help="Only jobs submitted in days FROM:TO of the trace.")] = None,
    tenant: Annotated[str | None, _Option(help="Only this tenant's (user's, account's) jobs.")] = None,
    most_jobs: Annotated[
        int, _Option(help="Refuse traces with more jobs than this.", min=1)
    ] = DEFAULT_MOST_JOBS,
    by_node: Annotated[bool, _Option("--by-node", help="Jobs spread over nodes are slower.")] = False,
    round_s: Annotated[
        float, _Option("--round", help="Schedule in rounds of so many seconds; 0: at once.")
    ] = 0.0,
    list_all: Annotated[
        bool, _Option("--list", help="List policies, trace formats, overheads and profiles, and stop.")
    ] = False,
) -> None:
    """Replay a trace of jobs under scheduling policies and compare how long jobs take.

    Reads Slurm histories (`sacct --parsable2`), published traces and plain CSV. Without arguments it runs a
    built-in sample. Exit codes: 0 done, 1 a policy failed (the report has the others), 2 the input cannot be
    used, 5 no room for the results, 130 interrupted.
    """
    # Loaded here and not above: see the module's text.
    from elastane.cli.sim_session import run_sim  # noqa: PLC0415

    run_sim(
        SimFlags(
            trace=trace,
            policies=tuple(policy or ()),
            cluster=cluster,
            out=out,
            format_name=format_name,
            sweep=tuple(sweep or ()),
            seed=seed,
            overhead=overhead,
            jobs=jobs,
            as_json=as_json,
            profiles=profiles,
            elastic_share=elastic_share,
            max_growth=max_growth,
            load=load,
            days=days,
            tenant=tenant,
            most_jobs=most_jobs,
            by_node=by_node,
            round_s=round_s,
            list_all=list_all,
        )
    )
