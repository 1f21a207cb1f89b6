"""The command that measures how fast a script trains with each number of workers, and what it needs.

What may be measured is decided in `core/profiling.py`, how the job is run in `cli/profile_run.py`, what the
figures are in `observe/allocations.py`. This module owns the flags, the files and the words.
"""

import contextlib
import datetime
import os
import platform
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from elastane.agent.devices import find_devices, parse_devices
from elastane.cli.exits import Exit
from elastane.cli.groups import option_group, with_groups
from elastane.cli.options import JsonOption
from elastane.cli.output import Output
from elastane.cli.profile_run import Finding, Measurement, measure_script
from elastane.cli.profile_table import render_profile
from elastane.cli.run import ScriptArguments
from elastane.cli.script import check_script, make_name
from elastane.cli.wording import format_count, format_duration
from elastane.core.profiling import check_plan, fingerprint_model, make_plan
from elastane.model.errors import ConfigError, ElastaneError, ProfileMismatchError
from elastane.model.ids import DeviceId
from elastane.model.profile import MeasuredProfile
from elastane.model.records import CheckpointPlan, Launch
from elastane.observe.allocations import compute_points
from elastane.observe.profiles import load_profile, save_profile, write_whole
from elastane.perf.measured import compare_points

FILE_ENDING = ".profile.json"
ORPHAN_GRACE_S = 5.0
"""Nobody wants the state of a job that is measured: if this command is killed its workers go soon."""


@option_group
@dataclass(frozen=True, slots=True, kw_only=True)
class SizeFlags:
    """Hold which numbers of workers are measured, and for how long."""

    minimum: Annotated[int, typer.Option("--min", metavar="N", help="Fewest workers, measured last.")] = 1
    maximum: Annotated[
        int | None,
        typer.Option(
            "--max", metavar="N", help="Most workers, with which the job starts [the devices there are]."
        ),
    ] = None
    allocations: Annotated[
        str | None,
        typer.Option("--allocations", metavar="LIST", help="Only these numbers of workers: 1,2,4,8."),
    ] = None
    steps: Annotated[
        int, typer.Option("--steps", metavar="N", help="Steps that count, with each number of workers.")
    ] = 20


@option_group
@dataclass(frozen=True, slots=True, kw_only=True)
class RunFlags:
    """Hold how the measured job is run: as it is to be run later."""

    virtual_workers: Annotated[
        int | None, typer.Option("--virtual-workers", metavar="N", min=1, help="Overrides the script's.")
    ] = None
    threads: Annotated[
        int, typer.Option("--threads", metavar="N", min=1, help="Threads per operation of each worker.")
    ] = 1
    devices: Annotated[
        str | None,
        typer.Option(
            "--devices", metavar="N|LIST", help="The first N devices, or a list: cuda:0,cuda:3 [all]."
        ),
    ] = None


@option_group
@dataclass(frozen=True, slots=True, kw_only=True)
class FileFlags:
    """Hold where the profile goes."""

    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="File [SCRIPT.profile.json, here].")
    ] = None
    name: Annotated[
        str | None, typer.Option("--name", help="By which traces name the profile [that of the script].")
    ] = None
    add: Annotated[
        bool, typer.Option("--add", help="Keep the other points of a profile that is there already.")
    ] = False
    partial: Annotated[
        bool,
        typer.Option("--partial", help="Write what was measured even if the script ends before all is."),
    ] = False


def profile(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="The Python file that trains.")],
    arguments: ScriptArguments = None,
    *,
    sizes: SizeFlags,
    how: RunFlags,
    files: FileFlags,
    as_json: JsonOption = False,
) -> int:
    """Measure a script's speed, efficiency and memory with each number of workers, in one short run.

    The job starts once, with the most workers, and is scaled in while it trains. Nothing of it is kept.
    """
    out = Output(as_json=as_json)
    path = check_script(script)
    place = files.out or Path(f"{make_name(path)}{FILE_ENDING}")
    former = check_place(place)
    finding = make_finding(path, tuple(arguments or ()), sizes, how, former if files.add else None)
    begun_s = time.monotonic()
    with _temporary_home() as home:
        measurement = measure_script(home, finding, out)
    if measurement.interrupted:
        out.remark("interrupted; nothing was written")
        return Exit.INTERRUPTED
    trouble = measurement.explain()
    if trouble and measurement.traceback:
        out.remark(
            f"first error, in worker {measurement.failed_worker}:\n{measurement.traceback.rstrip()}", ""
        )
    if trouble and not (files.partial and measurement.allocations):
        raise ConfigError(trouble) if measurement.refused else ElastaneError(trouble)
    made = make_profile(finding, measurement, files.name)
    took_s = time.monotonic() - begun_s
    picture = write_files(made, place)
    what = format_count(len(measurement.allocations), "number") + " of workers"
    remark = f"{what} in {format_duration(took_s)}; written to {place} and {picture.name}"
    data = {"file": str(place), "picture": str(picture), "seconds": round(took_s, 3), "profile": made}
    out.show(data, render_profile(made, remark))
    if trouble:
        out.remark(trouble, style="yellow")
    return Exit.FAILED if trouble else Exit.DONE


