"""The command that lists the checkpoints of a job and checks their sums."""

import time
from dataclasses import dataclass
from typing import Annotated

import typer

from elastane.checkpoint.catalog import Listing, list_checkpoints, verify_files
from elastane.checkpoint.target import Target, open_job_target
from elastane.cli.exits import Exit
from elastane.cli.folder import Agents, check_folder
from elastane.cli.home import Home
from elastane.cli.options import Desk, JobArgument
from elastane.cli.render import render_checkpoints
from elastane.jobs.registry import find_job, read_launch
from elastane.jobs.requests import read_picture
from elastane.model.records import CheckpointPlan, JobInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRow:
    """Show one checkpoint to people and programs.

    Attributes:
        step: steps committed.
        generation: the generation that wrote it.
        age_s: seconds since then; None if its manifest cannot be read.
        bytes: of all its files; None likewise.
        workers: how many wrote a share each; None likewise.
        valid: it is complete, and nothing is known to be wrong with it.
        verified: its sums have been checked.
        problem: what is wrong.
        path: where it lies.
    """

    step: int
    generation: int
    age_s: float | None
    bytes: int | None
    workers: int | None
    valid: bool
    verified: bool
    problem: str
    path: str


def checkpoints(
    job: JobArgument,
    *,
    verify: Annotated[bool, typer.Option("--verify", help="Read all files and check their sums.")] = False,
    desk: Desk,
) -> int:
    """List the checkpoints of a job, the newest first.

    With --verify exit code 1 means a damaged one, or none at all that could be loaded.
    """
    with desk.open() as store:
        info = find_job(store, job)
        plan = read_launch(store, info.job).checkpoints
        agents = read_picture(store, info.job).agents
    target = open_checkpoints(plan, info, desk.resolve(), agents)
    rows = [make_row(target, listing, time.time(), verify=verify) for listing in list_checkpoints(target)]
    data = {"job": info.job, "place": target.url, "checkpoints": rows}
    cells = [(row.step, row.age_s, row.bytes, row.workers, describe_row(row), row.valid) for row in rows]
    desk.output().show(data, render_checkpoints(target.url, cells))
    damaged = any(row.verified and not row.valid for row in rows)
    lost = verify and not any(row.valid for row in rows)
    return Exit.FAILED if damaged or lost else Exit.DONE


def open_checkpoints(plan: CheckpointPlan, info: JobInfo, home: Home, agents: Agents) -> Target:
    """Return where the checkpoints of a job are, as this machine sees it.

    Raises:
        FilesElsewhereError: they are in a folder of other nodes; the message names them.
        ConfigError: there is no such protocol, or its plug-in is not installed.
    """
    folder = "" if plan.url else str(check_folder(info, home, agents, "checkpoints"))
    return open_job_target(plan, folder, info.job)


def make_row(target: Target, listing: Listing, now_s: float, *, verify: bool) -> CheckpointRow:
    """Return what there is to say about a checkpoint, after reading all of it with `verify`."""
    manifest, problem = listing.manifest, listing.problem
    verified = verify and listing.complete
    if verified and manifest is not None and not problem:
        problem = verify_files(target, manifest)
    return CheckpointRow(
        step=listing.name.step,
        generation=listing.name.generation,
        age_s=None if manifest is None else max(0.0, now_s - manifest.written_at_s),
        bytes=None if manifest is None else manifest.content_bytes,
        workers=None if manifest is None else len(manifest.shares),
        valid=not problem,
        verified=verified,
        problem=problem,
        path=f"{target.url}/{listing.name.folder}",
    )


def describe_row(row: CheckpointRow) -> str:
    """Say in words what is known of a checkpoint."""
    if row.problem:
        return row.problem
    return "valid, all sums checked" if row.verified else "complete"
