"""The comparison as a table for terminals."""

from __future__ import annotations

from rich.table import Table

from elastane.sim.report.comparison import Comparison
from elastane.sim.report.human import say_change, say_duration, say_number, say_share


def build_table(comparison: Comparison, *, wide: bool) -> Table:
    """Return one row for each policy, the best mean in bold green; changes are against the first row.

    The narrow table fits 80 columns; the wide one adds fairness and the number of changes.
    """
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    table.add_column("policy", no_wrap=True)
    names = ["mean JCT", "", "median", "p99", "wait", "held", "useful"]
    names += ["unfair", "resizes", "preempt."] if wide else []
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    base = comparison.baseline.result.metrics
    for run in comparison.runs:
        figures = run.result.metrics
        best = run is comparison.best_real and len(comparison.runs) > 1
        more = (
            say_share(figures.rho_unfair_share),
            say_number(figures.resizes_per_job),
            say_number(figures.preemptions_per_job),
        )
        table.add_row(
            run.policy + (" *" if run.clairvoyant else ""),
            say_duration(figures.jct_mean_s),
            "" if run is comparison.baseline else say_change(figures.jct_mean_s, base.jct_mean_s),
            say_duration(figures.jct_median_s),
            say_duration(figures.jct_p99_s),
            say_duration(figures.wait_mean_s),
            say_share(figures.utilisation),
            say_share(figures.cluster_efficiency),
            *(more if wide else ()),
            style="bold green" if best else None,
        )
    return table


LEGEND = (
    "JCT: time from submission to completion. wait: time without devices. held: devices given to jobs. "
    "useful: held devices weighted by how well the job uses them. unfair: jobs slower than in an equal share."
)
CLAIRVOYANT_NOTE = "* is told in advance how long each job takes, which no real cluster knows."
