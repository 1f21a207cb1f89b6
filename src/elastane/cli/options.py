"""The options and arguments that several commands share, and what they turn into."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from elastane.cli.checkpoint_flags import RecoveryChoice, make_checkpoint_plan, resolve_recovery
from elastane.cli.groups import option_group
from elastane.cli.home import HOME_VARIABLE, STORE_VARIABLE, Home, open_home, resolve_home
from elastane.cli.output import Output
from elastane.cli.parse import parse_failures
from elastane.core.autoscale_text import parse_autoscale
from elastane.core.relief import Answer
from elastane.model.ids import NodeId
from elastane.model.records import Launch
from elastane.store.base import Store
from elastane.store.lease_limits import MIN_LOCAL_S

JobArgument = Annotated[
    str, typer.Argument(metavar="JOB", help="Id of the job (its beginning is enough), or its name.")
]
HomeOption = Annotated[
    Path | None,
    typer.Option(
        "--home",
        metavar="DIR",
        help=f"Where jobs live [{HOME_VARIABLE}, or ~/.elastane].",
        show_default=False,
    ),
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help=f"Where nodes meet: etcd://HOST:PORT,.../NAME [{STORE_VARIABLE}, or a file in the home].",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON with stable fields to standard output.")]
FollowOption = Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")]
WaitOption = Annotated[
    bool, typer.Option("--wait", help="Wait until the change is made; tell its stop time and join latency.")
]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=0.0, help="Longest time to wait.")
]
WorkersOption = Annotated[
    str | None,
    typer.Option("--workers", "-n", metavar="N|MIN:N", help="Workers to run; MIN:N may start with MIN [1]."),
]
MIN_STEP_TIMEOUT_S = 1.0
"""A shorter one would be met by nothing but a busy machine."""
DEFAULT_TIMEOUT_S = 600.0
"""Longer than a cold start on a busy machine; a change that has not happened by then has a cause."""


@option_group
@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """Hold where a command finds its jobs and how it speaks: what every command takes."""

    home: HomeOption = None
    store: StoreOption = None
    as_json: JsonOption = False

    def output(self) -> Output:
        """Return what the command speaks through."""
        return Output(as_json=self.as_json)

    def resolve(self) -> Home:
        """Return the home and store that flags, environment and defaults name; neither need exist yet."""
        return resolve_home(self.home, self.store)

    def open(self) -> Store:
        """Open a store in which something must have run before. Raises JobNotFoundError, StoreError."""
        return open_home(self.resolve())


@option_group
@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Hold whether, and how long, a command waits for what it has asked for."""

    wait: WaitOption = False
    timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S


@option_group
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFlags:
    """Hold what this machine is in a job."""

    node: Annotated[
        str | None,
        typer.Option(
            "--node", metavar="NAME", help="What this machine is called in the job [its host name]."
        ),
    ] = None
    devices: Annotated[
        str | None,
        typer.Option(
            "--devices", metavar="N|LIST", help="The first N devices, or a list: cuda:0,cuda:3 [all]."
        ),
    ] = None
    address: Annotated[
        str | None,
        typer.Option(
            "--address", metavar="HOST", help="Under which other nodes reach this one [towards the store]."
        ),
    ] = None

    def name(self) -> NodeId:
        """Return what this machine is called."""
        return NodeId(self.node or socket.gethostname())


@option_group
@dataclass(frozen=True, slots=True, kw_only=True)
class Stage(NodeFlags):
    """Hold how a job is run in the foreground: what this machine is in it, and how it is shown."""

    elsewhere: Annotated[
        bool, typer.Option("--elsewhere", help="Run no workers on this machine: others serve the job.")
    ] = False
    plain: Annotated[
        bool, typer.Option("--plain", help="One line for each event instead of the live view.")
    ] = False


