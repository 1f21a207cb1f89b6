"""The engine carries plans out to the second, charges every change, and refuses the impossible."""

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pytest

from elastane.model.cluster import (
    Allocation,
    Change,
    Cluster,
    JobSpec,
    Node,
    Plan,
    Profile,
    SpeedPoint,
    Workload,
)
from elastane.model.errors import ConfigError, PlanError
from elastane.perf.overhead import PRESETS, Overhead
from elastane.policy.fifo import Fifo
from elastane.policy.view import View
from elastane.sim.engine import SimOptions, simulate
from elastane.sim.result import SimResult

STOP_FREE = Overhead(
    name="t", kind="stop-free", join_s=10.0, grow_stop_s=2.0, shrink_stop_s=1.0, restart_s=20.0
)


@dataclass(frozen=True, kw_only=True)
class Script:
    """Play a fixed list of (time, changes): a policy whose every move the test knows."""

    name: ClassVar[str] = "script"
    clairvoyant: ClassVar[bool] = False
    moves: dict[float, list[tuple[int, int]]] = field(default_factory=dict)

    def plan(self, view: View, now: float) -> Plan:
        later = [moment for moment in self.moves if moment > now]
        changes = tuple(Change(job, Allocation(devices=n), "script") for job, n in self.moves.get(now, []))
        return Plan(changes=changes, ask_again_s=min(later, default=math.inf))


def make_job(name: str = "a", **other: object) -> JobSpec:
    facts = {"id": name, "submit_s": 0.0, "requested": 2, "work_s": 100.0, "max_devices": 8}
    return JobSpec(**{**facts, **other})


def play(
    *jobs: JobSpec, moves: dict[float, list[tuple[int, int]]], overhead: Overhead = STOP_FREE
) -> SimResult:
    workload = Workload(name="w", jobs=jobs)
    return simulate(workload, Cluster.of(1, 8), Script(moves=moves), overhead=overhead)


def test_a_job_at_its_requested_size_takes_exactly_its_duration() -> None:
    result = play(make_job(work_s=123.0), moves={0.0: [(0, 2)]})
    assert result.jobs.finish_s.tolist() == [123.0]
    assert result.jobs.busy_device_s.tolist() == [246.0]
    assert result.jobs.lost_device_s.tolist() == [0.0]
    assert result.metrics.utilisation == pytest.approx(0.25)


def test_growing_lets_the_old_devices_train_while_the_new_ones_join() -> None:
    # 2 devices until 20; 2 train and 2 join until 30; all stop until 32; then twice the speed.
    result = play(make_job(), moves={0.0: [(0, 2)], 20.0: [(0, 4)]})
    left = 100.0 - 30.0
    assert result.jobs.finish_s[0] == pytest.approx(32.0 + left / 2)
    assert result.jobs.lost_device_s[0] == pytest.approx(2 * 10.0 + 4 * 2.0)
    assert result.jobs.resizes.tolist() == [1]


def test_shrinking_stops_those_that_stay_briefly() -> None:
    result = play(make_job(), moves={0.0: [(0, 2)], 40.0: [(0, 1)]})
    assert result.jobs.finish_s[0] == pytest.approx(41.0 + 60.0 * 2)
    assert result.jobs.lost_device_s[0] == pytest.approx(1.0)


def test_a_preempted_job_pays_for_its_restart_and_keeps_its_work() -> None:
    result = play(make_job(), moves={0.0: [(0, 2)], 30.0: [(0, 0)], 50.0: [(0, 2)]})
    assert result.jobs.finish_s[0] == pytest.approx(50.0 + 20.0 + 70.0)
    assert result.jobs.preemptions.tolist() == [1]
    assert result.jobs.wait_s[0] == pytest.approx(20.0)
    assert result.jobs.lost_device_s[0] == pytest.approx(2 * 20.0)


def test_stop_resume_stops_all_devices_at_every_change() -> None:
    overhead = Overhead(name="t", kind="stop-resume", restart_s=20.0)
    result = play(make_job(), moves={0.0: [(0, 2)], 10.0: [(0, 4)]}, overhead=overhead)
    assert result.jobs.finish_s[0] == pytest.approx(30.0 + 90.0 / 2)
    assert result.jobs.lost_device_s[0] == pytest.approx(4 * 20.0)


def test_growing_again_while_joining_starts_the_join_anew() -> None:
    # The old two devices train on until the second join is through at 25.
    result = play(make_job(), moves={0.0: [(0, 2)], 10.0: [(0, 4)], 15.0: [(0, 8)]})
    assert result.jobs.finish_s[0] == pytest.approx(27.0 + (100.0 - 25.0) / 4)


def test_shrinking_while_joining_does_not_make_the_rest_join_sooner() -> None:
    result = play(make_job(), moves={0.0: [(0, 2)], 10.0: [(0, 8)], 15.0: [(0, 4)]})
    assert result.jobs.finish_s[0] == pytest.approx(22.0 + (100.0 - 20.0) / 2)


