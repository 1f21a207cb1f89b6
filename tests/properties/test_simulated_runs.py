"""Whatever the workload, every policy's run conserves devices, finishes all jobs and repeats exactly."""

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elastane.model.cluster import Cluster, JobSpec, Profile, SpeedPoint, Workload
from elastane.perf.curve import compute_curve
from elastane.perf.overhead import PRESETS
from elastane.policy.registry import POLICIES, make_policy
from elastane.sim.engine import simulate
from elastane.sim.result import SimResult

DEVICES = 8


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    """Return a profile with steps that may rise, stay or even fall."""
    speeds = np.cumsum(draw(st.lists(st.sampled_from([1.0, 0.5, 0.0, 0.9]), min_size=1, max_size=8)))
    points = (SpeedPoint(devices=i + 1, samples_per_s=1.0 + float(s)) for i, s in enumerate(speeds))
    return Profile(name="p", points=tuple(points))


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    """Return up to eight jobs with limits of all kinds, some of them arriving together."""
    moments = sorted(draw(st.lists(st.integers(0, 300), min_size=1, max_size=8)))
    jobs = []
    for number, moment in enumerate(moments):
        requested = draw(st.integers(1, DEVICES))
        jobs.append(
            JobSpec(
                id=str(number),
                submit_s=float(moment),
                requested=requested,
                work_s=draw(st.floats(0.5, 5000.0)),
                profile=draw(st.sampled_from(["p", "linear"])),
                min_devices=draw(st.integers(1, requested)),
                max_devices=draw(st.integers(requested, DEVICES + 4)),
                elasticity=draw(st.sampled_from(["elastic", "elastic", "rigid"])),
            )
        )
    known = Workload(name="w", jobs=()).profiles
    return Workload(name="w", jobs=tuple(jobs), profiles={**known, "p": draw(profiles())})


def run(workload: Workload, name: str, overhead: str, pooling: str = "all") -> SimResult:
    cluster = Cluster.of(1, DEVICES, pooling=pooling)
    return simulate(workload, cluster, make_policy(name), overhead=PRESETS[overhead])


@pytest.mark.parametrize("name", list(POLICIES))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(workload=workloads(), overhead=st.sampled_from(["none", "edl", "edl-stop-resume"]))
def test_every_run_conserves_devices_and_finishes_every_job(
    name: str, workload: Workload, overhead: str
) -> None:
    result = run(workload, name, overhead)
    jobs = result.jobs
    end_s = float(jobs.finish_s.max())
    # Conservation itself is asserted inside every run; the shares must add up outside as well.
    held = float((jobs.busy_device_s + jobs.lost_device_s).sum())
    used = float(np.dot(result.series.used[:-1], np.diff(result.series.time_s)))
    assert held == pytest.approx(used, rel=1e-6)
    assert np.isfinite(jobs.finish_s).all()
    assert (jobs.start_s >= jobs.submit_s).all()
    assert (jobs.lost_device_s >= -1e-6).all()
    assert end_s == pytest.approx(float(result.series.time_s[-1]))
    for spec, ran_s in zip(workload.jobs, jobs.finish_s - jobs.start_s, strict=True):
        curve = compute_curve(workload.profiles[spec.profile], DEVICES).packed
        fastest = spec.work_s * curve[spec.requested] / curve.max()
        assert ran_s >= fastest * (1 - 1e-9)


@pytest.mark.parametrize("name", list(POLICIES))
@settings(max_examples=5, deadline=None)
@given(workload=workloads())
def test_a_run_repeats_bit_for_bit(name: str, workload: Workload) -> None:
    first, second = run(workload, name, "edl"), run(workload, name, "edl")
    assert first.digest == second.digest
    assert dataclasses.asdict(first.metrics) == dataclasses.asdict(second.metrics)


@pytest.mark.parametrize("name", ["fifo", "tiresias", "elastic-tiresias", "elastane", "optimus"])
@settings(max_examples=10, deadline=None)
@given(workload=workloads())
def test_without_costs_and_with_equal_devices_pools_change_nothing_but_placement(
    name: str, workload: Workload
) -> None:
    cluster = Cluster.of(4, DEVICES // 4, pooling="node")
    whole = simulate(workload, Cluster.of(1, DEVICES), make_policy(name))
    split = simulate(workload, cluster, make_policy(name))
    np.testing.assert_allclose(split.jobs.finish_s, whole.jobs.finish_s, rtol=1e-9)