@option_group
@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """Hold how many are to run a new job, and its name."""

    workers: WorkersOption = None
    nodes: Annotated[
        int,
        typer.Option(
            "--nodes",
            metavar="N",
            min=1,
            help="Machines to run on; the first start waits for so many agents.",
        ),
    ] = 1
    name: Annotated[str | None, typer.Option("--name", help="Name of the job [that of the script].")] = None
    recovery: Annotated[
        str | None,
        typer.Option(
            "--recovery",
            metavar="exact|checkpoint|approximate",
            help="What the loss of a worker does: the others go on, or all go back [exact].",
        ),
    ] = None

    def choose_recovery(self, environment: Mapping[str, str]) -> RecoveryChoice:
        """Return what the loss of a worker does. Raises ConfigError."""
        return resolve_recovery(self.recovery, environment)


@option_group
@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchFlags:
    """Hold how the workers of a new job are run."""

    virtual_workers: Annotated[
        int | None, typer.Option("--virtual-workers", metavar="N", min=1, help="Overrides the script's.")
    ] = None
    threads: Annotated[
        int, typer.Option("--threads", metavar="N", min=1, help="Threads per operation of each worker.")
    ] = 1
    grace_s: Annotated[
        float,
        typer.Option(
            "--grace",
            metavar="SECONDS",
            min=0.0,
            help="How long a stop may take until the state is being saved.",
        ),
    ] = 30.0
    lease_s: Annotated[
        float,
        typer.Option("--lease", metavar="SECONDS", min=MIN_LOCAL_S, help="Silence that counts as death."),
    ] = 3.0
    orphan_grace_s: Annotated[
        float,
        typer.Option(
            "--orphan-grace",
            metavar="SECONDS",
            min=1.0,
            help="How long workers train on when nobody looks after them.",
        ),
    ] = 60.0
    step_timeout_s: Annotated[
        float,
        typer.Option(
            "--step-timeout",
            metavar="SECONDS",
            min=MIN_STEP_TIMEOUT_S,
            help="How long one worker may keep all others waiting.",
        ),
    ] = 600.0
    cold: Annotated[
        bool, typer.Option("--cold", help="Start each worker anew, not from a prepared process.")
    ] = False
    failures: Annotated[
        str,
        typer.Option(
            "--failures",
            metavar="S:M:P",
            help="Failures in a row that end the job: script, machine, preemptions.",
        ),
    ] = "3:10:100"

    autoscale: Annotated[
        str | None,
        typer.Option(
            "--autoscale",
            metavar="KEY=VALUE,...",
            help="Choose the number of workers, as in max=8,step=2.",
        ),
    ] = None
    stragglers: Annotated[
        Answer,
        typer.Option("--stragglers", help="What to do about workers that are persistently slow."),
    ] = Answer.OFF
    checkpoint_every: Annotated[
        str | None,
        typer.Option(
            "--checkpoint-every",
            metavar="TIME|STEPS",
            help="How often the state is saved: 10m, 500steps, both joined by a comma, or never [10m].",
        ),
    ] = None
    checkpoint_to: Annotated[
        str, typer.Option("--checkpoint-to", metavar="URL", help="Where to [the job's folder].")
    ] = ""
    keep: Annotated[int, typer.Option("--keep", metavar="K", min=1, help="Checkpoints to keep.")] = 2

    def make_launch(self) -> Launch:
        """Return the record of it. Raises ConfigError."""
        if self.autoscale is not None:
            parse_autoscale(self.autoscale)
        return Launch(
            virtual_workers=self.virtual_workers,
            threads=self.threads,
            grace_s=self.grace_s,
            lease_s=self.lease_s,
            orphan_grace_s=self.orphan_grace_s,
            step_timeout_s=self.step_timeout_s,
            cold=self.cold,
            autoscale=self.autoscale or "",
            stragglers=self.stragglers.value,
            failures=parse_failures(self.failures),
            checkpoints=make_checkpoint_plan(self.checkpoint_every, self.checkpoint_to, self.keep),
        )
