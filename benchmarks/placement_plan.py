"""How long it takes to place 4,096 virtual workers on 1,000 workers by their speeds.

Run: python -m benchmarks.placement_plan [--out FILE.json] [--quick]. Processor time of one plan, which runs
in one thread: the machine may be busy.
"""

import random
import time
from collections.abc import Sequence

from benchmarks.command import Findings, run_row
from benchmarks.figures import Row, Target, make_figure
from elastane.core.placement import compute_step_time, plan_even, plan_placement
from elastane.core.tree import count_segments
from elastane.model.topology import VrankRange

VIRTUAL_WORKERS, WORKERS = 4096, 1000
REPEATS = 9

ROW = Row(
    id="B15p",
    name="placement_plan",
    title="Placement by speed: how long does a plan take?",
    method="4,096 virtual workers on 1,000 workers, one of which has just become slow, or that are of two or "
    "three kinds, or all different; present ranges even. Processor time. Step time and partial sums are "
    "those of the plan over those of even ranges.",
)


def draw_speeds() -> dict[str, list[float]]:
    """Return the cases: each worker's speed in virtual workers per second."""
    rng = random.Random(0)
    return {
        "one slow": [*[1.0] * (WORKERS - 1), 0.5],
        "one nearly dead": [*[1.0] * (WORKERS - 1), 0.1],
        "two kinds": [1.0, 0.6] * (WORKERS // 2),
        "three kinds": [rng.choice((1.0, 0.75, 0.5)) for _ in range(WORKERS)],
        "all different": [rng.uniform(0.5, 1.5) for _ in range(WORKERS)],
    }


def measure(quick: bool) -> Findings:
    """Plan each case several times."""
    even = plan_even(VIRTUAL_WORKERS, WORKERS)
    figures = []
    for case, speeds in draw_speeds().items():
        times_ms = []
        for _ in range(1 if quick else REPEATS):
            begun_s = time.process_time()
            planned = plan_placement(VIRTUAL_WORKERS, speeds, even)
            times_ms.append(1000 * (time.process_time() - begun_s))
        gain = compute_step_time(planned, speeds) / compute_step_time(even, speeds)
        segments = count_all_segments(planned) / count_all_segments(even)
        figures += [
            make_figure("plan", case, times_ms, "ms", Target(goal="<= 50")),
            make_figure("step time, of even ranges'", case, [gain], "ratio"),
            make_figure("partial sums, of even ranges'", case, [segments], "ratio"),
        ]
    return Findings(figures=figures)


def count_all_segments(ranges: Sequence[VrankRange]) -> int:
    """Return how many partial sums the workers send in a step."""
    return sum(count_segments(vranks.start, vranks.stop, VIRTUAL_WORKERS) for vranks in ranges)


if __name__ == "__main__":
    run_row(ROW, measure)
