"""Follow a job's log while drills go on, with all times on the clock of this machine.

Theory of operation. Every line of the log carries the wall clock of the host that wrote it, and a drill that
of this one: they can be compared only if both are one host. A host is told by its node, and the nodes of this
machine by workers whose processes are found here. What comes from another host, or from one that is not
known, gets the time at which it was first seen here: that is late by a look at most. While all nodes of the
job are here nothing is changed. Decides nothing.
"""

import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from elastane.agent.strike import Mark, find_worker_process
from elastane.cli.watch import EventTail
from elastane.core.view import JobView
from elastane.jobs.requests import read_picture
from elastane.model.ids import NodeId, WorkerId
from elastane.model.records import JobInfo
from elastane.observe.events import Event
from elastane.observe.metrics import MetricsRecord, MetricsTail, read_metrics
from elastane.store.base import Store

KEPT_METRICS = 200
"""Steps before the first drill that are read: enough for the time of a step."""
SOURCE = "chaos"
"""What this command is called where it writes events."""


class DrillWatch:
    """Read what a job writes, and find those of its workers that run on this machine.

    Attributes:
        metrics: steps since a little before the first look, as they appeared.
        events: all events, as they appeared.
    """

    def __init__(self, store: Store, info: JobInfo, clock: Callable[[], float] = time.time) -> None:
        """Follow a job.

        Args:
            store: must be the calling thread's own handle.
            info: the job; its directory is where this machine sees its files.
            clock: this machine's wall clock.
        """
        folder = Path(info.directory)
        self.metrics: list[MetricsRecord] = []
        self.events: list[Event] = []
        self._store = store
        self._info = info
        self._folder = folder
        self._clock = clock
        self._new_metrics = MetricsTail(folder, last=KEPT_METRICS)
        self._new_events = EventTail(folder)
        self._here: set[NodeId] = set()
        self._node_of: dict[str, NodeId] = {}
        """Node of every worker and agent that was seen, by the name under which it writes events."""
        self._main_node: dict[int, NodeId | None] = {}
        """Node of the main worker, which writes down the steps, by generation."""
        self._seen_s: dict[tuple[int, int], float] = {}
        """When a step of another host was first seen, by generation and step."""
        for mark in self.find_marks(read_picture(store, info.job).view).values():
            mark.release()  # they have shown which node this machine is

    def look(self) -> JobView:
        """Read what is new; return the job as it is."""
        metrics, events = self._new_metrics.poll(), self._new_events.poll()
        now_s = self._clock()
        # After the log: so the view knows whoever has just written there, unless he is gone already.
        view = read_picture(self._store, self._info.job).view
        self._learn(view)
        self.metrics += [self._stamp(record, now_s) for record in metrics]
        self.events += [self._stamp_event(event, now_s) for event in events]
        return view

    def read_curve(self) -> list[MetricsRecord]:
        """Return the steps since a little before the first drill, as the log has them now.

        A job that goes back to a checkpoint cuts the log, which whoever follows it does not see.
        """
        after_step = self.metrics[0].step - 1 if self.metrics else -1
        now_s = self._clock()
        return [self._stamp(record, now_s) for record in read_metrics(self._folder, after_step)]

    def find_marks(self, view: JobView) -> dict[WorkerId, Mark]:
        """Return the processes of those that live and run here; the caller releases them."""
        found = {
            worker: find_worker_process(self._folder, worker, record.pid)
            for worker, record in view.members.items()
            if view.alive(worker)
        }
        marks = {worker: mark for worker, mark in found.items() if mark is not None}
        self._here |= {view.members[worker].node for worker in marks}
        return marks

    def find_curve_elsewhere(self, view: JobView) -> str:
        """Return the node on which the loss curve is written now, out of sight of this machine; else ""."""
        main = find_main(view)
        node = self._node_of.get(main) if main is not None else None
        return node if node is not None and self._keeps_own_files(view, node) else ""

    def find_unseen(self, view: JobView, workers: Iterable[WorkerId]) -> frozenset[WorkerId]:
        """Return those of these members whose events are written out of sight of this machine."""
        nodes = {worker: view.members[worker].node for worker in workers if worker in view.members}
        return frozenset(w for w, node in nodes.items() if self._keeps_own_files(view, node))

    def has_other_folders(self, view: JobView) -> bool:
        """Tell whether nodes keep files of their own, so that the loss curve may go on out of sight."""
        return any(self._keeps_own_files(view, node) for node in view.agents)

    def _keeps_own_files(self, view: JobView, node: NodeId) -> bool:
        agent = view.agents.get(node)
        if agent is None or node in self._here or not agent.directory:
            return False
        return Path(agent.directory) != self._folder

    def _learn(self, view: JobView) -> None:
        self._node_of |= {worker: record.node for worker, record in view.members.items()}
        self._node_of |= {f"agent {node}": node for node in view.agents}
        main = find_main(view)
        if view.current is not None and main is not None:
            self._main_node[view.current.generation] = self._node_of.get(main)

    def _is_here(self, node: NodeId | None) -> bool:
        # With all nodes on one host, a host of its own need not be known of everybody.
        return node in self._here or set(self._node_of.values()) <= self._here

    def _stamp(self, record: MetricsRecord, now_s: float) -> MetricsRecord:
        key = (record.generation, record.step)
        if key not in self._seen_s and self._is_here(self._main_node.get(record.generation)):
            return record
        return msgspec.structs.replace(record, at_s=self._seen_s.setdefault(key, now_s))

    def _stamp_event(self, event: Event, now_s: float) -> Event:
        if event.source == SOURCE or self._is_here(self._node_of.get(event.source)):
            return event
        return msgspec.structs.replace(event, at_s=now_s)


def find_main(view: JobView) -> WorkerId | None:
    """Return the worker that runs virtual worker 0 and writes the loss curve; None before there is one."""
    return view.current.members[0].worker if view.current is not None and view.current.members else None
