"""Put results into sentences: what a report says before it shows a single plot.

Every sentence states figures that stand in the table too; none of them judges beyond what they show.
"""

from __future__ import annotations

from elastane.perf.overhead import Overhead
from elastane.sim.report.comparison import Comparison
from elastane.sim.report.figures import compute_change_shares
from elastane.sim.report.human import say_change, say_duration, say_number, say_share


def say_headline(comparison: Comparison) -> str:
    """Return the one sentence to remember: the best usable policy against the baseline."""
    best, baseline = comparison.best_real, comparison.baseline
    new, old = best.result.metrics.jct_mean_s, baseline.result.metrics.jct_mean_s
    if len(comparison.runs) == 1:
        return f"Under {best.policy} the average job is done {say_duration(new)} after its submission."
    if best is baseline:
        return (
            f"Of the policies that a real cluster could use, {best.policy} does best: the average job is "
            "done "
            f"{say_duration(new)} after its submission."
        )
    return (
        f"Under {best.policy} the average job is done {say_duration(new)} after its submission, "
        f"instead of {say_duration(old)} under {baseline.policy} ({say_change(new, old)})."
    )


def say_details(comparison: Comparison) -> list[str]:
    """Return further sentences about the best usable policy against the baseline."""
    best, top = comparison.best_real, comparison.best
    sentences = [_say_load(comparison)]
    if best is not comparison.baseline:
        sentences += _say_gains(comparison)
    if top is not best:
        sentences.append(
            f"{top.policy} does better still ({say_duration(top.result.metrics.jct_mean_s)}), but it is "
            "told in "
            "advance how long each job takes, which no real cluster knows."
        )
    return [*sentences, _say_assumption(comparison)]


def _say_assumption(comparison: Comparison) -> str:
    """Return the assumptions that a sceptical reader would ask for first."""
    jobs = comparison.preparation.workload.jobs
    elastic = sum(job.elasticity == "elastic" for job in jobs) / len(jobs)
    who = "every job" if elastic == 1.0 else f"{say_share(elastic)} of the jobs"
    how = "no job" if elastic == 0.0 else who
    drawn = comparison.preparation.drawn_jobs
    source = comparison.preparation.profile_set
    speeds = (
        f"the speed of {drawn:,} of them on other numbers of devices is drawn from published measurements "
        f"({source}), since the trace does not name their models"
        if drawn
        else f"speeds come from published measurements ({source})"
    )
    return f"Assumed: {how} can change its size while it runs; {speeds}."


def _say_gains(comparison: Comparison) -> list[str]:
    best, baseline = comparison.best_real, comparison.baseline
    new, old = best.result.metrics, baseline.result.metrics
    shares = compute_change_shares(best.result.jobs, baseline.result.jobs)
    sentences = [
        f"{say_share(shares[0] + shares[1])} of the jobs finish clearly sooner than under {baseline.policy}, "
        f"{say_share(shares[3] + shares[4])} clearly later (by more than 10 %).",
        f"Jobs wait {say_duration(new.wait_mean_s)} on average instead of {say_duration(old.wait_mean_s)}; "
        f"the slowest hundredth take {say_duration(new.jct_p99_s)} or more instead of "
        f"{say_duration(old.jct_p99_s)}.",
    ]
    if new.resizes_per_job > 0:
        sentences.append(
            f"A job changes its size {say_number(new.resizes_per_job)} times on average; all changes "
            f"together cost {say_share(new.lost_share)} of the device time in use."
        )
    return sentences


def say_overhead(overhead: Overhead) -> str:
    """Return in words what every change of a job's size is charged."""
    restart = _say_restart(overhead)
    if overhead.kind == "stop-resume":
        return f"{overhead.name}: a job stops for {restart} at every change of its devices."
    if not (overhead.join_s or overhead.grow_stop_s or overhead.shrink_stop_s or overhead.restart_s):
        return f"{overhead.name}: changes and preemptions cost nothing."
    return (
        f"{overhead.name}: devices that join idle for {say_duration(overhead.join_s)} while the others "
        f"train on; then the job stops {say_duration(overhead.grow_stop_s)} to grow, "
        f"{say_duration(overhead.shrink_stop_s)} to shrink. A preempted job resumes after {restart}."
    )


def _say_restart(overhead: Overhead) -> str:
    low, high = overhead.compute_restart_s(1), overhead.compute_restart_s(overhead.restart_devices)
    return say_duration(low) if low == high else f"{say_duration(low)} to {say_duration(high)} (by its size)"


def _say_load(comparison: Comparison) -> str:
    load = comparison.preparation.offered_load
    jobs = comparison.preparation.workload.jobs
    span_s = jobs[-1].submit_s - jobs[0].submit_s
    if span_s <= 0:
        return f"All {len(jobs):,} jobs are submitted at once."
    return (
        f"The {len(jobs):,} jobs, submitted over {say_duration(span_s)}, ask for {say_share(load)} of the "
        "device time that the cluster has in that period."
    )
