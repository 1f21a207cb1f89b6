"""Follow a job during a drill: its records, its steps and its events, as the report will need them."""

from pathlib import Path

from elastane.cli.watch import EventTail
from elastane.core.view import JobView
from elastane.jobs.requests import read_picture
from elastane.model.records import JobInfo
from elastane.observe.events import Event
from elastane.observe.metrics import MetricsRecord, MetricsTail, read_metrics
from elastane.store.base import Store

KEPT_METRICS = 200
"""Steps before the first drill that are read: enough for the time of a step."""


class DrillWatch:
    """Follow one job; each look costs only what is new.

    Attributes:
        metrics: steps from a little before the first look on.
        events: all events.
    """

    def __init__(self, store: Store, info: JobInfo) -> None:
        """Follow the job of `info`; `store` must be the calling thread's own handle."""
        self._store = store
        self._info = info
        self._directory = Path(info.directory)
        self._new_metrics = MetricsTail(self._directory, last=KEPT_METRICS)
        self._new_events = EventTail(self._directory)
        self.metrics: list[MetricsRecord] = []
        self.events: list[Event] = []

    def look(self) -> JobView:
        """Read what is new; return the job as it is. Raises StoreError."""
        self.metrics += self._new_metrics.poll()
        self.events += self._new_events.poll()
        return read_picture(self._store, self._info.job).view

    def read_curve(self) -> list[MetricsRecord]:
        """Return the steps since a little before the first look, as the log has them now.

        A job that goes back to a checkpoint cuts the log, which whoever follows it does not see.
        """
        after_step = self.metrics[0].step - 1 if self.metrics else -1
        return read_metrics(self._directory, after_step)