def test_shrinking_below_the_old_devices_while_joining_ends_the_join() -> None:
    result = play(make_job(), moves={0.0: [(0, 2)], 10.0: [(0, 4)], 15.0: [(0, 1)]})
    assert result.jobs.finish_s[0] == pytest.approx(16.0 + (100.0 - 15.0) * 2)


def test_a_change_during_a_restart_does_not_shorten_it() -> None:
    moves = {0.0: [(0, 2)], 10.0: [(0, 0)], 20.0: [(0, 2)], 25.0: [(0, 1)]}
    result = play(make_job(), moves=moves)
    assert result.jobs.finish_s[0] == pytest.approx(40.0 + 90.0 * 2)


def test_nothing_trains_while_a_restarting_job_grows() -> None:
    # The restart would end at 40; others join until 35 and the stop after it ends at 37: nothing until 40.
    moves = {0.0: [(0, 2)], 10.0: [(0, 0)], 20.0: [(0, 2)], 25.0: [(0, 4)]}
    result = play(make_job(), moves=moves)
    assert result.jobs.finish_s[0] == pytest.approx(40.0 + 90.0 / 2)


def test_a_job_may_end_while_others_join() -> None:
    result = play(make_job(), moves={0.0: [(0, 2)], 95.0: [(0, 4)]})
    assert result.jobs.finish_s[0] == pytest.approx(100.0)


def test_a_change_to_what_is_held_costs_nothing() -> None:
    result = play(make_job(), moves={0.0: [(0, 2)], 10.0: [(0, 2)]})
    assert result.jobs.finish_s[0] == 100.0
    assert result.counters.changes == 1


def test_completions_come_before_arrivals_at_one_moment() -> None:
    jobs = (make_job("a", requested=8), make_job("b", requested=8, submit_s=100.0))
    result = simulate(Workload(name="w", jobs=jobs), Cluster.of(1, 8), Fifo())
    assert result.jobs.start_s.tolist() == [0.0, 100.0]
    assert result.counters.peak_live == 1


def test_a_round_based_run_asks_at_whole_rounds_only() -> None:
    jobs = (make_job("a", submit_s=10.0, work_s=30.0), make_job("b", submit_s=61.0, work_s=30.0))
    workload = Workload(name="w", jobs=jobs)
    result = simulate(workload, Cluster.of(1, 8), Fifo(), options=SimOptions(round_s=60.0))
    assert result.jobs.start_s.tolist() == [60.0, 120.0]


