"""B11: the autoscaler against every static choice, on recorded curves of speed by number of workers.

Run: python -m benchmarks.autoscaler [--out FILE.json] [--quick]. The real decisions are replayed from every
start, with changes charged as measured here and as published; and one curve is lived through by a real job.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.autoscaler_live import measure_live
from benchmarks.command import Findings, run_row
from benchmarks.figures import Chart, Figure, Row, Series, Target, make_figure
from elastane.core.autoscale_replay import Replay, ReplayedJob, replay_autoscale, replay_static
from elastane.core.autoscaler import AutoscaleSettings, Worth
from elastane.core.utility import Linear, Steps, Utility
from elastane.perf.curve import compute_curve
from elastane.perf.overhead import PRESETS
from elastane.sim.profiles import load_profile_set

BEST_S = 3600.0
"""The fastest static choice takes an hour, about as long as the runs of Or et al."""
PRICE = 0.768 / 3600
"""Or et al.'s price of a machine, in dollars per second."""
VALUE = 100.0
LIVE_RUNS = 3
OURS = (0.36, 0.02, 0.001)
"""Join, stop of a join and of a leave in seconds, as B2 and B4 measure them on the smallest machine."""

ROW = Row(
    id="B11",
    name="autoscaler",
    title="How good is the autoscaler's choice, and what does the search cost?",
    method="Recorded curves: ResNet-50 on CIFAR-10 falls from the start; BERT, Inception and DeepSpeech "
    "rise and become flat; ImageNet rises (ElasticFlow, A100 and T4; AFS). A job that takes an hour "
    "with the fastest static choice is replayed from every start on the grid. *Best by the rule* is "
    "the static choice that the same condition makes when it knows the whole curve. Changes are "
    "charged as elastane's, or as those of Or et al. with a join of 40 s. *Live*: a real job whose steps are "
    "sleeps as long as the curve of DeepSpeech says, 0.25 s with one worker, on six devices. It begins with "
    "one worker; what the search took longer than the same steps with the size that was kept is added to "
    "an hour.",
    remarks="The efficiency condition gives up speed for devices: where a curve bends slowly the fastest "
    "static choice is faster by what the last workers would have added, each less than a tenth of a "
    "worker. CIFAR-10 has two hills: from above a linear utility climbs the second one first, and goes down "
    "to one worker when it looks at the smallest size after ten minutes. On ImageNet what is left "
    "after the cost is small, so that the search itself weighs heavily.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Name a recorded curve and the sizes to search."""

    name: str
    profiles: str
    profile: str
    minimum: int
    maximum: int
    step: int

    @property
    def sizes(self) -> range:
        """Return the sizes on the grid."""
        return range(self.minimum, self.maximum + 1, self.step)

    def settings(self, worth: Worth | None = None) -> AutoscaleSettings:
        """Return the settings of a user who knows no more than the range."""
        return AutoscaleSettings(minimum=self.minimum, maximum=self.maximum, step=self.step, worth=worth)


CASES = (
    Case(
        name="CIFAR-10",
        profiles="elasticflow-a100",
        profile="resnet50_cifar10@64",
        minimum=1,
        maximum=8,
        step=1,
    ),
    Case(name="BERT", profiles="elasticflow-a100", profile="bert@64", minimum=2, maximum=16, step=2),
    Case(
        name="Inception", profiles="elasticflow-a100", profile="inception3@64", minimum=4, maximum=32, step=4
    ),
    Case(name="DeepSpeech", profiles="pcs-afs", profile="DeepspeechModel64", minimum=2, maximum=20, step=2),
    Case(name="ResNet-50", profiles="pcs-afs", profile="Resnet50Model128", minimum=4, maximum=28, step=4),
    Case(name="ImageNet", profiles="elasticflow-t4", profile="imagenet@6400", minimum=32, maximum=64, step=4),
)


def make_job(case: Case, overhead: tuple[float, float, float]) -> ReplayedJob:
    """Return the job whose fastest static choice takes `BEST_S`."""
    profile = load_profile_set(case.profiles).profiles[case.profile]
    curve = compute_curve(profile, case.maximum).packed
    batch = int(case.profile.partition("@")[2] or 1)  # the AFS authors count iterations
    fastest = max(float(curve[size]) for size in case.sizes)
    join_s, grow_stop_s, shrink_stop_s = overhead
    return ReplayedJob(
        throughput=lambda size: float(curve[size]),
        batch=batch,
        samples=fastest * BEST_S,
        join_s=join_s,
        grow_stop_s=grow_stop_s,
        shrink_stop_s=shrink_stop_s,
    )


def choose_static(job: ReplayedJob, case: Case) -> int:
    """Return the size before the efficiency condition fails first, by the whole curve."""
    settings = case.settings()
    for fewer, more in zip(case.sizes, case.sizes[1:], strict=False):
        low, high = job.throughput(fewer), job.throughput(more)
        if not (high - low) / (more - fewer) / (low / fewer) > settings.efficiency:
            return fewer
    return case.sizes[-1]


def compute_net(replayed: Replay, utility: Utility, slowest_s: float) -> float:
    """Return what the job was worth less what it cost."""
    return utility.value(replayed.total_s, slowest_s) - PRICE * replayed.worker_s


def measure_efficiency(case: Case, starts: Sequence[int], changes: str) -> list[Figure]:
    """Replay the efficiency condition from every start."""
    job = make_job(case, OVERHEADS[changes])
    runs = [replay_autoscale(job, start, case.settings()) for start in starts]
    statics = {size: replay_static(job, size) for size in case.sizes}
    chosen = statics[choose_static(job, case)]
    fastest = min(statics.values(), key=lambda run: run.total_s)
    name = f"{case.name}, {changes} changes"
    return [
        make_figure("settled at", name, [float(run.settled or 0) for run in runs], "workers"),
        make_figure(
            "changes until settled",
            name,
            [float(run.settled_after_moves) for run in runs],
            "",
            Target(goal="<= 10"),
        ),
        make_figure("settled after", name, [run.settled_at_s for run in runs], "s"),
        make_figure(
            "time, of the best by the rule",
            name,
            [run.total_s / chosen.total_s for run in runs],
            "ratio",
            Target(goal="<= 1.03"),
        ),
        make_figure("time, of the fastest", name, [run.total_s / fastest.total_s for run in runs], "ratio"),
        make_figure(
            "worker time, of the fastest", name, [run.worker_s / fastest.worker_s for run in runs], "ratio"
        ),
    ]


def measure_worth(case: Case, starts: Sequence[int], changes: str) -> list[Figure]:
    """Replay two utility functions from every start: linear, and a deadline a quarter above the fastest."""
    job = make_job(case, OVERHEADS[changes])
    statics = {size: replay_static(job, size) for size in case.sizes}
    slowest_s = max(run.total_s for run in statics.values())
    figures = []
    for name, utility in (
        ("linear", Linear(2 * slowest_s, VALUE)),
        ("deadline", Steps(((1.25 * BEST_S, VALUE),))),
    ):
        settings = case.settings(Worth(utility=utility, price=PRICE))
        runs = [replay_autoscale(job, start, settings) for start in starts]
        best = max(compute_net(run, utility, slowest_s) for run in statics.values())
        ratios = [compute_net(run, utility, slowest_s) / best for run in runs]
        workload = f"{case.name}, {name}, {changes} changes"
        figures += [
            make_figure("settled at", workload, [float(run.settled or 0) for run in runs], "workers"),
            make_figure("value less cost, of the best", workload, ratios, "ratio", Target(goal=">= 0.97")),
        ]
    return figures


def draw_case(case: Case) -> Chart:
    """Return the chart of completion times by start, with and without the autoscaler."""
    job = make_job(case, OVERHEADS["published"])
    statics = [(float(size), replay_static(job, size).total_s / 60) for size in case.sizes]
    ours = [(float(size), replay_autoscale(job, size, case.settings()).total_s / 60) for size in case.sizes]
    return Chart(
        name=f"autoscaler-{case.name.lower()}",
        title=f"{case.name}: completion time by the number of workers at the start",
        x_label="workers at the start",
        y_label="minutes",
        series=[Series(label="static", points=statics), Series(label="autoscaler", points=ours)],
    )


_OR = PRESETS["or-cifar"]
OVERHEADS = {"elastane's": OURS, "published": (_OR.join_s, _OR.grow_stop_s, _OR.shrink_stop_s)}


def measure(quick: bool) -> Findings:
    """Replay all cases."""
    figures: list[Figure] = []
    for case in CASES[:1] if quick else CASES:
        starts = list(case.sizes)
        for changes in OVERHEADS:
            figures += measure_efficiency(case, starts, changes)
        figures += measure_worth(case, starts, "published")
    figures += measure_live(1 if quick else LIVE_RUNS)
    return Findings(figures=figures, charts=[draw_case(CASES[0]), draw_case(CASES[-1])])


if __name__ == "__main__":
    run_row(ROW, measure)
