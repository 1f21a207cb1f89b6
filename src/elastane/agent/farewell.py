"""What becomes of a request to stop that reaches an agent: the job stops, or this node alone leaves it.

Asked once, all go gracefully, within a grace time; asked twice, at once. `elastane run` stops its job; an
agent that serves somebody else's job takes its own workers out of it, and the job goes on elsewhere.
"""

import logging
import time
from typing import Protocol

from elastane.agent.settings import AgentPlace, AgentSettings
from elastane.agent.shift import Shift
from elastane.core.staffing import is_saving
from elastane.core.staffing.departure import find_waiting
from elastane.core.view import JobView
from elastane.jobs.requests import request_stop, request_vacate
from elastane.model.errors import JobStateError
from elastane.model.records import Leave
from elastane.store.base import Store

_log = logging.getLogger(__name__)


class Farewell(Protocol):
    """Carry a request to stop through."""

    deadline_s: float | None
    """When the grace time is over, by the monotonic clock; None before the first request."""

    def cut_short(self, shift: Shift) -> None:
        """End all workers here, as asked twice; needs no store."""

    def pursue(self, shift: Shift, store: Store, view: JobView, requests: int) -> None:
        """Do what is to be done now, after so many requests (at least 1)."""

    def is_done(self, shift: Shift, view: JobView) -> bool:
        """Tell whether this agent may end though the job has not."""


class JobStop:
    """Stop the whole job: all workers leave together and the state is saved."""

    def __init__(self, place: AgentPlace, settings: AgentSettings) -> None:
        """Prepare to stop the job of `place`."""
        self.deadline_s: float | None = None
        self._place = place
        self._grace_s = settings.stop_grace_s
        self._told_of_saving = False

    def cut_short(self, shift: Shift) -> None:
        """End all workers here; `pursue` tells the others."""
        shift.kill_all("stopped at once, as asked twice")

    def pursue(self, shift: Shift, store: Store, view: JobView, requests: int) -> None:
        """Ask the workers to stop together; end them if asked twice or if that takes too long."""
        now_s = time.monotonic()
        if self.deadline_s is None:
            try:
                request_stop(store, self._place.job)
            except JobStateError as error:
                _log.info("the job had ended already: %s", error)
            self.deadline_s = now_s + self._grace_s
            shift.log("stop_requested", grace_s=self._grace_s)
        if requests > 1:
            shift.end_at_once("stopped at once, as asked twice; what was not saved is lost")
        elif is_saving(view):
            if now_s >= self.deadline_s and not self._told_of_saving:
                self._told_of_saving = True
                reason = f"the state is being saved, for more than {self._grace_s:g} s by now"
                shift.log("stop_waits", reason=reason)
        elif now_s >= self.deadline_s:
            reason = f"a graceful stop took more than {self._grace_s:g} s; what was not saved is lost"
            shift.end_at_once(reason)

    def is_done(self, shift: Shift, view: JobView) -> bool:
        """Return false: the agent ends with the job."""
        del shift, view
        return False


class NodeLeave:
    """Take this node out of the job, which goes on elsewhere."""

    def __init__(self, place: AgentPlace, settings: AgentSettings) -> None:
        """Prepare to leave the job of `place`."""
        self.deadline_s: float | None = None
        self._place = place
        self._grace_s = settings.stop_grace_s
        self._told = False

    def cut_short(self, shift: Shift) -> None:
        """End all workers here: the others repeat the step in flight."""
        shift.kill_all("asked twice to leave; the others repeat the step in flight")

    def pursue(self, shift: Shift, store: Store, view: JobView, requests: int) -> None:
        """Ask for successors of the workers here; after the grace time all go without them."""
        del requests
        node, now_s = self._place.node, time.monotonic()
        if self.deadline_s is None:
            self.deadline_s = now_s + self._grace_s
        late = now_s >= self.deadline_s
        waiting = find_waiting(view, node)
        try:
            change = request_vacate(store, self._place.job, node, patient=not late)
        except JobStateError as error:
            _log.info("nothing asked for at this look: %s", error)
            return
        if not self._told:
            self._told = True
            leaving = {w: how.value for w, how in change.after.leaving.items() if w in shift.node.processes}
            shift.log("node_leaves", node=node, workers=leaving, grace_s=self._grace_s)
        elif late and waiting:
            now = dict.fromkeys(waiting, Leave.NOW.value)
            reason = f"no successor was ready within {self._grace_s:g} s"
            shift.log("node_leaves", node=node, workers=now, reason=reason)

    def is_done(self, shift: Shift, view: JobView) -> bool:
        """Tell whether this node was asked to leave, and its last worker is gone."""
        # An agent that comes back finds the node as the one before it has left it.
        asked = self.deadline_s is not None
        return asked and self._place.node in view.spec.vacating and not shift.node.processes
