"""Run a user's script in a worker process: register first, then the script, then say how it ended.

Rules
- A script that raises ends the job, and its traceback is the one shown, if it was the first to raise.
  In a worker that has not yet taken part in a running job, or has begun to leave it, it costs nothing but
  that worker.
- SIGTERM and SIGUSR1 mean: leave at the next step boundary. A worker that has not begun ends at once.
"""

import os
import runpy
import signal
import sys
import traceback
from pathlib import Path
from types import FrameType

from elastane.jobs.requests import request_leave
from elastane.model.errors import ElastaneError
from elastane.model.records import JobPhase
from elastane.observe.events import EventLog
from elastane.worker.context import WorkerContext, set_context
from elastane.worker.control import Control
from elastane.worker.standing import Left

EXIT_SCRIPT_FAILED = 1
TIDYING_NICENESS = 19
"""The lowest priority there is."""
LEAVE_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)

_control: Control | None = None


def running_control() -> Control | None:
    """Return the control of this worker process; None in a process that no agent started."""
    return _control


def main(context: WorkerContext) -> int:
    """Run the script of `context` as a worker of its job; return the exit code of this process."""
    global _control  # noqa: PLW0603 - one worker per process
    set_context(context)
    events = EventLog(Path(context.directory), context.worker)
    control = Control(context, events)
    control.start()
    _control = control
    for number in LEAVE_SIGNALS:
        signal.signal(number, _leave_on_signal)
    try:
        return _run_script(context, control)
    finally:
        for number in LEAVE_SIGNALS:
            signal.signal(number, signal.SIG_IGN)  # it is leaving
        control.leave()
        events.close()


def _leave_on_signal(number: int, frame: FrameType | None) -> None:
    del frame
    control = _control
    if control is None:
        return
    name = signal.Signals(number).name
    gate = control.standing.gate
    if gate.generation == 0 and gate.pending is None:
        raise Left(f"{name} before it took part")
    context = control.context
    control.events.append("leave_requested", worker=context.worker, reason=name)
    # Not waited for: the handler runs in the training thread, which may hold the lock.
    control.post(lambda store: request_leave(store, context.job, context.worker))


def _run_script(context: WorkerContext, control: Control) -> int:
    sys.argv = [context.script, *context.arguments]
    sys.path.insert(0, str(Path(context.script).resolve().parent))
    try:
        runpy.run_path(context.script, run_name="__main__")
    except Left as left:
        # What is left is tidying up, some 50 ms of processor time that those who train on need more.
        os.nice(TIDYING_NICENESS)
        return int(left.code or 0)
    except SystemExit as leaving:
        code = _exit_code(leaving)
        if code:
            _report_failure(control, f"the script called sys.exit({leaving.code!r})", "")
        return code
    except BaseException as error:  # noqa: BLE001 - whatever the user's script raised is reported, not hidden
        text = "".join(traceback.format_exception(error))
        sys.stderr.write(text)
        _report_failure(control, _one_line(error), text)
        return EXIT_SCRIPT_FAILED
    _note_end(control)
    return 0


def _exit_code(leaving: SystemExit) -> int:
    if leaving.code is None or isinstance(leaving.code, int):
        return leaving.code or 0
    sys.stderr.write(f"{leaving.code}\n")
    return EXIT_SCRIPT_FAILED


def _one_line(error: BaseException) -> str:
    kind = "" if isinstance(error, ElastaneError) else f"{type(error).__name__}: "
    return f"{kind}{error}"


def _report_failure(control: Control, message: str, text: str) -> None:
    joining = control.standing.gate.generation == 0 and control.view.current is not None
    # One that leaves runs `finally` blocks only: the others train on.
    ends_job = not joining and not control.standing.leaving
    try:
        first = ends_job and control.end_job(JobPhase.FAILED, message)
    except (ElastaneError, Left) as error:
        first = False
        sys.stderr.write(f"the failure could not be reported: {error}\n")
    control.events.append(
        "script_failed",
        worker=control.context.worker,
        reason=message,
        traceback=text,
        first=first,
        ends_job=ends_job,
    )


def _note_end(control: Control) -> None:
    """A script that returns without having trained, or left its loop early, ends the job as well."""
    if control.view.current is None or control.standing.gate.generation > 0:
        step = control.standing.gate.committed
        if control.end_job(JobPhase.FINISHED, f"the script ended after {step} steps"):
            control.events.append("finished", worker=control.context.worker, step=step)
