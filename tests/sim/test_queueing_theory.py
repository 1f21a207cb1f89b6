"""Runs agree with what is known without a simulator: queueing theory, brute force, heSRPT."""

import heapq
import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from sim_traces import make_markovian

from elastane.model.cluster import Cluster, JobSpec, Profile, SpeedPoint, Workload
from elastane.policy.registry import make_policy
from elastane.sim.engine import simulate


def compute_erlang_c(servers: int, offered: float) -> float:
    """Return the probability that a customer of an M/M/c queue waits."""
    terms = [offered**k / math.factorial(k) for k in range(servers)]
    last = offered**servers / math.factorial(servers) * servers / (servers - offered)
    return last / (sum(terms) + last)


@pytest.mark.parametrize("servers", [1, 4])
def test_first_come_first_served_waits_as_long_as_queueing_theory_says(servers: int) -> None:
    mean_s, busy = 100.0, 0.6
    arrivals = busy * servers / mean_s
    result = simulate(make_markovian(30_000, arrivals, mean_s), Cluster.of(1, servers), make_policy("fifo"))
    wait_s = compute_erlang_c(servers, busy * servers) / (servers / mean_s - arrivals)
    # 30,000 correlated waits leave a standard error of about 6 %; the next test is exact.
    assert result.metrics.delay_mean_s == pytest.approx(wait_s, rel=0.12)
    assert result.metrics.utilisation == pytest.approx(busy, rel=0.03)


@pytest.mark.parametrize("servers", [1, 4])
def test_each_wait_is_the_one_that_the_earliest_free_server_gives(servers: int) -> None:
    workload = make_markovian(3000, 0.009 * servers, 100.0)
    result = simulate(workload, Cluster.of(1, servers), make_policy("fifo"))
    free_s, waits = [0.0] * servers, []
    for job in workload.jobs:
        start_s = max(heapq.heappop(free_s), job.submit_s)
        waits.append(start_s - job.submit_s)
        heapq.heappush(free_s, start_s + job.work_s)
    np.testing.assert_allclose(result.jobs.delay_s, waits, atol=1e-6)


def test_shortest_first_beats_first_come_and_no_order_changes_the_busy_time() -> None:
    workload = make_markovian(3000, 0.008, 100.0)
    runs = {name: simulate(workload, Cluster.of(1, 1), make_policy(name)) for name in ("fifo", "srtf")}
    assert runs["srtf"].metrics.jct_mean_s < 0.7 * runs["fifo"].metrics.jct_mean_s
    busy = [float(run.jobs.busy_device_s.sum()) for run in runs.values()]
    assert busy[0] == pytest.approx(busy[1])


def compute_processor_sharing(workload: Workload, speed: float) -> float:
    """Return the mean time in the system when all jobs share one server of `speed` evenly at all times."""
    left: dict[int, float] = {}
    now, ahead, total = 0.0, 0, 0.0
    jobs = workload.jobs
    while ahead < len(jobs) or left:
        rate = speed / len(left) if left else 0.0
        arrival_s = jobs[ahead].submit_s if ahead < len(jobs) else math.inf
        ending_s = now + min(left.values()) / rate if left else math.inf
        following = min(arrival_s, ending_s)
        left = {job: work - rate * (following - now) for job, work in left.items()}
        for job in [job for job, work in left.items() if work <= 1e-6]:
            total += following - jobs[job].submit_s
            del left[job]
        now = following
        if arrival_s <= following:
            left[ahead] = jobs[ahead].work_s
            ahead += 1
    return total / len(jobs)


@pytest.mark.parametrize("name", ["even", "afs-p", "elastane"])
def test_sharing_with_ideal_scaling_is_processor_sharing(name: str) -> None:
    # Jobs that scale ideally and share 16 devices are one server 16 times as fast: M/M/1 with processor
    # sharing, mean time 1 / (mu - lambda). Shares of whole devices are not quite even: 2 % are allowed
    # against sharing computed apart on the same jobs, and the noise of 1,500 jobs against theory.
    devices, mean_s, busy = 16, 160_000.0, 0.5
    arrivals = busy * devices / mean_s
    workload = make_markovian(1500, arrivals, mean_s, devices=devices)
    result = simulate(workload, Cluster.of(1, devices), make_policy(name))
    assert result.metrics.jct_mean_s == pytest.approx(compute_processor_sharing(workload, devices), rel=0.02)
    assert result.metrics.jct_mean_s == pytest.approx(1.0 / (devices / mean_s - arrivals), rel=0.2)


def make_batch(works: Sequence[float], speed: Profile, devices: int) -> Workload:
    """Return jobs submitted together, each `works[i]` seconds long on one device."""
    specs = (
        JobSpec(id=str(i), submit_s=0.0, requested=1, work_s=work, profile=speed.name, max_devices=devices)
        for i, work in enumerate(works)
    )
    return Workload(name="batch", jobs=tuple(specs), profiles={speed.name: speed})


