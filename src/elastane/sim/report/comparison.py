"""The noun that reports are made of: one trace, one cluster, several policies, and how they came out.

Everything a report says is computed from this alone, so that a report can be made again from it without
simulating. Holds no figures of its own and draws nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from elastane.model.cluster import Cluster
from elastane.perf.overhead import Overhead
from elastane.sim.compare import Failure, PolicyRun, SweepRun
from elastane.sim.readers.rows import LeftOut, Trace
from elastane.sim.sweep import Axis
from elastane.sim.workload import Preparation


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Hold all that was asked and all that came out.

    The first policy that gave a result is the baseline that others are compared with. `command` is the
    command line that makes the same comparison again.
    """

    trace: Trace
    preparation: Preparation
    cluster: Cluster
    overhead: Overhead
    seed: int
    command: str
    runs: tuple[PolicyRun, ...]
    failures: tuple[Failure, ...] = ()
    axes: tuple[Axis, ...] = ()
    sweep: tuple[SweepRun, ...] = ()
    warnings: tuple[str, ...] = field(default=())

    @property
    def baseline(self) -> PolicyRun:
        """Return the run that others are compared with."""
        return self.runs[0]

    @property
    def best(self) -> PolicyRun:
        """Return the run with the lowest mean job completion time."""
        return min(self.runs, key=lambda run: run.result.metrics.jct_mean_s)

    @property
    def best_real(self) -> PolicyRun:
        """Return the best run that a live cluster could use: clairvoyant policies know the future."""
        real = [run for run in self.runs if not run.clairvoyant] or list(self.runs)
        return min(real, key=lambda run: run.result.metrics.jct_mean_s)

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """Return what was left out, first by reading and then by the cluster's size."""
        return self.trace.left_out + self.preparation.left_out
