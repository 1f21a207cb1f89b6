"""Stay with a job that only other machines run: pass requests to stop on to it, and wait for its end."""

import time

from elastane.cli.supervisor import caught_signals
from elastane.jobs.requests import read_picture, request_abort, request_stop
from elastane.model.errors import JobStateError
from elastane.model.ids import JobId
from elastane.model.records import JobStatus
from elastane.store.open import open_store

LOOK_S = 0.2


class Onlooker:
    """Wait for the end of one job whose agents are elsewhere."""

    def __init__(self, store_url: str, job: JobId) -> None:
        """Prepare to wait for `job`."""
        self._store_url = store_url
        self._job = job
        self._stops = 0

    def run(self) -> JobStatus:
        """Return how the job ended. In the main thread: signals count as requests to stop meanwhile."""
        passed_on = 0
        with open_store(self._store_url, create=False) as store, caught_signals(self.request_stop):
            while True:
                status = read_picture(store, self._job).view.status
                if status.phase.ended:
                    return status
                if self._stops > passed_on:
                    passed_on = self._stops
                    request = request_abort if passed_on > 1 else request_stop
                    try:
                        request(store, self._job)
                    except JobStateError:
                        continue  # it ended at this moment
                time.sleep(LOOK_S)

    def request_stop(self) -> None:
        """Ask once for a graceful stop, twice for an end at once. Safe in signal handlers."""
        self._stops += 1