def check_place(place: Path) -> MeasuredProfile | None:
    """Return the profile that is in the way of a new one, if there is one.

    Raises:
        ConfigError: the file cannot be written there, or is something else than a profile.
    """
    folder = place.absolute().parent
    if place.is_dir() or not folder.is_dir():
        raise ConfigError(f"--out {place} is no file that can be written; name one in a folder that exists")
    if not os.access(folder, os.W_OK):
        raise ConfigError(f"the folder {folder} cannot be written; name a file elsewhere with --out")
    if not place.exists():
        return None
    try:
        return load_profile(place)
    except ConfigError as error:
        raise ConfigError(f"{error}. It is left as it is: name another file with --out") from error


def make_finding(
    script: Path, arguments: tuple[str, ...], sizes: SizeFlags, how: RunFlags, base: MeasuredProfile | None
) -> Finding:
    """Return what is to be found out. Raises ConfigError if that cannot be done on this machine."""
    maximum = _count_useful(how) if sizes.maximum is None else sizes.maximum
    plan = make_plan(sizes.minimum, maximum, sizes.allocations, sizes.steps)
    check_plan(plan, len(_find_devices(how, plan.allocations[0])), how.virtual_workers)
    if base is not None and base.threads != how.threads:
        raise ProfileMismatchError(
            f"the profile of {base.name!r} was taken with {base.threads} threads per worker, this one has "
            f"{how.threads}; use --threads {base.threads}, or another file"
        )
    launch = Launch(
        virtual_workers=how.virtual_workers,
        threads=how.threads,
        orphan_grace_s=ORPHAN_GRACE_S,
        checkpoints=CheckpointPlan(every_s=None),
        profile=plan,
    )
    return Finding(
        script=script, arguments=arguments, plan=plan, launch=launch, devices=how.devices, base=base
    )


def make_profile(finding: Finding, measurement: Measurement, name: str | None) -> MeasuredProfile:
    """Return the record of what was measured, with the other points of the profile it is added to."""
    signature = measurement.signature
    assert signature is not None, "a job whose steps were counted has a signature"
    base = finding.base
    points = compute_points(measurement.allocations)
    return MeasuredProfile(
        elastane=version("elastane"),
        name=name or (base.name if base else make_name(finding.script)),
        script=str(finding.script),
        arguments=finding.arguments,
        made_at=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
        model=fingerprint_model(signature),
        virtual_workers=signature.virtual_workers,
        batch=signature.batch,
        threads=finding.launch.threads,
        device_type=measurement.device_type,
        machine=describe_machine(),
        skipped_steps=finding.plan.skipped_steps,
        points=compare_points((*(base.points if base else ()), *points)),
    )


def write_files(made: MeasuredProfile, place: Path) -> Path:
    """Write the profile and the picture of its curve beside it; return where that is.

    Raises:
        OSError: one of them cannot be written.
    """
    # Loaded here and not above: matplotlib would slow every other command.
    from elastane.cli.profile_picture import draw_profile  # noqa: PLC0415

    picture = place.with_name(f"{place.name.removesuffix('.json')}.png")
    content = draw_profile(made)
    save_profile(made, place)
    write_whole(picture, content)
    return picture


def describe_machine() -> str:
    """Return what people need to know of this machine."""
    return f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, {platform.system()}"


def _find_devices(how: RunFlags, wanted: int) -> tuple[DeviceId, ...]:
    if how.devices is not None:
        return parse_devices(how.devices, os.environ)
    return find_devices(wanted, how.virtual_workers, os.environ)


def _count_useful(how: RunFlags) -> int:
    """Return the most workers that are measured if nothing says how many: one for each device or core."""
    there = len(_find_devices(RunFlags(devices=how.devices, virtual_workers=1), 1))
    return there if how.virtual_workers is None else min(there, how.virtual_workers)


@contextlib.contextmanager
def _temporary_home() -> Iterator[Path]:
    """Make a home that nobody else sees and that goes with the measurement."""
    with tempfile.TemporaryDirectory(prefix="elastane-profile-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


command = with_groups(profile)
"""What the parser reads."""
