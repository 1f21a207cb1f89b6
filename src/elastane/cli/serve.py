"""Serve a job in the foreground: an agent in a process of its own, the view in a thread, the result at the
end.

The first signal asks for a graceful stop, the second ends at once (see `cli.supervisor`). The view only
looks, with a store handle of its own; if it fails the job goes on unseen.
"""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from elastane.agent.serve import Order
from elastane.cli.home import Home
from elastane.cli.live import LineView, View, open_view
from elastane.cli.onlooker import Onlooker
from elastane.cli.options import Stage
from elastane.cli.output import Output
from elastane.cli.script_output import ScriptOutput
from elastane.cli.supervisor import Supervisor
from elastane.cli.watch import JobWatch
from elastane.model.errors import StoreError
from elastane.model.records import JobInfo
from elastane.observe.snapshot import JobSnapshot
from elastane.store.open import open_store

TERMINAL_INTERVAL_S = 0.25
"""Time between two pictures: faster is not read, slower looks stuck."""
LINES_INTERVAL_S = 0.1

log = logging.getLogger(__name__)


def serve_job(home: Home, info: JobInfo, stage: Stage, out: Output) -> JobSnapshot:
    """Run an agent for the job until it has ended, showing it meanwhile; return its end.

    Raises:
        StoreError: the store stayed out of reach; all workers have been ended.
        OSError: the job's folder cannot be written, or there can be no more processes.
    """
    runner: Supervisor | Onlooker
    if stage.elsewhere:
        runner = Onlooker(home.store_url, info.job)
    else:
        order = Order(
            store_url=home.store_url,
            job=info.job,
            home=str(home.path),
            node=stage.name(),
            devices=stage.devices,
            address=stage.address,
        )
        runner = Supervisor(order, Path(info.directory))
    with shown(home, info, out, plain=stage.plain):
        runner.run()
    with open_store(home.store_url) as store:
        return JobWatch(store, info).look()


@contextmanager
def shown(home: Home, info: JobInfo, out: Output, *, plain: bool) -> Iterator[None]:
    """Show the job while the body runs: what happens from now on in the folder that `info` names.

    It runs unseen if the store cannot be read now: it may wait for the store, or tell what is wrong.
    """
    show = _begin_view(home, info, out, plain=plain)
    try:
        yield
    finally:
        if show is not None:
            show.finish()


def _begin_view(home: Home, info: JobInfo, out: Output, *, plain: bool) -> "ViewThread | None":
    try:
        with open_store(home.store_url) as store:
            earlier_events = len(JobWatch(store, info).look().events)
    except (StoreError, OSError) as error:
        log.warning("the job is not shown here: %s", error)
        return None
    show = ViewThread(home, info, open_view(out, plain=plain, skip_events=earlier_events))
    show.start()
    return show


class ViewThread(threading.Thread):
    """Keep a view of a job fresh until told to finish."""

    def __init__(self, home: Home, info: JobInfo, view: View) -> None:
        """Prepare to show the job of `info` in `view`."""
        super().__init__(name="elastane-view", daemon=True)
        self._home = home
        self._info = info
        self._view = view
        self._interval_s = LINES_INTERVAL_S if isinstance(view, LineView) else TERMINAL_INTERVAL_S
        self._done = threading.Event()

    def run(self) -> None:
        """Look and show, again and again, and once more at the end."""
        try:
            with open_store(self._home.store_url) as store:
                watch = JobWatch(store, self._info)
                output = ScriptOutput(Path(self._info.directory), self._view.show_output)
                while not self._done.wait(self._interval_s):
                    output.update(self._update(watch))
                output.update(self._update(watch), last=True)
        except (StoreError, OSError) as error:
            # A closed terminal, or a store in trouble, of which the agent tells: the job goes on.
            log.warning("the job is no longer shown: %s", error)

    def _update(self, watch: JobWatch) -> JobSnapshot:
        snapshot = watch.look()
        if snapshot.stopping:
            self._view.say(
                "stopping and saving the state; Ctrl-C once more ends the job at once, without saving"
            )
        elif snapshot.phase.ended:
            self._view.say("")
        self._view.update(snapshot, time.monotonic())
        return snapshot

    def finish(self) -> None:
        """Show the job a last time and give the terminal back."""
        self._done.set()
        self.join()
        self._view.close()
