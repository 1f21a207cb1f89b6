"""Show a job while it runs: a view that is kept fresh on a terminal, one line per event elsewhere.

Both look at the job through `JobWatch` and never touch it. `Live.update` is called again and again by
whoever waits for the job.
"""

import math
from typing import Protocol

from rich.console import Console
from rich.live import Live

from elastane.cli.output import Output
from elastane.cli.render import EVENT_STYLES, format_rates, format_values, render_live
from elastane.cli.wording import describe_line, format_count
from elastane.model.ids import WorkerId
from elastane.observe.events import Event, summarise
from elastane.observe.snapshot import JobSnapshot

EVENT_LINES = 8
"""Events in the live view, if the terminal is high enough."""
HEAD_LINES = 8
"""Lines of the live view above the workers, with some room for what is changing."""
PROGRESS_INTERVAL_S = 10.0
"""Time between two lines of progress where there is no live view."""
CHECKPOINT_INTERVAL_S = 10.0
"""Likewise between two lines about checkpoints that went well: a job may take one every second."""


class View(Protocol):
    """Show a job that runs."""

    def update(self, snapshot: JobSnapshot, now_s: float) -> None:
        """Show the job as it is now; `now_s` is a monotonic clock."""

    def show_output(self, worker: WorkerId, line: str) -> None:
        """Show a line that the script printed."""

    def say(self, text: str) -> None:
        """Say something to the person who watches, until something else is said; "" = nothing more."""

    def close(self) -> None:
        """Leave the last state standing and give the terminal back."""


class TerminalView:
    """Keep one picture of the job fresh at the bottom of a terminal."""

    __slots__ = ("_console", "_live", "_remark")

    def __init__(self, console: Console) -> None:
        """Begin with an empty picture on `console`."""
        self._console = console
        self._remark = ""
        # Drawn only when `update` brings news: no thread of its own, nothing to race with.
        # What is logged meanwhile goes above the picture instead of through it.
        self._live = Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=True)
        self._live.start()

    def update(self, snapshot: JobSnapshot, now_s: float) -> None:
        """Draw the job as it is now."""
        room = self._console.height - HEAD_LINES - len(snapshot.workers) - len(snapshot.activity)
        picture = render_live(snapshot, max(0, min(EVENT_LINES, room)), self._remark)
        self._live.update(picture, refresh=True)

    def show_output(self, worker: WorkerId, line: str) -> None:
        """Print the line above the picture, as it is."""
        del worker
        self._console.print(line, markup=False, highlight=False, emoji=False)

    def say(self, text: str) -> None:
        """Show `text` below the picture from the next update on."""
        self._remark = text

    def close(self) -> None:
        """Leave the last picture standing."""
        self._live.stop()


class LineView:
    """Write one line for each event, and one of progress now and then; JSON if asked for."""

    __slots__ = ("_checkpoint_at_s", "_out", "_progress_at_s", "_said", "_shown")

    def __init__(self, out: Output, skip_events: int = 0) -> None:
        """Write to `out`, leaving out the job's first `skip_events` events (of a run before)."""
        self._out = out
        self._said = ""
        self._shown = skip_events
        self._progress_at_s: float | None = None
        self._checkpoint_at_s = -math.inf

    def update(self, snapshot: JobSnapshot, now_s: float) -> None:
        """Write what is new."""
        for event in snapshot.events[self._shown :]:
            if not self._out.as_json and self._is_routine(event):
                continue
            self._out.stream(summarise(event), describe_line(event), EVENT_STYLES.get(event.kind, ""))
        self._shown = len(snapshot.events)
        if self._progress_at_s is None:
            self._progress_at_s = now_s + PROGRESS_INTERVAL_S
        elif now_s >= self._progress_at_s and snapshot.rates is not None:
            self._progress_at_s = now_s + PROGRESS_INTERVAL_S
            self._write_progress(snapshot)

    def show_output(self, worker: WorkerId, line: str) -> None:
        """Write the line as it is."""
        self._out.stream({"kind": "output", "worker": worker, "line": line}, line)

    def say(self, text: str) -> None:
        """Write `text` to standard error, once however often it is said."""
        if text and text != self._said:
            self._out.remark(text, style="bold")
        self._said = text

    def close(self) -> None:
        """Do nothing: lines stand as they are."""

    def _is_routine(self, event: Event) -> bool:
        """Say whether people need not see this: a checkpoint that goes as those before. Programs see all."""
        if event.kind == "checkpoint_begun":
            return True
        if event.kind != "checkpoint_saved":
            return False
        early = event.at_s < self._checkpoint_at_s + CHECKPOINT_INTERVAL_S
        if not early:
            self._checkpoint_at_s = event.at_s
        return early

    def _write_progress(self, snapshot: JobSnapshot) -> None:
        data = {
            "kind": "progress",
            "step": snapshot.step,
            "epoch": snapshot.epoch,
            "values": snapshot.values,
            "rates": snapshot.rates,
            "workers": snapshot.training,
        }
        parts = [
            f"step {snapshot.step}",
            format_values(snapshot.values),
            format_rates(snapshot.rates),
            format_count(snapshot.training, "worker"),
        ]
        self._out.stream(data, ", ".join(filter(None, parts)))


def open_view(out: Output, *, plain: bool, skip_events: int = 0) -> View:
    """Return the view that suits standard output: a picture on a terminal, lines elsewhere or if `plain`."""
    if plain or out.as_json or not out.people.is_terminal:
        return LineView(out, skip_events)
    return TerminalView(out.people)
