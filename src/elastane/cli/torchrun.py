"""Understand torchrun's flags, so that a habit or an old launch line does not end in a riddle.

A flag is either translated, or not needed here and left out with a note that says why, or refused with
what to write instead. The flags are those of `torch.distributed.run` in torch 2.13; both spellings
(`--nproc-per-node`, `--nproc_per_node`) count. Only what stands before `--` is looked at.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from elastane.model.errors import ConfigError

_FOUND = "workers find each other through the job's store; no address or port is needed"
_REPLACED = "a worker that dies is replaced while the others go on; the job itself never starts again"
_LOGGED = "each worker's output is kept: see `elastane logs`"
_RANKS = "ranks follow from the topology and may change while the job runs"
NOT_NEEDED = {
    "rdzv-backend": _FOUND,
    "rdzv-endpoint": _FOUND,
    "rdzv-id": _FOUND,
    "rdzv-conf": _FOUND,
    "master-addr": _FOUND,
    "master-port": _FOUND,
    "local-addr": _FOUND,
    "max-restarts": _REPLACED,
    "monitor-interval": "the end of a worker is noticed at once, without polling",
    "start-method": "workers are started from a prepared process; `--cold` starts each one anew",
    "role": _RANKS,
    "log-dir": _LOGGED,
    "redirects": _LOGGED,
    "tee": _LOGGED,
    "local-ranks-filter": _LOGGED,
    "duplicate-stdout-filters": _LOGGED,
    "duplicate-stderr-filters": _LOGGED,
    "logs-specs": _LOGGED,
    "event-log-handler": "events are kept in the job's folder: see `elastane events`",
    "numa-binding": "place workers with `elastane migrate`, or bind the whole command with numactl",
    "signals-to-handle": "SIGINT, SIGTERM and SIGUSR1 are always handled",
}
"""Flags with a value that ask for nothing here, and why."""
SWITCHES = {
    "standalone": "",
    "run-path": "a script always runs by its path",
    "virtual-local-rank": _RANKS,
}
"""Flags without a value that ask for nothing here; an empty reason needs no note."""
REFUSED = {
    "shutdown-timeout": "`--grace SECONDS` says how long workers have to leave",
    "module": "a script is given by the path of its file",
    "no-python": "the script must be a Python file that uses elastane",
}
SHORT = {"-m": "module", "-r": "redirects", "-t": "tee"}
COUNTS = ("nnodes", "nproc-per-node", "node-rank")


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """Hold command-line arguments without torchrun's flags, and what is to be said about those."""

    arguments: tuple[str, ...]
    notes: tuple[str, ...]


def translate_torchrun(arguments: Sequence[str]) -> Translation:
    """Replace torchrun's flags among the arguments of `elastane run`.

    Raises:
        ConfigError: a flag asks for something that is done differently, or its value cannot be used.
    """
    kept: list[str] = []
    notes: dict[str, list[str]] = {}
    counts: dict[str, str] = {}
    rest = list(arguments)
    while rest and rest[0] != "--":
        flag, value = _split(rest.pop(0))
        name = _normalise(flag)
        if name in REFUSED:
            raise ConfigError(f"`{flag}` is torchrun's; here {REFUSED[name]}")
        if name in SWITCHES:
            _note(notes, flag, SWITCHES[name])
        elif name in NOT_NEEDED or name in COUNTS:
            value = _take_value(flag, value, rest)
            if name in COUNTS:
                counts[name] = value
            else:
                _note(notes, flag, NOT_NEEDED[name])
        else:
            kept.append(flag if value is None else f"{flag}={value}")
    return Translation(
        arguments=(*kept, *_translate_counts(counts, kept), *rest),
        notes=tuple(f"not needed: {', '.join(flags)} ({reason})" for reason, flags in notes.items()),
    )


def _split(argument: str) -> tuple[str, str | None]:
    if argument.startswith("--") and "=" in argument:
        flag, _, value = argument.partition("=")
        return flag, value
    return argument, None


def _normalise(flag: str) -> str:
    return SHORT.get(flag) or (flag[2:].replace("_", "-") if flag.startswith("--") else "")


def _note(notes: dict[str, list[str]], flag: str, reason: str) -> None:
    if reason:
        notes.setdefault(reason, []).append(flag)


def _take_value(flag: str, value: str | None, rest: list[str]) -> str:
    if value is not None:
        return value
    if not rest or rest[0] == "--":
        raise ConfigError(
            f"`{flag}` (one of torchrun's flags) has no value; `--workers` is all that is needed here"
        )
    return rest.pop(0)


def _translate_counts(counts: dict[str, str], kept: Sequence[str]) -> tuple[str, ...]:
    if counts.get("node-rank", "0") != "0":
        raise ConfigError(
            f"`--node-rank {counts['node-rank']}` is torchrun's; "
            "nodes have no rank here, one `elastane run` uses this machine"
        )
    least, most = _parse_nodes(counts.get("nnodes", "1"))
    per_node = _parse_per_node(counts["nproc-per-node"]) if "nproc-per-node" in counts else None
    if most > 1:
        start = f"{least * (per_node or 1)}:" if least < most else ""
        raise ConfigError(
            f"`--nnodes {counts['nnodes']}` is torchrun's; `elastane run` uses this machine, on which "
            f"`--workers {start}{most * (per_node or 1)}` asks for as many workers"
        )
    if per_node is None:
        return ()
    if any(argument == "--workers" or argument.startswith("--workers=") for argument in kept):
        raise ConfigError(f"`--nproc-per-node {per_node}` and `--workers` say the same; give one of them")
    return ("--workers", str(per_node))


def _parse_nodes(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(?:(\d+):)?(\d+)", text, flags=re.ASCII)
    if match is None or not 1 <= int(match[1] or match[2]) <= int(match[2]):
        raise ConfigError(f"`--nnodes {text}` is no number of nodes; leave it out and ask with `--workers`")
    return int(match[1] or match[2]), int(match[2])


def _parse_per_node(text: str) -> int:
    if not re.fullmatch(r"[1-9]\d*", text, flags=re.ASCII):
        raise ConfigError(f"`--nproc-per-node {text}` is torchrun's; say a number, for example `--workers 4`")
    return int(text)
