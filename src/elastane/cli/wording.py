"""Say in one line of plain words what an event means; the only place that knows how each kind reads.

A kind that is not in the table is shown with its fields, so nothing is ever hidden.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, tzinfo
from typing import Any

from elastane.observe.events import Event

Fields = Mapping[str, Any]


def describe_event(event: Event) -> str:
    """Return what happened, without the time."""
    describe = _WORDS.get(event.kind)
    if describe is None:
        return _describe_unknown(event)
    try:
        return describe(event.fields)
    except (KeyError, TypeError, ValueError):
        # Written by another version, with other fields: still shown, only less well.
        return _describe_unknown(event)


def describe_line(event: Event, zone: tzinfo | None = None) -> str:
    """Return time, source and words of an event as one line; `zone` is the machine's unless given."""
    return f"{format_clock(event.at_s, zone)}  {event.source:<12}  {describe_event(event)}"


def format_clock(at_s: float, zone: tzinfo | None = None) -> str:
    """Return a moment as hours, minutes, seconds and tenths."""
    moment = datetime.fromtimestamp(at_s, zone)
    return f"{moment:%H:%M:%S}.{moment.microsecond // 100_000}"


def format_duration(seconds: float) -> str:
    """Return a duration with the unit that suits it: 840 µs, 12 ms, 3.4 s, 2 min 5 s, 3 h 12 min."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 0.9995:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest_s = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest_s} s"
    return f"{minutes // 60} h {minutes % 60} min"


def format_bytes(count: int) -> str:
    """Return a number of bytes with a decimal unit."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:.3g} TB"


def format_count(count: int, noun: str) -> str:
    """Return a number with its noun: 1 worker, 2 workers."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def name_of_error(text: str) -> str:
    """Return the line of a traceback that names the error: the last one."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "no traceback"


def _describe_unknown(event: Event) -> str:
    return " ".join([event.kind, *(f"{name}={value}" for name, value in event.fields.items())])


def _because(fields: Fields, name: str = "reason") -> str:
    return f": {fields[name]}" if fields.get(name) else ""


def _starting(fields: Fields) -> str:
    on = f" on {fields['device']}" if fields.get("device") else ""
    return f"starts {fields['worker']}{on}{_because(fields)}"


def _node_leaves(fields: Fields) -> str:
    ways = {"swap": "when its successor is ready", "now": "at the next step"}
    parts = [f"{worker} goes {ways[how]}" for worker, how in fields["workers"].items()]
    return f"{fields['node']} leaves the job{_because(fields)}: {', '.join(parts) or 'no worker runs there'}"


def _exited(fields: Fields) -> str:
    code = fields["code"]
    if code is None:
        return f"{fields['worker']} {fields.get('meaning') or 'ended, nobody knows how'}"
    how = (
        f"was ended by {fields.get('signal') or f'signal {-code}'}" if code < 0 else f"ended with code {code}"
    )
    failure = fields.get("failure")
    why = f" ({fields['meaning']})" if code and fields.get("meaning") else ""
    return f"{fields['worker']} {how}{why}{f': {failure}' if isinstance(failure, str) and failure else ''}"


def _ready(fields: Fields) -> str:
    phases = fields.get("seconds") or fields.get("phases")
    took = ""
    if isinstance(phases, Mapping):
        took = " (" + ", ".join(f"{name} {format_duration(float(s))}" for name, s in phases.items()) + ")"
    elif isinstance(phases, int | float):
        took = f" after {format_duration(phases)}"
    return f"{fields['worker']} is ready{took}"


def _proposed(fields: Fields) -> str:
    who = f" with {', '.join(fields['members'])}" if fields["members"] else ", in which nobody trains on"
    return f"proposes generation {fields['generation']}{who}{_because(fields)}"


def _committed(fields: Fields) -> str:
    step = fields.get("switch_step")
    where = "" if step is None else f", before step {step}"
    return f"commits generation {fields['generation']}{where}{_because(fields)}"


def _loaded(fields: Fields) -> str:
    refused = "".join(f"; not {folder}: {why}" for folder, why in fields["refused"].items())
    return f"{fields['worker']} has loaded the checkpoint of step {fields['step']}{refused}"


def _switched(fields: Fields) -> str:
    workers = fields["workers"]
    count = workers if isinstance(workers, int) else len(workers)
    moved = f", moved {format_bytes(fields['moved_bytes'])}" if fields.get("moved_bytes") else ""
    return (
        f"trains from step {fields['step']} in generation {fields['generation']} with "
        f"{format_count(count, 'worker')}: stop time {format_duration(fields['stop_s'])}{moved}"
    )


def _joined(fields: Fields) -> str:
    return (
        f"{fields['worker']} joined at step {fields['step']}, "
        f"{format_duration(fields['latency_s'])} after the request"
    )


def _drill(fields: Fields) -> str:
    harm = fields["harm"]
    if harm == "contend":
        return f"a drill keeps processes busy, {fields['processes']} of them{_because(fields)}"
    if harm == "slow":
        return f"a drill makes {fields['worker']} {fields['factor']:g} times as slow{_because(fields)}"
    return f"a drill {'kills' if harm == 'kill' else 'freezes'} {fields['worker']}{_because(fields)}"


def _waiting(fields: Fields) -> str:
    waited = f" (since {format_duration(fields['since_s'])})" if fields.get("since_s") else ""
    return f"{fields['worker']} waits{_because(fields)}{waited}"


