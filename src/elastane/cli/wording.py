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


def first_line_of_error(text: str) -> str:
    """Return the line of a traceback that names the error: its last one."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "no traceback"


def _describe_unknown(event: Event) -> str:
    return " ".join([event.kind, *(f"{name}={value}" for name, value in event.fields.items())])


def _because(fields: Fields, name: str = "reason") -> str:
    return f": {fields[name]}" if fields.get(name) else ""


def _starting(fields: Fields) -> str:
    on = f" on {fields['device']}" if fields.get("device") else ""
    return f"starts {fields['worker']}{on}{_because(fields)}"


def _exited(fields: Fields) -> str:
    code = fields["code"]
    how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
    return f"{fields['worker']} {how}{_because(fields)}"


def _ready(fields: Fields) -> str:
    phases = fields.get("seconds") or fields.get("phases")
    took = ""
    if isinstance(phases, Mapping):
        took = " (" + ", ".join(f"{name} {format_duration(float(s))}" for name, s in phases.items()) + ")"
    elif isinstance(phases, int | float):
        took = f" after {format_duration(phases)}"
    return f"{fields['worker']} is ready{took}"


def _proposed(fields: Fields) -> str:
    members = fields["members"]
    who = ", ".join(map(str, members)) if isinstance(members, list | tuple) else str(members)
    return f"proposes generation {fields['generation']} with {who}{_because(fields)}"


def _committed(fields: Fields) -> str:
    step = fields.get("switch_step")
    where = "" if step is None else f", before step {step}"
    return f"commits generation {fields['generation']}{where}{_because(fields)}"


def _switched(fields: Fields) -> str:
    workers = fields["workers"]
    count = workers if isinstance(workers, int) else len(workers)
    moved = f", moved {format_bytes(fields['moved_bytes'])}" if fields.get("moved_bytes") else ""
    return (
        f"trains from step {fields['step']} in generation {fields['generation']} with {count} "
        f"worker{'' if count == 1 else 's'}: stop time {format_duration(fields['stop_s'])}{moved}"
    )


def _joined(fields: Fields) -> str:
    return (
        f"{fields['worker']} joined at step {fields['step']}, "
        f"{format_duration(fields['latency_s'])} after the request"
    )


def _waiting(fields: Fields) -> str:
    return f"waits for {fields['for']}{_because(fields, 'why')}"


_WORDS: dict[str, Callable[[Fields], str]] = {
    "agent_started": lambda fields: (
        "agent started" + (f" with {', '.join(fields['devices'])}" if fields.get("devices") else "")
    ),
    "worker_starting": _starting,
    "worker_exited": _exited,
    "worker_ready": _ready,
    "proposed": _proposed,
    "committed": _committed,
    "switched": _switched,
    "joined": _joined,
    "left": lambda fields: f"{fields['worker']} left before step {fields['step']}",
    "leader": lambda fields: f"{fields['worker']} leads",
    "link_broken": lambda fields: f"link of generation {fields['generation']} broke{_because(fields, 'why')}",
    "waiting": _waiting,
    "script_failed": lambda fields: (
        f"the script failed in {fields['worker']}: {first_line_of_error(fields['traceback'])}"
    ),
    "finished": lambda fields: (
        f"finished after {fields['step']} steps"
        + (f", state {fields['digest']}" if fields.get("digest") else "")
    ),
    "stopped": lambda fields: f"stopped after {fields['step']} steps, state saved in {fields['path']}",
}