@pytest.mark.parametrize(
    ("moves", "message"),
    [
        ({0.0: [(0, 9)]}, "gives job 0 9 devices; it may run on 1 to 8"),
        ({0.0: [(0, 8), (1, 2)]}, "hands out 2 devices more than the cluster has"),
        ({0.0: [(0, 2), (0, 3)]}, "changes job 0 twice"),
        ({0.0: [(7, 1)]}, "job 7, which is not in the system"),
        ({}, "'script' leaves 2 jobs waiting for ever at 0.0 s with 8 free devices"),
    ],
)
def test_impossible_plans_are_refused(moves: dict[float, list[tuple[int, int]]], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        play(make_job("a"), make_job("b"), moves=moves)


def test_a_rigid_job_is_not_resized() -> None:
    with pytest.raises(PlanError, match="may run on 2 to 2"):
        play(make_job(elasticity="rigid"), moves={0.0: [(0, 4)]})


def test_a_policy_that_asks_for_the_past_is_stopped() -> None:
    @dataclass(frozen=True)
    class Stuck(Fifo):
        def plan(self, view: View, now: float) -> Plan:
            return Plan(ask_again_s=now)

    with pytest.raises(PlanError, match=r"asks to be asked again at 0\.0 s"):
        simulate(Workload(name="w", jobs=(make_job(),)), Cluster.of(1, 8), Stuck())


def test_work_that_cannot_be_done_is_refused_before_it_starts() -> None:
    with pytest.raises(ConfigError, match="has no jobs"):
        simulate(Workload(name="w", jobs=()), Cluster.of(1, 8), Fifo())
    with pytest.raises(ConfigError, match="'a' requests 9 devices, the cluster has 8"):
        simulate(Workload(name="w", jobs=(make_job(requested=9, max_devices=9),)), Cluster.of(1, 8), Fifo())


def test_a_job_spread_over_machines_pays_for_it() -> None:
    points = (
        SpeedPoint(devices=1, samples_per_s=1.0),
        SpeedPoint(devices=4, samples_per_s=4.0, nodes=1),
        SpeedPoint(devices=4, samples_per_s=3.0, nodes=2),
    )
    profiles = {"p": Profile(name="p", points=points)}
    jobs = tuple(make_job(name, requested=n, profile="p") for name, n in (("a", 2), ("b", 2), ("c", 4)))
    workload = Workload(name="w", jobs=jobs, profiles=profiles)
    packed = simulate(workload, Cluster.of(2, 4, pooling="node"), Fifo())
    # a and b share one machine (best fit), so c is packed on the other.
    assert packed.jobs.finish_s.tolist() == [100.0, 100.0, 100.0]
    spread = simulate(workload, Cluster.of(4, 2, pooling="node"), Fifo())
    # Two machines are the fewest that hold 4 devices there: no extra machine, no slow-down.
    assert spread.jobs.finish_s.tolist() == [100.0, 100.0, 100.0]
    odd = (Node(name="x", devices=3), Node(name="y", devices=3), Node(name="z", devices=4))
    last = simulate(
        Workload(name="w", jobs=(jobs[2], make_job("d", requested=4, profile="p")), profiles=profiles),
        Cluster(nodes=odd, pooling="node"),
        Fifo(),
    )
    assert last.jobs.finish_s.tolist() == [100.0, pytest.approx(100.0 * 4 / 3)]


@pytest.mark.parametrize(
    ("pieces", "finish_s"),
    [
        # Two pieces on each fast device and one on each slow one end together, in the time that a fast device
        # needs for two; on four fast ones it would be the same two rounds.
        (6, 100.0),
        # Without pieces, equal shares go at the slow devices' pace.
        (0, 200.0),
    ],
)
def test_unlike_devices_and_whole_pieces_set_the_pace(pieces: int, finish_s: float) -> None:
    points = (
        SpeedPoint(devices=1, samples_per_s=2.0, device_type="fast"),
        SpeedPoint(devices=4, samples_per_s=8.0, device_type="fast"),
        SpeedPoint(devices=1, samples_per_s=1.0, device_type="slow"),
        SpeedPoint(devices=4, samples_per_s=4.0, device_type="slow"),
    )
    nodes = (
        Node(name="f", devices=2, device_type="fast"),
        Node(name="s", devices=2, device_type="slow"),
    )
    job = make_job(requested=4, profile="p", virtual_workers=pieces)
    workload = Workload(name="w", jobs=(job,), profiles={"p": Profile(name="p", points=points)})
    result = simulate(workload, Cluster(nodes=nodes, pooling="type"), Fifo())
    assert result.jobs.finish_s.tolist() == [pytest.approx(finish_s)]


def test_whole_pieces_make_a_staircase_even_in_one_pool() -> None:
    job = make_job(requested=4, virtual_workers=4)
    result = play(job, moves={0.0: [(0, 3)]}, overhead=PRESETS["none"])
    assert result.jobs.finish_s[0] == pytest.approx(200.0)


def test_the_series_shows_the_cluster_after_every_moment() -> None:
    jobs = (make_job("a", requested=8), make_job("b", requested=4, submit_s=10.0))
    series = simulate(Workload(name="w", jobs=jobs), Cluster.of(1, 8), Fifo()).series
    assert series.time_s.tolist() == [0.0, 10.0, 100.0, 200.0]
    assert series.used.tolist() == [8.0, 8.0, 4.0, 0.0]
    assert series.running.tolist() == [1.0, 1.0, 1.0, 0.0]
    assert series.waiting.tolist() == [0.0, 1.0, 0.0, 0.0]
    np.testing.assert_allclose(series.efficiency, series.used)


def test_finished_jobs_leave_no_trace_in_the_columns() -> None:
    jobs = tuple(make_job(str(i), submit_s=i * 60.0, work_s=100.0) for i in range(2000))
    engine_rows = []

    @dataclass(frozen=True)
    class Watching(Fifo):
        def plan(self, view: View, now: float) -> Plan:
            engine_rows.append(view.jobs.rows)
            return super().plan(view, now)

    simulate(Workload(name="w", jobs=jobs), Cluster.of(1, 8), Watching())
    assert max(engine_rows) < 100


def test_progress_is_reported_as_a_rising_share() -> None:
    jobs = tuple(make_job(str(i), submit_s=float(i), work_s=5.0) for i in range(600))
    shares: list[float] = []
    simulate(Workload(name="w", jobs=jobs), Cluster.of(1, 8), Fifo(), on_progress=shares.append)
    assert shares == sorted(shares)
    assert 0.0 < shares[0] < shares[-1] < 1.0


def test_notes_are_kept_and_shown_at_the_next_call() -> None:
    seen: list[float] = []

    @dataclass(frozen=True)
    class Noting(Fifo):
        def plan(self, view: View, now: float) -> Plan:
            seen.append(float(view.jobs.note[view.live[0]]))
            return Plan(changes=super().plan(view, now).changes, notes=((0, now + 7.0),))

    jobs = (make_job("a"), make_job("b", submit_s=20.0))
    workload = Workload(name="w", jobs=jobs)
    with pytest.raises(PlanError, match="notes something for job 0, which is not in the system"):
        # The first job is gone at 100, and the policy still writes about it.
        simulate(workload, Cluster.of(1, 8), Noting())
    assert seen == [0.0, 7.0, 0.0]