def _ended(word: str) -> Callable[[Fields], str]:
    def describe(fields: Fields) -> str:
        after = f" after {format_count(fields['step'], 'step')}" if "step" in fields else ""
        state = f", state {fields['digest']}" if fields.get("digest") else ""
        saved = f", state saved in {fields['path']}" if fields.get("path") else ""
        return f"{word}{after}{state}{saved}{_because(fields)}"

    return describe


_WORDS: dict[str, Callable[[Fields], str]] = {
    "agent_started": lambda fields: (
        f"agent started on {fields['node']}" if fields.get("node") else "agent started"
    ),
    "agent_ended": lambda fields: f"agent ended: the job is {fields['phase']}",
    "node_leaves": _node_leaves,
    "agent_left": lambda fields: f"{fields['node']} has left the job, which goes on without it",
    "worker_starting": _starting,
    "worker_started": lambda fields: (
        f"{fields['worker']} runs as process {fields['pid']} ({fields['start']} start)"
    ),
    "agent_died": lambda fields: (
        f"the agent ended with code {fields['code']} and is started again; the workers train on"
    ),
    "foreground_lost": lambda fields: f"lets the job stop and save{_because(fields)}",
    "stop_waits": lambda fields: f"lets the stop take its time{_because(fields)}",
    "worker_adopted": lambda fields: (
        f"goes on with {fields['worker']}, process {fields['pid']}, which an earlier agent started"
    ),
    "worker_start_failed": lambda fields: f"{fields['worker']} could not be started{_because(fields)}",
    "worker_exited": _exited,
    "worker_ending": lambda fields: f"ends {fields['worker']} ({fields['force']}){_because(fields)}",
    "worker_ready": _ready,
    "staffing_waits": lambda fields: f"starts no worker now{_because(fields)}",
    "preloaded": lambda fields: "the prepared process is ready: workers start from it",
    "stop_requested": lambda fields: f"asks all workers to stop and save, within {fields['grace_s']:g} s",
    "checkpoint_begun": lambda fields: (
        f"takes a checkpoint of step {fields['step']} ({format_bytes(fields['bytes'])}, "
        f"{format_count(fields['workers'], 'worker')}); that took {format_duration(fields['stop_s'])}"
    ),
    "checkpoint_saved": lambda fields: (
        f"checkpoint of step {fields['step']} saved: {format_bytes(fields['bytes'])} in "
        f"{format_duration(fields['seconds'])}"
    ),
    "checkpoint_skipped": lambda fields: f"no checkpoint at step {fields['step']}{_because(fields)}",
    "checkpoint_failed": lambda fields: (
        f"the checkpoint of step {fields['step']} came to nothing{_because(fields)}"
    ),
    "checkpoints_not_removed": lambda fields: f"old checkpoints could not be removed{_because(fields)}",
    "checkpoint_loaded": _loaded,
    "restored": lambda fields: (
        f"all begin anew at step {fields['step']}; to be repeated: "
        f"{format_count(fields['repeated'], 'step')}{_because(fields)}"
    ),
    "store_trouble": lambda fields: (
        f"the store cannot be used{_because(fields, 'error') or _because(fields)}"
    ),
    "store_back": lambda fields: f"the store answers again, after {format_duration(fields['away_s'])}",
    "drill": _drill,
    "straggler": lambda fields: f"slow workers, {fields['action']}{_because(fields)}",
    "autoscale": lambda fields: (
        f"{format_count(fields['workers'], 'worker')}, {fields['wanted']} wanted{_because(fields)}"
    ),
    "slowed": lambda fields: (
        f"{fields['worker']} computes {fields['factor']:g} times as long from now on, for "
        f"{format_duration(fields['for_s'])} at most{_because(fields)}"
    ),
    "slowed_no_more": lambda fields: f"{fields['worker']} computes at its own speed again{_because(fields)}",
    "proposed": _proposed,
    "committed": _committed,
    "switched": _switched,
    "joined": _joined,
    "left": lambda fields: f"{fields['worker']} left before step {fields['step']}",
    "leave_requested": lambda fields: f"{fields['worker']} was asked to leave{_because(fields)}",
    "leader": lambda fields: f"{fields.get('worker', 'this worker')} leads{_because(fields)}",
    "withdrawn": lambda fields: f"withdraws generation {fields['generation']}{_because(fields)}",
    "dismissed": lambda fields: f"goes on without {', '.join(fields['workers'])}{_because(fields)}",
    "metrics_lost": lambda fields: f"the loss curve has a gap{_because(fields)}",
    "link_broken": lambda fields: f"the link of generation {fields['generation']} broke{_because(fields)}",
    "waiting": _waiting,
    "orphaned": lambda fields: f"{fields['worker']} lets the job stop and save{_because(fields)}",
    "fenced": lambda fields: f"{fields['worker']} stops by itself{_because(fields)}",
    "told_to_quit": lambda fields: f"{fields['worker']} is told to quit{_because(fields)}",
    "warm_up_skipped": lambda fields: f"{fields['worker']} was not warmed up{_because(fields)}",
    "script_failed": lambda fields: (
        f"the script failed in {fields['worker']}: {name_of_error(fields['traceback'])}"
    ),
    "finished": _ended("finished"),
    "stopped": _ended("stopped"),
    "failed": _ended("failed"),
}
