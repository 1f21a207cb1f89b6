"""Show the demonstration while it runs: a picture that is kept fresh on a terminal, lines elsewhere."""

import math
from collections.abc import Sequence
from itertools import pairwise

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from demo.compare import compute_costs
from demo.picture import choose_colour
from demo.story import Scene
from elastane.cli.wording import format_count, format_duration
from elastane.observe.metrics import MetricsRecord
from elastane.observe.snapshot import JobSnapshot

WIDTH = 88
SPARKS = "▁▂▃▄▅▆▇█"
SPARK_COLUMNS = 48
MAP_CELL = "█" * 6


class DemoView:
    """Show both runs on a console.

    Args:
        console: where to.
        total_steps: steps of each run.
        elastic_command: how one would start the elastic run.
        plain_command: how one would start the other.
    """

    def __init__(self, console: Console, total_steps: int, elastic_command: str, plain_command: str) -> None:
        self._console = console
        self._total_steps = total_steps
        self._elastic_command = elastic_command
        self._plain_command = plain_command
        self._live: Live | None = None
        self._told: set[str] = set()
        self._elastic: RenderableType = Text()
        self._plain: RenderableType = Text(f"  then, undisturbed: $ {plain_command}", style="dim")

    def __enter__(self) -> "DemoView":
        """Begin to show."""
        if self._console.is_terminal:
            # Drawn only when there is news: no thread of its own.
            self._live = Live(console=self._console, auto_refresh=False, redirect_stdout=False)
            self._live.start()
        self._tell(f"$ {self._elastic_command}", "elastic")
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the last picture standing."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def show_elastic(
        self, snapshot: JobSnapshot, scenes: Sequence[Scene], records: Sequence[MetricsRecord]
    ) -> None:
        """Show the elastic run as it is now."""
        for scene in scenes:
            if scene.command:
                self._tell(f"{scene.act.title}: $ {scene.command}", scene.act.deed)
            if scene.done:
                self._tell(f"    {describe_scene(scene, records)}", f"{scene.act.deed}, done")
        self._elastic = Group(
            Text(f"$ {self._elastic_command}", style="bold"),
            _render_scenes(scenes, records),
            Text(),
            *(() if snapshot.phase.ended else (_render_map(snapshot),)),
            self._render_progress(records, _describe_workers(snapshot)),
        )
        self._draw()

    def show_plain(self, records: Sequence[MetricsRecord]) -> None:
        """Show the undisturbed run as it is now."""
        self._tell(f"$ {self._plain_command}", "plain")
        self._plain = Group(
            Text(f"$ {self._plain_command}", style="bold"), self._render_progress(records, "1 process")
        )
        self._draw()

    def _draw(self) -> None:
        if self._live is not None:
            picture = Panel(
                Group(self._elastic, Text(), self._plain), title="elastane", width=WIDTH, padding=(1, 2)
            )
            self._live.update(picture, refresh=True)

    def _tell(self, line: str, what: str) -> None:
        """Write a line where there is no live picture, once for each `what`."""
        if self._live is None and what not in self._told:
            self._told.add(what)
            self._console.print(Text(line), soft_wrap=True)

    def _render_progress(self, records: Sequence[MetricsRecord], who: str) -> RenderableType:
        losses = [record.values["loss"] for record in records]
        line = Table.grid(padding=(0, 2))
        bar = ProgressBar(total=self._total_steps, completed=len(records), width=SPARK_COLUMNS)
        line.add_row("step", bar, f"{len(records)}/{self._total_steps}")
        line.add_row("loss", Text(draw_sparks(losses), style="cyan"), f"{losses[-1]:.2e}" if losses else "")
        line.add_row("", Text(who, style="dim"))
        return line


def describe_scene(scene: Scene, records: Sequence[MetricsRecord]) -> str:
    """Say in a few words what a finished act has cost."""
    joins = [join for change in scene.changes for join in change.joined]
    stop_s = max((cost.stop_s or 0.0 for cost in compute_costs([scene], records)), default=0.0)
    joined = f", {joins[-1].worker} joined in {format_duration(joins[-1].latency_s)}" if joins else ""
    return f"training stopped for {format_duration(stop_s)}{joined}"


def draw_sparks(losses: Sequence[float], columns: int = SPARK_COLUMNS) -> str:
    """Return a curve of a positive quantity on a logarithmic scale, `columns` characters wide at most."""
    if not losses:
        return ""
    count = min(columns, len(losses))
    edges = [len(losses) * column // count for column in range(count + 1)]
    means = [sum(losses[begin:end]) / (end - begin) for begin, end in pairwise(edges)]
    logs = [math.log(max(mean, 1e-12)) for mean in means]
    low, span = min(logs), max(logs) - min(logs) or 1.0
    return "".join(SPARKS[round((value - low) / span * (len(SPARKS) - 1))] for value in logs)


def _describe_workers(snapshot: JobSnapshot) -> str:
    if snapshot.phase.ended:
        return snapshot.phase.value
    return format_count(snapshot.training, "worker")


def _render_scenes(scenes: Sequence[Scene], records: Sequence[MetricsRecord]) -> RenderableType:
    lines = []
    for scene in scenes:
        if scene.done:
            mark, style, more = "✓", "green", describe_scene(scene, records)
        elif scene.command:
            mark, style, more = "▶", "yellow", scene.command
        else:
            mark, style, more = "·", "dim", ""
        lines.append(Text(f" {mark} {scene.act.title}", style=style))
        if more:
            lines.append(Text(f"     {more}", style="dim"))
    return Group(*lines)


def _render_map(snapshot: JobSnapshot) -> RenderableType:
    """Return one block for each virtual worker, in the colour of the worker that runs it."""
    owners = {
        vrank: worker.worker
        for worker in snapshot.workers
        if worker.vranks is not None
        for vrank in range(*worker.vranks)
    }
    line = Text("virtual workers  ", style="dim")
    for vrank in range(snapshot.virtual_workers):
        owner = owners.get(vrank, "")
        line.append(f"{MAP_CELL} ", style=choose_colour(owner) if owner else "dim")
        line.append(f"{owner:<4}", style="bold")
    return line
