"""Run the demonstration: python -m demo.run --out demo-out.

Trains `examples/digits.py` as an elastic job that is scaled out, shot at, migrated and scaled in, then once
more as plain `python`, and compares every bit. Exit code 0: equal; 1: not, or it could not be carried out.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from demo.compare import Run, compare_runs, compute_costs, compute_step_time_s
from demo.folder import clear_folder, prepare_folder
from demo.picture import Mark, compute_stretches, draw_picture
from demo.processes import DemoError, ElasticRun, PlainRun, Script, find_digest, list_devices
from demo.report import render_costs, save_result, say, tell_verdict
from demo.story import Deed, Scene, Story, begin_scene, choose_device, choose_mover, choose_victim
from demo.view import DemoView
from elastane.cli.watch import JobWatch
from elastane.jobs.registry import log_path
from elastane.jobs.requests import request_migrate, request_scale
from elastane.model.errors import ElastaneError
from elastane.model.records import JobInfo, JobPhase
from elastane.observe.events import read_events
from elastane.observe.metrics import MetricsRecord, MetricsTail, read_metrics
from elastane.observe.snapshot import JobSnapshot
from elastane.store.base import Store

SCRIPT = Path(__file__).parent.parent / "examples" / "digits.py"
STEPS_PER_EPOCH = 12
"""1500 samples in steps of 4 virtual workers with 32 each, the last one short."""
EPOCHS, QUICK_EPOCHS = 150, 60
"""About 15 s of training on two cores: long enough to be watched. Quick: just enough for all changes."""
ATTEMPTS = 4
"""Each with twice the epochs of the one before."""
LOOK_S = 0.1
EXIT_INTERRUPTED = 130


Play = Callable[[Path, Script, Story, Console], tuple[Run, Run, float, Path]]


class CutShortError(DemoError):
    """Report that the training was too short for the story."""


class Stage:
    """Carry the story out on a running job, showing it."""

    def __init__(self, run: ElasticRun, view: DemoView, story: Story) -> None:
        self._run = run
        self._view = view
        self.story = story

    def play(self) -> JobInfo:
        """Follow the job to its end.

        Raises:
            CutShortError: it ended before the story did.
            DemoError: it failed.
        """
        store, info = self._run.open_store()
        with store:
            watch = JobWatch(store, info)
            tail, records = MetricsTail(Path(info.directory)), list[MetricsRecord]()
            while True:
                abandoned = not self._run.running
                snapshot = watch.look()
                records += tail.poll()
                scene = self.story.turn(snapshot)
                if scene is not None:
                    self._begin(scene, snapshot, store, info)
                self._view.show_elastic(snapshot, self.story.scenes, records)
                if snapshot.phase.ended or abandoned:
                    break
                time.sleep(LOOK_S)
        self._run.wait()
        self._check_end(snapshot)
        return info

    def _begin(self, scene: Scene, snapshot: JobSnapshot, store: Store, info: JobInfo) -> None:
        now_s = time.time()
        match scene.act.deed:
            case Deed.SCALE_OUT | Deed.SCALE_IN:
                workers = 2 if scene.act.deed is Deed.SCALE_OUT else 1
                begin_scene(scene, snapshot, f"elastane scale {info.name} {workers}", now_s)
                request_scale(store, info.job, workers)
            case Deed.MIGRATE:
                worker = choose_mover(snapshot).worker
                device = choose_device(snapshot, list_devices(store, info))
                command = f"elastane migrate {info.name} --from {worker} --to {device}"
                begin_scene(scene, snapshot, command, now_s, worker)
                request_migrate(store, info.job, worker, device)
            case Deed.KILL:
                victim = choose_victim(snapshot)
                begin_scene(scene, snapshot, f"kill -9 {victim.pid}", now_s, victim.worker)
                os.kill(victim.pid, signal.SIGKILL)

    def _check_end(self, snapshot: JobSnapshot) -> None:
        if snapshot.phase is not JobPhase.FINISHED:
            raise DemoError(
                f"the job {snapshot.phase.value} ({snapshot.message}):\n{self._run.read_output()}"
            )
        if not self.story.over:
            missing = ", ".join(scene.act.title for scene in self.story.scenes if not scene.done)
            raise CutShortError(f"training was too short for the whole story (missing: {missing})")


def run_plain(run: PlainRun, view: DemoView) -> None:
    """Follow the undisturbed run to its end. Raise DemoError if it fails."""
    tail, records = MetricsTail(run.folder), list[MetricsRecord]()
    running = True
    while running:
        running = run.running
        records += tail.poll()
        view.show_plain(records)
        time.sleep(LOOK_S)
    code = run.wait()
    if code != 0:
        raise DemoError(f"the undisturbed run ended with exit code {code}:\n{run.read_output()}")


def play_both(out: Path, script: Script, story: Story, console: Console) -> tuple[Run, Run, float, Path]:
    """Run the script both ways.

    Returns:
        The elastic run, the plain run, the time of the plain one's start until its first step was done, and
        the job's folder.
    """
    command = f"elastane run {os.path.relpath(script.path)} -- {' '.join(script.arguments)}"
    with DemoView(console, story.total_steps, command, f"python {script.show()}") as view:
        elastic = ElasticRun(out / "elastic", script)
        try:
            info = Stage(elastic, view, story).play()
        finally:
            elastic.end()
        plain = PlainRun(out / "plain", script)
        try:
            run_plain(plain, view)
        finally:
            plain.end()
    directory = Path(info.directory)
    logs = "".join(
        path.read_text(errors="replace") for path in sorted(log_path(directory, "x").parent.iterdir())
    )
    ours = Run(digest=find_digest(logs, directory / "logs"), records=tuple(read_metrics(directory)))
    theirs = Run(
        digest=find_digest(plain.read_output(), plain.folder), records=tuple(read_metrics(plain.folder))
    )
    return ours, theirs, theirs.records[0].at_s - plain.started_at_s, directory


def play_whole(
    out: Path, epochs: int, console: Console, play: Play = play_both
) -> tuple[Story, tuple[Run, Run, float, Path]]:
    """Run the script both ways, with more epochs if this machine trains too fast for the whole story.

    Raises:
        DemoError: it could not be carried out.
    """
    for longer in range(ATTEMPTS):
        prepare_folder(out)
        count = epochs * 2**longer
        story = Story(count * STEPS_PER_EPOCH)
        try:
            return story, play(out, Script(path=SCRIPT, arguments=("--epochs", str(count))), story, console)
        except CutShortError as error:
            if longer == ATTEMPTS - 1:
                raise
            say(console, f"{error}: once more with {2 * count} epochs", "yellow")
    raise AssertionError("the last attempt returns or raises")


def make_marks(story: Story) -> list[Mark]:
    """Return what the picture says of each change."""
    return [
        Mark(
            step=scene.changes[0].step or 0,
            text=f"{'SIGKILL' if scene.act.deed is Deed.KILL else scene.act.deed} {scene.who}".strip(),
            severe=scene.act.deed is Deed.KILL,
        )
        for scene in story.scenes
    ]


def run_demo(out: Path, epochs: int, console: Console) -> int:
    """Carry the demonstration out; return the exit code."""
    story, (elastic, plain, restart_s, directory) = play_whole(out, epochs, console)
    differences = compare_runs(elastic, plain)
    costs = compute_costs(story.scenes, elastic.records)
    stretches = compute_stretches(list(read_events(directory)), len(elastic.records))
    draw_picture(out / "demo.png", stretches, make_marks(story), elastic.records, plain.records)
    save_result(out / "result.json", [elastic.digest, plain.digest], differences, costs)
    console.print()
    console.print(render_costs(costs, restart_s, compute_step_time_s(plain.records)))
    console.print()
    tell_verdict(console, elastic, plain, differences)
    say(console, f"picture: {out / 'demo.png'}")
    say(console, f"look around: elastane show demo --home {out / 'elastic'}", "dim")
    return 1 if differences else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m demo.run", description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("demo-out"), help="folder of the results [demo-out]")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help=f"epochs of each run [{EPOCHS}]")
    parser.add_argument("--quick", action="store_true", help="as few epochs as will do")
    options = parser.parse_args(arguments)
    if options.epochs < 1:
        parser.error(f"--epochs {options.epochs}: at least 1 is needed")
    console = Console(highlight=False)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return run_demo(options.out, QUICK_EPOCHS if options.quick else options.epochs, console)
    except KeyboardInterrupt:
        clear_folder(options.out)
        say(console, "interrupted; everything has been ended", "yellow")
        return EXIT_INTERRUPTED
    except (ElastaneError, OSError) as error:
        say(console, f"demo: {error}", "red")
        return 1


if __name__ == "__main__":
    sys.exit(main())
