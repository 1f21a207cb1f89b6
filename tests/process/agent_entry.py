"""Workers' lives without training, for tests of the agent; named to launchers as `entry`."""

import os
import runpy
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from elastane.core.view import JobView, build_view, encode
from elastane.model.errors import StoreError
from elastane.model.records import JobKeys, JobPhase, JobStatus, MemberRecord, WorkerPhase
from elastane.observe.events import EventLog
from elastane.store.base import LeaseId, Put, Store
from elastane.store.open import open_store
from elastane.worker.context import WorkerContext, current_context

LEASE_TTL_S = 1.0
STEP_S = 0.02


def run_script(context: WorkerContext) -> int:
    """Run the script and nothing else."""
    assert current_context() == context
    runpy.run_path(context.script, run_name="__main__")
    return 0


def run_member(context: WorkerContext) -> int:
    """Register the worker, keep its lease, and run the script with `life` at hand."""
    global life  # noqa: PLW0603 - one per process, and scripts import it by name
    life = Life.begin(context)
    return run_script(context)


@dataclass
class Life:
    context: WorkerContext
    store: Store
    lease: LeaseId
    log: EventLog
    record: MemberRecord

    @classmethod
    def begin(cls, context: WorkerContext) -> "Life":
        store = open_store(context.store_url)
        record = MemberRecord(
            worker=context.worker,
            node=context.node,
            device=context.device,
            pid=os.getpid(),
            phase=WorkerPhase.PREPARING,
            virtual_workers=context.virtual_workers or 0,
        )
        log = EventLog(Path(context.directory), context.worker)
        made = cls(context, store, store.grant(LEASE_TTL_S), log, record)
        made.become(WorkerPhase.PREPARING)
        threading.Thread(target=made.renew, daemon=True).start()
        return made

    def renew(self) -> None:
        with open_store(self.context.store_url) as store:
            try:
                while True:
                    store.renew(self.lease)
                    time.sleep(LEASE_TTL_S / 4)
            except StoreError as error:
                sys.stderr.write(f"lease lost: {error}\n")
                os._exit(9)

    def become(self, phase: WorkerPhase, committed_step: int = 0) -> None:
        self.record = msgspec.structs.replace(self.record, phase=phase, committed_step=committed_step)
        key = JobKeys(self.context.job).member(self.context.worker)
        self.store.transact(puts=[Put(key=key, value=encode(self.record), lease=self.lease)])
        if committed_step == 0:
            self.log.append(phase.value, worker=self.context.worker, device=self.context.device)

    def view(self) -> JobView:
        snapshot = self.store.range(JobKeys(self.context.job).prefix)
        view = build_view(self.context.job, snapshot.revision, ((e.key, e.value) for e in snapshot.entries))
        assert view is not None
        return view

    def train(self, steps: int = 10**9) -> None:
        """Take part until asked to stop or to leave; who sees a stop first says that the job has stopped."""
        self.become(WorkerPhase.TRAINING)
        for step in range(1, steps + 1):
            view = self.view()
            if view.spec.stop and not view.status.phase.ended:
                self.end_job(JobPhase.STOPPED)
            if view.status.phase.ended or self.context.worker in view.spec.leaving:
                return
            self.become(WorkerPhase.TRAINING, committed_step=step)
            time.sleep(STEP_S)

    def end_job(self, phase: JobPhase, message: str = "") -> None:
        status = JobStatus(phase=phase, message=message, worker=self.context.worker)
        self.store.transact(puts=[Put(key=JobKeys(self.context.job).status, value=encode(status))])


life: Life
