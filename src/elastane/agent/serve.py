"""Serve a job on this node from start to end, and the process that does so for `elastane run`.

`python -m elastane.agent.serve` reads its order, one line of JSON, from standard input. Whoever gave it
holds the other end: each further byte asks for a stop, the end of the stream means that nobody looks after
the job any more. Its last word, a line of JSON on standard output, says how the job ended or why this agent
cannot go on.
"""

import os
import select
import sys
from pathlib import Path

import msgspec

from elastane.agent.address import check_address, find_address
from elastane.agent.agent import Agent
from elastane.agent.devices import find_devices, parse_devices
from elastane.agent.folder import check_script_here, open_folder
from elastane.agent.local import LocalLauncher, LocalSettings
from elastane.agent.patience import insist
from elastane.agent.settings import AgentPlace, AgentSettings, make_agent_settings
from elastane.jobs.registry import find_job, read_launch
from elastane.jobs.requests import read_picture
from elastane.model.errors import ElastaneError
from elastane.model.ids import JobId, NodeId
from elastane.model.records import JobInfo, JobStatus, Launch, Spec
from elastane.store.open import open_store

CODE_UNABLE = 70
"""Exit code of an agent that says why it cannot go on (EX_SOFTWARE of sysexits.h); a crash has another."""
_MAX_ORDER_BYTES = 1 << 16


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """Say which job is to be served, and what this node is."""

    store_url: str
    job: JobId
    home: str
    """Where this node keeps the folders of jobs made elsewhere."""
    node: NodeId
    devices: str | None = None
    """As a person names them; None for all."""
    address: str | None = None
    """None for the one towards the store."""
    guest: bool = False
    """The job was made elsewhere: a request to stop means that this node leaves it."""


class LastWord(msgspec.Struct, frozen=True, kw_only=True):
    """Say how serving a job ended."""

    status: JobStatus | None = None
    error: str = ""
    """Kind of the error, if there was one."""
    message: str = ""


def serve(order: Order, lifeline: int | None = None) -> JobStatus:
    """Serve the job until it has ended, or a guest has left it; return how it stands.

    Raises:
        ConfigError: the devices, the address or the script cannot be used on this machine.
        JobNotFoundError: there is no such job.
        JobStateError: an agent of this node lives already.
        StoreError: the store stayed out of reach; this node's workers have been ended.
        OSError: the job's folder cannot be written, or there can be no more processes.
    """
    patience_s = AgentSettings().store_patience_s
    info, launch, spec = insist(
        lambda: _read_job(order),
        patience_s,
        (lambda pause_s: _hears(lifeline, pause_s)) if lifeline is not None else None,
    )
    check_script_here(info)
    if order.address is not None:
        check_address(order.address)
    if order.devices is not None:
        devices = parse_devices(order.devices, os.environ)
    else:
        devices = find_devices(spec.wanted, launch.virtual_workers, os.environ)
    directory = str(open_folder(info, Path(order.home)))
    place = AgentPlace(
        job=info.job,
        node=order.node,
        devices=devices,
        store_url=order.store_url,
        address=order.address or find_address(order.store_url, spec.nodes),
        directory=directory,
        guest=order.guest,
    )
    launcher = LocalLauncher(
        LocalSettings(
            script=info.script,
            directory=directory,
            environment=os.environ,
            intra_op_threads=launch.threads,
            warm=not launch.cold,
        )
    )
    return Agent(place, launcher, make_agent_settings(launch), lifeline).run()


def _read_job(order: Order) -> tuple[JobInfo, Launch, Spec]:
    with open_store(order.store_url, create=False) as store:
        info = find_job(store, order.job)
        return info, read_launch(store, info.job), read_picture(store, info.job).view.spec


def _hears(lifeline: int, timeout_s: float) -> bool:
    """Wait for a word of the foreground, or its end; tell whether there was one. It is not taken."""
    return bool(select.select([lifeline], [], [], timeout_s)[0])


def main() -> int:
    """Serve as ordered on standard input; return the exit code."""
    descriptor = sys.stdin.fileno()
    order = msgspec.json.decode(_read_line(descriptor), type=Order)
    try:
        word = LastWord(status=serve(order, descriptor))
    except (ElastaneError, OSError) as error:
        word = LastWord(error=type(error).__name__, message=str(error))
    sys.stdout.write(msgspec.json.encode(word).decode() + "\n")
    return CODE_UNABLE if word.error else 0


def _read_line(descriptor: int) -> bytes:
    # Byte by byte: what follows the line is the agent's to read.
    line = b""
    while not line.endswith(b"\n") and len(line) < _MAX_ORDER_BYTES:
        byte = os.read(descriptor, 1)
        if not byte:
            break
        line += byte
    return line


if __name__ == "__main__":
    sys.exit(main())