def make_power_law(exponent: float, devices: int) -> Profile:
    points = (SpeedPoint(devices=k, samples_per_s=k**exponent) for k in range(1, devices + 1))
    return Profile(name="power", points=tuple(points))


def compute_hesrpt_sum(works: Sequence[float], exponent: float, devices: int) -> float:
    """Return the least sum of completion times of jobs with speed k ** exponent that share devices freely.

    heSRPT (Berg, Vesilo, Harchol-Balter, 2020): with m jobs left, the i-th largest gets the share
    (i / m) ** q - ((i - 1) / m) ** q, q = 1 / (1 - exponent), until the smallest ends.
    """
    left, now, total = sorted(works, reverse=True), 0.0, 0.0
    while left:
        bounds = (np.arange(len(left) + 1) / len(left)) ** (1.0 / (1.0 - exponent))
        speeds = (devices * np.diff(bounds)) ** exponent
        step = left[-1] / speeds[-1]
        now += step
        total += now
        left = [work - step * speed for work, speed in zip(left[:-1], speeds[:-1], strict=True)]
    return total


def compute_best_sum(works: tuple[float, ...], speed: Sequence[float], devices: int) -> float:
    """Return the least sum of completion times over all sizes that change at completions only."""
    if not any(works):
        return 0.0
    alive = [i for i, work in enumerate(works) if work > 0.0]
    best = math.inf
    for sizes in itertools.product(range(devices + 1), repeat=len(alive)):
        if sum(sizes) > devices or not any(sizes):
            continue
        step = min(works[i] / speed[k] for i, k in zip(alive, sizes, strict=True) if k)
        rest = list(works)
        for i, k in zip(alive, sizes, strict=True):
            rest[i] = 0.0 if k and works[i] / speed[k] <= step * (1 + 1e-12) else works[i] - step * speed[k]
        best = min(best, step * len(alive) + compute_best_sum(tuple(rest), speed, devices))
    return best


# Hours, so that a minute's rest between two changes of a job does not matter.
WORKS = [(1e5, 2e5, 9e5), (5e5, 5e5, 5e5), (1e4, 1e6), (5e4, 7e4, 6e5)]


@pytest.mark.parametrize("works", WORKS)
def test_no_policy_beats_brute_force_and_the_informed_come_close(works: tuple[float, ...]) -> None:
    devices = 4
    profile = make_power_law(0.6, devices)
    speed = [0.0, *(point.samples_per_s for point in profile.points)]
    best = compute_best_sum(works, speed, devices)
    workload = make_batch(works, profile, devices)
    sums = {}
    for name in ("srtf", "even", "elastic-tiresias", "easyscale", "afs-l", "afs-p", "optimus", "elastane"):
        jobs = simulate(workload, Cluster.of(1, devices), make_policy(name)).jobs
        sums[name] = float(jobs.finish_s.sum())
        assert sums[name] >= best * (1 - 1e-9), name
    assert sums["afs-l"] <= 1.25 * best
    assert sums["elastane"] <= 1.35 * best


def test_rigid_shortest_first_is_what_brute_force_finds() -> None:
    works = (30.0, 10.0, 20.0, 40.0)
    profile = Profile(name="flat", points=(SpeedPoint(devices=1, samples_per_s=1.0),))
    workload = make_batch(works, profile, 1)
    result = simulate(workload, Cluster.of(1, 2), make_policy("srtf"))
    best = min(
        sum(sum(order[: i + 1 : 2]) if i % 2 == 0 else sum(order[1 : i + 1 : 2]) for i in range(4))
        for order in itertools.permutations(works)
    )
    assert float(result.jobs.finish_s.sum()) == pytest.approx(best)


@pytest.mark.parametrize("exponent", [0.3, 0.5, 0.8])
def test_hesrpt_bounds_every_policy_and_afs_comes_near_it(exponent: float) -> None:
    devices = 64
    works = np.random.default_rng(4).pareto(1.5, 12) * 1e5 + 1e4
    bound = compute_hesrpt_sum(works.tolist(), exponent, devices)
    workload = make_batch(works.tolist(), make_power_law(exponent, devices), devices)
    sums = {}
    for name in ("even", "elastic-tiresias", "afs-l", "afs-p", "optimus", "elastane"):
        jobs = simulate(workload, Cluster.of(1, devices), make_policy(name)).jobs
        sums[name] = float(jobs.finish_s.sum()) / bound
        assert sums[name] >= 1.0 - 1e-9, name
    assert sums["afs-l"] < 1.25
    assert sums["elastane"] < 1.5
