"""Say how a job that ran in the foreground ended, what is left of it, and with which exit code."""

from collections.abc import Sequence
from dataclasses import dataclass

from elastane.cli.exits import Exit
from elastane.cli.output import Output
from elastane.cli.render import format_values
from elastane.cli.wording import format_duration, name_of_error
from elastane.model.records import JobPhase
from elastane.observe.events import Event
from elastane.observe.snapshot import JobSnapshot

TRACEBACK_HEAD = "Traceback (most recent call last):"
OWN_ERRORS = "elastane.model.errors."
"""How the last line of a traceback begins if the error is one of ours: its message says it all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Hold how a run of a job ended."""

    kind: str = "outcome"
    """Tells this object from the events before it in a stream of JSON."""
    job: str
    name: str
    phase: JobPhase
    exit_code: Exit
    message: str
    step: int
    values: dict[str, float]
    seconds: float
    digest: str | None = None
    """sha256 of the final state; None unless the job finished."""
    saved: str | None = None
    """Folder of the saved state; None unless a graceful stop saved one."""
    failed_worker: str | None = None
    traceback: str | None = None
    """The first error of the script; None if it raised none."""


def compute_outcome(snapshot: JobSnapshot, seconds: float) -> Outcome:
    """Return the outcome of the run that the snapshot shows the end of."""
    events = _select_last_run(snapshot.events)
    # Not that of a newcomer or a leaver, which cost the job nothing.
    failures = (event for event in events if event.kind == "script_failed")
    failure = next((event for event in failures if event.fields.get("first", True)), None)
    return Outcome(
        job=snapshot.job,
        name=snapshot.name,
        phase=snapshot.phase,
        exit_code=_compute_exit(snapshot.phase, snapshot.saved is not None),
        message=snapshot.message,
        step=snapshot.step,
        values=snapshot.values,
        seconds=round(seconds, 3),
        digest=snapshot.digest,
        saved=snapshot.saved,
        failed_worker=failure.fields.get("worker") if failure else None,
        traceback=trim_traceback(str(failure.fields.get("traceback", "")), snapshot.script)
        if failure
        else None,
    )


def trim_traceback(text: str, script: str) -> str:
    """Return a traceback without the frames that led to the script, if that can be told safely."""
    begin = text.find(f'  File "{script}"')
    if text.count(TRACEBACK_HEAD) != 1 or not text.startswith(TRACEBACK_HEAD) or begin < 0:
        return text  # errors that led to others: each has frames of its own
    return f"{TRACEBACK_HEAD}\n{text[begin:]}"


def describe_outcome(outcome: Outcome) -> str:
    """Return the outcome in one or a few lines for people."""
    numbers = ", ".join(filter(None, [f"{outcome.step} steps", format_values(outcome.values)]))
    head = f"{outcome.phase.value} after {format_duration(outcome.seconds)}: {numbers}"
    if outcome.phase is JobPhase.FINISHED:
        return f"{head}\nstate sha256 {outcome.digest}" if outcome.digest else head
    if outcome.phase is JobPhase.STOPPED and outcome.saved:
        return f"{head}\nthe state is saved; go on with: elastane resume {outcome.job}"
    if outcome.phase is JobPhase.STOPPED:
        return f"{head}\n{outcome.message or 'the state was not saved'}"
    return head


def tell_outcome(out: Output, outcome: Outcome) -> None:
    """Write the outcome: as the last line of a JSON stream, or for people."""
    if out.as_json:
        out.stream(outcome, "")
        return
    out.people.print(describe_outcome(outcome), style="bold", markup=False, soft_wrap=True)
    if outcome.phase is not JobPhase.FAILED:
        return
    if outcome.traceback and not name_of_error(outcome.traceback).startswith(OWN_ERRORS):
        out.remark(f"first error, in worker {outcome.failed_worker}:\n{outcome.traceback.rstrip()}", style="")
    why = f": {outcome.message}" if outcome.message else ""
    out.remark(f"elastane: job {outcome.job} failed{why}\nsee also: elastane logs {outcome.job}", style="red")


def _compute_exit(phase: JobPhase, saved: bool) -> Exit:
    if phase is JobPhase.FINISHED:
        return Exit.DONE
    if phase is JobPhase.STOPPED:
        return Exit.STOPPED if saved else Exit.INTERRUPTED
    return Exit.FAILED


def _select_last_run(events: Sequence[Event]) -> Sequence[Event]:
    starts = [index for index, event in enumerate(events) if event.kind == "agent_started"]
    return events[starts[-1] :] if starts else events
