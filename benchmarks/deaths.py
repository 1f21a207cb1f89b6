"""Kill or freeze workers of a running job again and again, and hold what each cost, and what the job came to.

Who is harmed, and what came of it, is chosen and read as `elastane chaos` does it. Rows that are measured in
one invocation share the runs.
"""

import functools
import os
import random
import signal
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.elastic_job import ElasticJob, Plan
from benchmarks.workloads import DIGITS, MLP25M, Workload
from elastane.core.drills import Harm, Spared, choose_target
from elastane.core.view import JobView
from elastane.model.records import MemberRecord
from elastane.observe.drills import Drill, DrillReport, judge_drills

SIGNALS = {Harm.KILL: signal.SIGKILL, Harm.FREEZE: signal.SIGSTOP}
SETTLED_STEPS = {DIGITS.name: 60, MLP25M.name: 4}
"""Steps between two drills, for the step time, beside the recovery and the join."""
STEPS_FOR_A_DRILL = {DIGITS.name: 800, MLP25M.name: 25}
"""More than are trained from one drill to the next; at the end the rest is trained undisturbed."""
FENCED = 75
"""Exit code of a worker that ends itself because the others go on without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Hold what a series of drills on one job showed.

    Attributes:
        report: of each drill.
        step_s: median time of a step of the whole job, beside no drill.
        digest: of the job's final state.
        codes: exit codes of the workers that were harmed.
    """

    report: DrillReport
    step_s: float
    digest: str
    codes: tuple[int, ...]


def make_plan(workload: Workload, workers: int, drills: int) -> Plan:
    """Return a job that is long enough for so many drills."""
    steps = STEPS_FOR_A_DRILL[workload.name] * drills
    # An epoch of the digits is 12 steps of 4 virtual workers.
    length = ("--epochs", str(steps // 12)) if workload is DIGITS else ("--steps", str(steps))
    virtual = ("--virtual-workers", str(max(workers, 4 if workload is DIGITS else 2)))
    return Plan(script=workload.script, arguments=(*length, *virtual), workers=workers)


def train_quietly(plan: Plan) -> str:
    """Run a job undisturbed; return the digest of its final state."""
    with tempfile.TemporaryDirectory() as folder, ElasticJob(plan, Path(folder)) as job:
        return job.wait_finished()


@functools.cache
def measure_series(workload: Workload, workers: int, harm: Harm, drills: int) -> Series:
    """Harm workers of one job so often; leaders and others in turn as the dice fall."""
    plan = make_plan(workload, workers, drills)
    generator = random.Random(workers)
    done: list[Drill] = []
    with tempfile.TemporaryDirectory() as folder, ElasticJob(plan, Path(folder)) as job:
        for number in range(1, drills + 1):
            _settle(job, workers)
            job.wait_commits(SETTLED_STEPS[workload.name])
            done.append(_strike(job, harm, done, generator, number))
        _settle(job, workers)
        digest = job.wait_finished()
        report = judge_drills(done, job.records, job.all_events())
        victims = {drill.target.worker for drill in done}
        codes = [e.fields["code"] for e in job.events("worker_exited") if e.fields["worker"] in victims]
        times_s = sorted(r.step_time_s for r in job.records if r.workers == workers)
    return Series(report=report, step_s=times_s[len(times_s) // 2], digest=digest, codes=tuple(codes))


def _settle(job: ElasticJob, workers: int) -> None:
    def settled(view: JobView) -> bool:
        current = view.current
        whole = current is not None and sum(view.alive(w) for w in current.awaited) == workers
        return whole and view.proposal is None and view.settled

    job.wait_view(settled, f"{workers} workers to train")


def _strike(job: ElasticJob, harm: Harm, done: list[Drill], generator: random.Random, number: int) -> Drill:
    view = job.look()
    harmed = {drill.target.worker for drill in done}
    choice = choose_target(view, view.members, harmed, generator.random())
    if isinstance(choice, Spared):
        raise RuntimeError(f"nobody can be harmed: {choice.reason}")
    record: MemberRecord = view.members[choice.worker]
    at_s = time.time()
    os.kill(record.pid, SIGNALS[harm])
    drill = Drill(number=number, harm=harm, at_s=at_s, target=choice)
    if harm is Harm.FREEZE:
        job.wait_view(
            lambda now: now.current is not None and choice.worker not in now.current.peers,
            f"the others to go on without {choice.worker}",
        )
        os.kill(record.pid, signal.SIGCONT)
    return drill
